"""Writing vectors piece by piece; the file appears when it is complete, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vecveil.data.arrow import import_pyarrow
from vecveil.data.formats import not_usable
from vecveil.data.sources import ColumnType
from vecveil.data.writers import FileWriter, NpyWriter, ParquetWriter
from vecveil.errors import DataFileError, InvalidInputError, message
from vecveil.io import atomic_path

__all__ = ["NotWrittenError", "check_output", "open_writer"]

OUTPUT_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".npy": "npy"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotWrittenError(DataFileError):
    """An output cannot be written, whatever the input holds: a full disk, a folder without permission."""


def check_output(
    path: str | os.PathLike[str], *, overwrite: bool, source: str | os.PathLike[str] | None = None
) -> type[FileWriter]:
    """Return the writer for ``path``; refuses other suffixes, links, existing files and the input."""
    path = Path(path)
    kind = OUTPUT_SUFFIXES.get(path.suffix.lower())
    if kind is None:
        got = f"the suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
        raise InvalidInputError.of(path.name, "output", "a file named *.parquet or *.npy", got)
    if path.is_dir():
        raise not_usable(path.name, "a file", "a folder")
    if (
        path.exists()
        and source is not None
        and os.fspath(source) != "-"
        and Path(source).exists()
        and path.samefile(source)
    ):
        raise InvalidInputError.of(path.name, "output", "another file than the input", "the input itself",
                                   fix="Choose another name.")  # fmt: skip
    if path.is_symlink():
        # Also one that leads nowhere: whoever placed it could choose where the vectors go.
        raise DataFileError.of(path.name, "output", "a file of its own", "a symbolic link",
                               fix="Choose another name, or remove the link.")  # fmt: skip
    if path.exists() and not overwrite:
        raise DataFileError.of(path.name, "output", "a file that does not exist yet", "one that exists",
                               fix="Choose another name, or replace it with overwrite=True (--force).")  # fmt: skip
    if kind == "parquet":
        import_pyarrow()
        return ParquetWriter
    return NpyWriter


@contextlib.contextmanager
def open_writer(
    path: str | os.PathLike[str],
    *,
    types: Mapping[str, ColumnType] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    only_new: bool = False,
) -> Iterator[FileWriter]:
    """Yield a writer for ``path`` (.parquet or .npy); the file is there after a clean exit only.

    On any exception, Ctrl-C included, the unfinished file is removed and an existing one stays.

    Args:
        types: the other columns with their types (Parquet only), in the order of the file.
        metadata: JSON values about the protection, kept in the Parquet schema under the key
            ``vecveil`` together with ``"protected": true``.
        overwrite: replace an existing file.
        only_new: of several writers at once the first wins, and the others raise FileExistsError.

    Raises:
        DataFileError: the file exists, the folder cannot be written, the disk is full, or nothing
            was written.
    """
    writer_class = check_output(path, overwrite=overwrite)
    target = Path(path)
    failed: BaseException | None = None
    rows = 0
    try:
        with atomic_path(target, only_new=only_new) as temporary, open(temporary, "wb") as file:
            writer = writer_class(file, target.name, types or {}, metadata or {})
            try:
                yield writer
                if writer.rows == 0:
                    raise not_usable(target.name, "a file with rows", "none to write")
                rows = writer.rows
            except BaseException as error:
                failed = error
                rows = writer.rows
                writer.abandon()
                raise
            try:
                writer.finish()
            except BaseException:
                writer.abandon()
                raise
    except OSError as error:
        if error is failed and error.errno not in _FULL:
            raise
        if only_new and isinstance(error, FileExistsError):
            raise
        raise _cannot_write(target.name, error, rows) from None


def _cannot_write(name: str, error: OSError, rows: int) -> NotWrittenError:
    nothing = "The unfinished file was removed; a file that was there before is unchanged."
    if error.errno in _FULL:
        return NotWrittenError(
            message(
                name,
                "output",
                "on a disk with enough space",
                f"a full disk after {rows} rows",
                nothing,
                "Free some space or write to another disk.",
            )
        )
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return NotWrittenError(
        message(
            name, "output", "in a folder that you may write to", f"the error {reason!r}", nothing
        )
    )
