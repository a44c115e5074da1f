"""Files that are there whole or not at all: write to a temporary neighbour, then rename."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["atomic_path", "write_bytes", "write_text"]


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on a clean exit it becomes ``target``.

    The rename happens after an fsync, so that a crash leaves the old file or the new one, never
    half of one. A file that is replaced keeps its permissions, a new one gets ``mode`` less the
    umask. The temporary name starts with a dot and ends in ``.tmp``.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Shortened, so that the temporary name is no longer than a file system allows.
    temporary = target.parent / f".{target.name[:40]}.{secrets.token_hex(6)}.tmp"
    kept = stat.S_IMODE(target.stat().st_mode) if target.is_file() else None
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(temporary, flags, mode if kept is None else kept | stat.S_IWUSR))
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if kept is not None:
            temporary.chmod(kept)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(target: str | os.PathLike[str], data: bytes, *, mode: int = 0o666) -> None:
    """Write ``data`` to ``target`` atomically; see `atomic_path`."""
    with atomic_path(target, mode=mode) as temporary:
        temporary.write_bytes(data)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``target`` as UTF-8, atomically."""
    write_bytes(target, text.encode("utf-8"))
