"""Writing vectors piece by piece; the file appears when it is complete, or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vecveil.atomic import atomic_path
from vecveil.checks import check_embeddings
from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError, message
from vecveil.tables.arrow import arrow_column, arrow_type, import_pyarrow
from vecveil.tables.formats import not_usable
from vecveil.tables.parquet import METADATA_KEY
from vecveil.tables.sources import ColumnType
from vecveil.types import Embeddings

__all__ = ["EmbeddingWriter", "NpyWriter", "ParquetWriter", "check_output", "open_writer"]

OUTPUT_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".npy": "npy"}
GROUP_ROWS = 65_536
GROUP_BYTES = 1 << 26
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class EmbeddingWriter(ABC):
    """Appends vectors to a file that :func:`open_writer` has opened."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        types: Mapping[str, ColumnType],
        metadata: Mapping[str, Any],
    ) -> None:
        self._file, self._name = file, name
        self._types, self._metadata = dict(types), dict(metadata)
        self.rows = 0
        self.dimension = 0
        self.dtype: np.dtype = np.dtype(np.float32)

    def write(self, vectors: Embeddings, columns: Mapping[str, Any] | None = None) -> None:
        """Append ``vectors`` (N, n) with the other columns; all calls agree on n and dtype."""
        vectors = check_embeddings(vectors, owner=self._name, param="vectors")
        columns = columns or {}
        if self.rows == 0:
            self.dimension, self.dtype = vectors.shape[1], vectors.dtype
        elif (vectors.shape[1], vectors.dtype) != (self.dimension, self.dtype):
            raise IncompatibleError(
                message(
                    self._name,
                    "vectors",
                    f"of dimension {self.dimension} and {self.dtype} like those before",
                    f"dimension {vectors.shape[1]} and {vectors.dtype}",
                )
            )
        for name, values in columns.items():
            if len(values) != len(vectors):
                raise InvalidInputError(
                    message(
                        self._name,
                        "columns",
                        f"of the {len(vectors)} rows of the vectors",
                        f"{len(values)} rows in {name!r}",
                    )
                )
        if set(columns) != set(self._types):
            raise InvalidInputError(
                message(
                    self._name,
                    "columns",
                    f"the {len(self._types)} columns declared",
                    f"{len(columns)} others",
                )
            )
        if len(vectors) == 0:
            return
        self._append(vectors, columns)
        self.rows += len(vectors)

    @abstractmethod
    def _append(self, vectors: Embeddings, columns: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Write what completes the file; :func:`open_writer` calls it."""

    def abandon(self) -> None:  # noqa: B027 (most writers hold nothing)
        """Let go of the file without completing it."""


class NpyWriter(EmbeddingWriter):
    """A .npy file of shape (N, n) whose header is written again once N is known. Vectors only."""

    _header = 0

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any]) -> None:
        if self.rows == 0:
            self._header = self._write_header(0)
        self._file.write(vectors.data)

    def finish(self) -> None:
        self._file.seek(0)
        if self._write_header(self.rows) != self._header:
            raise DataFileError(f"{self._name}: the .npy header does not fit {self.rows} rows.")

    def _write_header(self, rows: int) -> int:
        """Write the header and return where it ends; NumPy leaves room for N to grow."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (rows, self.dimension),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


class ParquetWriter(EmbeddingWriter):
    """A Parquet file: the other columns, then ``embedding``, in row groups of bounded size."""

    _writer: Any = None
    _waiting: list[Any]
    _bytes = 0

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any]) -> None:
        pa = import_pyarrow()
        if self._writer is None:
            self._waiting = []
            self._start()
        # A copy, as the caller may reuse its array before the row group is full.
        flat = pa.array(vectors.reshape(-1).copy())
        arrays = [
            arrow_column(columns[name], kind, self._name) for name, kind in self._types.items()
        ]
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, self.dimension))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES or sum(map(len, self._waiting)) >= GROUP_ROWS:
            self._flush()

    def _start(self) -> None:
        pa = import_pyarrow()
        fields = [pa.field(name, arrow_type(kind)) for name, kind in self._types.items()]
        fields.append(
            pa.field("embedding", pa.list_(pa.from_numpy_dtype(self.dtype), self.dimension))
        )
        about = json.dumps({"protected": True, **self._metadata}) if self._metadata else None
        self._schema = pa.schema(fields, metadata={METADATA_KEY: about} if about else None)
        self._writer = pa.parquet.ParquetWriter(
            self._file, self._schema, use_dictionary=list(self._types)
        )

    def _flush(self) -> None:
        pa = import_pyarrow()
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self._bytes = [], 0
            self._writer.write_table(table, row_group_size=GROUP_ROWS)

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
            self._writer.is_open = False


def check_output(
    path: str | os.PathLike[str], *, overwrite: bool, source: str | os.PathLike[str] | None = None
) -> type[EmbeddingWriter]:
    """Return the writer for ``path``; refuses other suffixes, links, existing files and the input."""
    path = Path(path)
    kind = OUTPUT_SUFFIXES.get(path.suffix.lower())
    if kind is None:
        got = f"the suffix {path.suffix!r}" if path.suffix else "a name without a suffix"
        raise InvalidInputError(
            message(path.name, "output", "a file named *.parquet or *.npy", got)
        )
    if path.is_dir():
        raise not_usable(path.name, "a file", "a folder")
    if (
        path.exists()
        and source is not None
        and os.fspath(source) != "-"
        and Path(source).exists()
        and path.samefile(source)
    ):
        raise InvalidInputError(
            message(
                path.name,
                "output",
                "another file than the input",
                "the input itself",
                fix="Choose another name.",
            )
        )
    if path.is_symlink():
        # Also one that leads nowhere: whoever placed it could choose where the vectors go.
        raise DataFileError(
            message(
                path.name,
                "output",
                "a file of its own",
                "a symbolic link",
                fix="Choose another name, or remove the link.",
            )
        )
    if path.exists() and not overwrite:
        raise DataFileError(
            message(
                path.name,
                "output",
                "a file that does not exist yet",
                "one that exists",
                fix="Choose another name, or replace it with overwrite=True (--force).",
            )
        )
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
) -> Iterator[EmbeddingWriter]:
    """Yield a writer for ``path`` (.parquet or .npy); the file is there after a clean exit only.

    On any exception, Ctrl-C included, the unfinished file is removed and an existing one stays.

    Args:
        types: the other columns with their types (Parquet only), in the order of the file.
        metadata: JSON values about the protection, kept in the Parquet schema under the key
            ``vecveil`` together with ``"protected": true``.
        overwrite: replace an existing file.

    Raises:
        DataFileError: the file exists, the folder cannot be written, the disk is full, or nothing
            was written.
    """
    writer_class = check_output(path, overwrite=overwrite)
    target = Path(path)
    failed: BaseException | None = None
    rows = 0
    try:
        with atomic_path(target) as temporary, open(temporary, "wb") as file:
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
        raise _cannot_write(target.name, error, rows) from None


def _cannot_write(name: str, error: OSError, rows: int) -> DataFileError:
    nothing = "The unfinished file was removed; a file that was there before is unchanged."
    if error.errno in _FULL:
        return DataFileError(
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
    return DataFileError(
        message(
            name, "output", "in a folder that you may write to", f"the error {reason!r}", nothing
        )
    )
