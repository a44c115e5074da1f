"""Files that the processes of one test run share: the first that needs one makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of this run, common to all of its processes."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the file ``name`` of this run; ``make`` writes it, and other processes wait meanwhile."""
    import fcntl  # Windows lacks it: only tests that share a file fail there

    path = folder_of_run(factory) / name
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            make(path)
    return path
