"""Where commands write: nothing is replaced unasked, and a full disk is one clear error."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from vecveil.errors import DataFileError, InvalidInputError

__all__ = ["check_new_file", "writing"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_new_file(output: Path, *, force: bool, inputs: tuple[Path | None, ...] = ()) -> None:
    """Refuse an output that is a folder, one of the inputs, or there already without ``force``."""
    if output.is_dir():
        raise DataFileError.of(output.name, "output", "a file", "a folder")
    if not output.exists():
        return
    if any(path is not None and path.exists() and path.samefile(output) for path in inputs):
        raise InvalidInputError.of(output.name, "output", "another file than the inputs", "one of them",
                                   fix="Choose another name.")  # fmt: skip
    if not force:
        raise DataFileError.of(output.name, "output", "a file that does not exist yet", "one that exists",
                               fix="Choose another name, or replace it with --force.")  # fmt: skip


@contextlib.contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turn what the operating system refuses inside the block into one error about ``output``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        nothing = "The unfinished file was removed; a file that was there before is unchanged."
        if error.errno in _FULL:
            raise DataFileError.of(output.name, "output", "on a disk with enough space", "a full disk", nothing,
                                   "Free some space or write to another disk.") from error  # fmt: skip
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise DataFileError.of(output.name, "output", "in a folder that you may write to",
                               f"the error {reason!r}", nothing) from error  # fmt: skip
