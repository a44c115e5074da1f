"""One process at a time: a lock of the operating system, which goes when the process does, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

if sys.platform == "win32":  # pragma: no cover
    fcntl = None
else:
    import fcntl

__all__ = ["LockedError", "exclusive", "hold"]

_GOING = 1.0
"""Seconds in which a killed process is gone, with a child that it was about to start and that has its open files."""


class LockedError(Exception):
    """Another process, or another thread of this one, holds the lock."""


def hold(file: int | IO[str]) -> None:
    """Take the lock of an open file.

    Raises:
        BlockingIOError: somebody else holds it, and does so for longer than a process that is going.
        OSError: its file system has no locks.
    """
    due = time.monotonic() + _GOING
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > due:
                raise
        time.sleep(0.02)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` for the block; it is made, and removed in the end.

    Where there are no POSIX locks (Windows, some network file systems) nothing is held.

    Raises:
        LockedError: somebody else holds it.
        OSError: the file cannot be made.
    """
    if fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            hold(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise LockedError(path.name) from None
        except OSError:  # a file system without locks
            os.close(descriptor)
            yield
            return
        # The holder before us may have removed it just now: then ours is no file of that name.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
