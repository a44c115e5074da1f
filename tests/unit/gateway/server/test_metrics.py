"""Metrics: the folder that processes share, and processes that have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import raises
from vecveil.gateway.server.monitoring import Metrics, drop_ended_processes


@pytest.mark.parametrize("folder", ["", "none", "file"])
@pytest.mark.parametrize("variable", ["PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"])
def test_a_folder_that_cannot_be_written_to_is_refused(
    variable: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, folder)
    with raises("E-INPUT", "PROMETHEUS_MULTIPROC_DIR"):
        Metrics()


def test_requests_in_progress_of_an_ended_process_are_dropped_and_its_counts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f"{kind}_{pid}.db" for kind in ("gauge_livesum", "counter") for pid in (os.getpid(), ended.pid)]
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    drop_ended_processes()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted(set(names) - {f"gauge_livesum_{ended.pid}.db"})
