"""Files that are there whole or not at all: write to a temporary neighbour, then rename."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["atomic_path", "write_bytes", "write_text"]


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on a clean exit it becomes ``target``, else it is removed.

    The rename happens after an fsync, so that a crash leaves the old file or the new one, never half
    of one. The temporary name starts with a dot and ends in ``.tmp``.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(target: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``target`` atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(data)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``target`` as UTF-8, atomically."""
    write_bytes(target, text.encode("utf-8"))
