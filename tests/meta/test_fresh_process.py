"""The harness that gives a test a process of its own tells a test that fails there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.fresh_process import in_fresh_process


@in_fresh_process
def _writes(path: Path, parent: int) -> None:
    assert os.getpid() != parent
    path.write_text("done")


def test_it_runs_elsewhere_and_a_failure_comes_back(tmp_path: Path) -> None:
    _writes(path=tmp_path / "a", parent=os.getpid())
    assert (tmp_path / "a").read_text() == "done"
    with pytest.raises(AssertionError, match="_writes failed in its process"):
        _writes(path=tmp_path / "nowhere" / "a", parent=os.getpid())
