"""One process at a time: a lock of the operating system, which goes when the process does, however it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LockedError", "exclusive"]


class LockedError(Exception):
    """Another process, or another thread of this one, holds the lock."""


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` for the block; it is made, and removed in the end.

    Where there are no POSIX locks (Windows, some network file systems) nothing is held.

    Raises:
        LockedError: somebody else holds it.
        OSError: the file cannot be made.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
