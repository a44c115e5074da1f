"""Write vectors and columns piece by piece; the file appears complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError
from vecveil.io import PRIVATE, atomic_path, expanded
from vecveil.texts.tables.binary_formats import METADATA_KEY
from vecveil.texts.tables.columns import ColumnType, arrow_column, arrow_type, check_lengths, import_pyarrow
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

GROUP_ROWS = 65_536
GROUP_BYTES = 1 << 25
OUTPUT_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".npy": "npy"}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NotWrittenError(DataFileError):
    """The output cannot be written, for any input: a full disk, a folder without permission."""


class EmbeddingWriter(ABC):
    """Appends vectors (N, n) with other columns.

    Args:
        types: the other columns with their types, in the order of the file.
        metadata: JSON values about the protection.
        file: opened by :func:`open_writer`; None for a table in memory.
    """

    def __init__(
        self,
        name: str,
        types: Mapping[str, ColumnType],
        metadata: Mapping[str, Any] | None = None,
        file: BinaryIO | None = None,
    ) -> None:
        self._name, self._file = name, file
        self._types, self._metadata = dict(types), dict(metadata or {})
        self.rows = 0
        self.dimension = 0
        self.dtype: np.dtype = np.dtype(np.float32)

    def write(self, vectors: Embeddings, columns: Mapping[str, Any] | None = None, *, owned: bool = False) -> None:
        """Append ``vectors`` (N, n) with the other columns; all calls agree on n and dtype.

        Args:
            owned: the caller never touches ``vectors`` again, so they need no copy.
        """
        vectors = check_embeddings(vectors, owner=self._name, param="vectors")
        columns = columns or {}
        if self.rows == 0:
            self.dimension, self.dtype = vectors.shape[1], vectors.dtype
        elif (vectors.shape[1], vectors.dtype) != (self.dimension, self.dtype):
            raise IncompatibleError(
                f"{self._name}: vectors of dimension {vectors.shape[1]} and {vectors.dtype} follow vectors of "
                f"dimension {self.dimension} and {self.dtype}.",
                param="vectors",
            )
        for name, values in columns.items():
            if len(values) != len(vectors):
                raise InvalidInputError(
                    f"{self._name}: the column {name!r} has {len(values)} rows for {len(vectors)} vectors.",
                    param="columns",
                )
        if set(columns) != set(self._types):
            raise InvalidInputError(
                f"{self._name}: the columns differ from the {len(self._types)} declared ones.", param="columns"
            )
        if len(vectors):
            self._append(vectors, columns, owned)
            self.rows += len(vectors)

    @abstractmethod
    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], owned: bool) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Complete the file; :func:`open_writer` calls it."""

    def abandon(self) -> None:  # noqa: B027
        """Release the file without completing it."""


class NpyWriter(EmbeddingWriter):
    """A .npy file of shape (N, n) whose header is rewritten once N is known. Vectors only."""

    _file: BinaryIO
    _header_end = 0

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], owned: bool) -> None:
        if self.rows == 0:
            self._header_end = self._write_header(0)
        self._file.write(vectors.data)

    def finish(self) -> None:
        self._file.seek(0)
        if self._write_header(self.rows) != self._header_end:
            raise DataFileError(f"{self._name}: the .npy header does not fit {self.rows} rows.")

    def _write_header(self, rows: int) -> int:
        """Write the header and return its end; NumPy leaves room for N to grow."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (rows, self.dimension),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


class ArrowWriter(EmbeddingWriter):
    """A table of the other columns, then ``embedding``: in memory, or a Parquet file in bounded row groups."""

    _parquet: Any = None
    _bytes = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._batches: list[Any] = []

    def table(self, *, dimension: int = 0, dtype: npt.DTypeLike = np.float32) -> Any:
        """Return the ``pyarrow.Table``, of ``dimension`` and ``dtype`` if it has no rows."""
        if not self.rows:
            self.dimension, self.dtype = dimension, np.dtype(dtype)
        return import_pyarrow().Table.from_batches(self._batches, self._schema)

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], owned: bool) -> None:
        pa = import_pyarrow()
        arrays = [arrow_column(columns[name], kind, self._name) for name, kind in self._types.items()]
        check_lengths(self._name, dict(zip(self._types, arrays, strict=True)))  # what is written, the reader takes
        flat = pa.array((vectors if owned else vectors.copy()).reshape(-1))
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, self.dimension))
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._bytes += self._batches[-1].nbytes
        full = self._bytes >= GROUP_BYTES or sum(map(len, self._batches)) >= GROUP_ROWS
        if full and self._file is not None:
            self._flush()

    @cached_property
    def _schema(self) -> Any:
        pa = import_pyarrow()
        fields = [pa.field(name, arrow_type(kind)) for name, kind in self._types.items()]
        fields.append(pa.field("embedding", pa.list_(pa.from_numpy_dtype(self.dtype), self.dimension)))
        about = {METADATA_KEY: json.dumps({"protected": True, **self._metadata})} if self._metadata else None
        return pa.schema(fields, metadata=about)

    def _flush(self) -> None:
        if self._parquet is None:
            # Without a dictionary for embeddings and blobs: random values do not repeat.
            repeating = [name for name, kind in self._types.items() if str(kind) != "binary"]
            self._parquet = import_pyarrow().parquet.ParquetWriter(self._file, self._schema, use_dictionary=repeating)
        if self._batches:
            group = import_pyarrow().Table.from_batches(self._batches, self._schema)
            self._parquet.write_table(group, row_group_size=GROUP_ROWS)
            self._batches.clear()
            self._bytes = 0

    def finish(self) -> None:
        self._flush()
        self._parquet.close()

    def abandon(self) -> None:
        if self._parquet is not None:
            with contextlib.suppress(Exception):
                self._parquet.close()
            # Its finaliser would otherwise try to close it again.
            self._parquet.is_open = False


def check_new_file(path: Path, *, overwrite: bool, inputs: Iterable[str | os.PathLike[str] | None] = ()) -> None:
    """Reject an output that is a folder, one of the inputs, or an existing file without ``overwrite``."""
    if path.is_dir():
        raise DataFileError(f"`output` {path.name} is a folder. Name a file.", param="output")
    if not path.exists():
        return
    if any(source is not None and os.path.exists(source) and path.samefile(source) for source in inputs):
        raise InvalidInputError(f"`output` {path.name} is one of the inputs. Choose another name.", param="output")
    if not overwrite:
        raise DataFileError(
            f"`output` {path.name} exists. Choose another name, or replace it with overwrite=True (--force).",
            param="output",
        )


def check_output(
    path: str | os.PathLike[str], *, overwrite: bool, source: str | os.PathLike[str] | None = None
) -> type[EmbeddingWriter]:
    """Return the writer for ``path``; reject other suffixes, links, existing files and the input."""
    path = expanded(path)
    kind = OUTPUT_SUFFIXES.get(path.suffix.lower())
    if kind is None:
        got = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise InvalidInputError(f"`output` {path.name} has {got}; it is named *.parquet or *.npy.", param="output")
    if path.is_symlink():
        # Also a dangling one: whoever placed the link would choose where the vectors go.
        raise DataFileError(
            f"`output` {path.name} is a symbolic link. Choose another name, or remove the link.", param="output"
        )
    check_new_file(path, overwrite=overwrite, inputs=() if source is None or os.fspath(source) == "-" else (source,))
    if kind == "parquet":
        import_pyarrow()
        return ArrowWriter
    return NpyWriter


@contextlib.contextmanager
def open_writer(
    path: str | os.PathLike[str],
    *,
    types: Mapping[str, ColumnType] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    only_new: bool = False,
    mode: int = PRIVATE,
) -> Iterator[EmbeddingWriter]:
    """Yield a writer for ``path`` (.parquet or .npy); the file appears only after a clean exit.

    Any exception, Ctrl-C included, removes the unfinished file and keeps an existing one.

    Args:
        types: the other columns with their types (Parquet only), in the order of the file.
        metadata: JSON values about the protection, stored in the Parquet schema under the key ``vecveil`` with
            ``"protected": true``.
        overwrite: replace an existing file.
        only_new: of several writers at once the first wins, and the others raise FileExistsError.
        mode: of a new file; `vecveil.io.PUBLIC` where it contains ids and protected vectors alone.

    Raises:
        DataFileError: the file exists, the folder is not writable, the disk is full, or there are no rows.
    """
    writer_class = check_output(path, overwrite=overwrite)
    target = expanded(path)
    writer: EmbeddingWriter | None = None
    raised_inside: BaseException | None = None
    try:
        with atomic_path(target, mode=mode, only_new=only_new) as temporary, open(temporary, "wb") as file:
            writer = writer_class(target.name, types or {}, metadata, file)
            try:
                try:
                    yield writer
                    if writer.rows == 0:
                        raise DataFileError(f"{target.name}: there are no rows to write.", param="path")
                except BaseException as error:
                    raised_inside = error
                    raise
                writer.finish()
            except BaseException:
                writer.abandon()
                raise
    except OSError as error:
        # Pass on an OSError of the caller's block, unless it reports a full disk.
        if error is raised_inside and error.errno not in DISK_FULL:
            raise
        if only_new and isinstance(error, FileExistsError):
            raise
        raise not_written(target.name, error, 0 if writer is None else writer.rows) from None


def not_written(name: str, error: OSError, rows: int | None = None) -> NotWrittenError:
    """Return the error for an output that the system refuses, after ``rows`` rows of a table."""
    nothing = "The unfinished file was removed; a file that was there before is unchanged."
    if error.errno in DISK_FULL:
        after = "" if rows is None else f" after {rows} rows"
        return NotWrittenError(
            f"The disk is full: `output` {name} is not written{after}. {nothing} Free some space or write to another "
            "disk.",
            param="output",
        )
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return NotWrittenError(f"Writing `output` {name} failed: {reason}. {nothing}", param="output")
