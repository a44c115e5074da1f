"""Writers: vectors with other columns, piece by piece, to a file or to a table in memory."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from vecveil.data.arrow import arrow_column, arrow_type, import_pyarrow
from vecveil.data.parquet import METADATA_KEY
from vecveil.data.sources import ColumnType
from vecveil.errors import DataFileError, IncompatibleError, InvalidInputError
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

__all__ = ["ArrowWriter", "EmbeddingWriter", "FileWriter", "NpyWriter", "ParquetWriter"]

GROUP_ROWS = 65_536
GROUP_BYTES = 1 << 25


class EmbeddingWriter(ABC):
    """Appends vectors (N, n) with other columns.

    Args:
        name: of the file, for messages.
        types: the other columns with their types, in the order of the file.
        metadata: JSON values about the protection.
    """

    def __init__(
        self, name: str, types: Mapping[str, ColumnType], metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._name = name
        self._types, self._metadata = dict(types), dict(metadata or {})
        self.rows = 0
        self.dimension = 0
        self.dtype: np.dtype = np.dtype(np.float32)

    def write(
        self,
        vectors: Embeddings,
        columns: Mapping[str, Any] | None = None,
        *,
        given_away: bool = False,
    ) -> None:
        """Append ``vectors`` (N, n) with the other columns; all calls agree on n and dtype.

        Args:
            given_away: the caller never touches ``vectors`` again, so that they need no copy.
        """
        vectors = check_embeddings(vectors, owner=self._name, param="vectors")
        columns = columns or {}
        if self.rows == 0:
            self.dimension, self.dtype = vectors.shape[1], vectors.dtype
        elif (vectors.shape[1], vectors.dtype) != (self.dimension, self.dtype):
            raise IncompatibleError.of(self._name, "vectors",
                                       f"of dimension {self.dimension} and {self.dtype} like those before",
                                       f"dimension {vectors.shape[1]} and {vectors.dtype}")  # fmt: skip
        for name, values in columns.items():
            if len(values) != len(vectors):
                raise InvalidInputError.of(self._name, "columns", f"of the {len(vectors)} rows of the vectors",
                                           f"{len(values)} rows in {name!r}")  # fmt: skip
        if set(columns) != set(self._types):
            raise InvalidInputError.of(self._name, "columns", f"the {len(self._types)} columns declared",
                                       f"{len(columns)} others")  # fmt: skip
        if len(vectors) == 0:
            return
        self._append(vectors, columns, given_away)
        self.rows += len(vectors)

    @abstractmethod
    def _append(
        self, vectors: Embeddings, columns: Mapping[str, Any], given_away: bool
    ) -> None: ...


class FileWriter(EmbeddingWriter):
    """Appends to a file that :func:`open_writer` has opened."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        types: Mapping[str, ColumnType],
        metadata: Mapping[str, Any],
    ) -> None:
        super().__init__(name, types, metadata)
        self._file = file

    @abstractmethod
    def finish(self) -> None:
        """Write what completes the file; :func:`open_writer` calls it."""

    def abandon(self) -> None:
        """Let go of the file without completing it."""


class NpyWriter(FileWriter):
    """A .npy file of shape (N, n) whose header is written again once N is known. Vectors only."""

    _header = 0

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], given_away: bool) -> None:
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


class _ArrowBatches:
    """Record batches of the other columns, then ``embedding``."""

    def __init__(
        self,
        types: Mapping[str, ColumnType],
        metadata: Mapping[str, Any],
        dimension: int,
        dtype: np.dtype,
    ) -> None:
        pa = import_pyarrow()
        self._types, self._dimension = types, dimension
        fields = [pa.field(name, arrow_type(kind)) for name, kind in types.items()]
        fields.append(pa.field("embedding", pa.list_(pa.from_numpy_dtype(dtype), dimension)))
        about = json.dumps({"protected": True, **metadata}) if metadata else None
        self.schema = pa.schema(fields, metadata={METADATA_KEY: about} if about else None)

    def of(self, vectors: Embeddings, columns: Mapping[str, Any], source: str) -> Any:
        """Return a batch; it refers to ``vectors``, which must not change."""
        pa = import_pyarrow()
        arrays = [arrow_column(columns[name], kind, source) for name, kind in self._types.items()]
        flat = pa.array(vectors.reshape(-1))
        arrays.append(pa.FixedSizeListArray.from_arrays(flat, self._dimension))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class ArrowWriter(EmbeddingWriter):
    """A table in memory."""

    _batches: _ArrowBatches | None = None

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], given_away: bool) -> None:
        if self._batches is None:
            self._batches = _ArrowBatches(self._types, self._metadata, self.dimension, self.dtype)
            self._written: list[Any] = []
        self._written.append(
            self._batches.of(vectors if given_away else vectors.copy(), columns, self._name)
        )

    def table(self, *, dimension: int, dtype: np.dtype) -> Any:
        """Return the ``pyarrow.Table``; of ``dimension`` and ``dtype`` if no row was written."""
        pa = import_pyarrow()
        if self._batches is not None:
            return pa.Table.from_batches(self._written, self._batches.schema)
        schema = _ArrowBatches(self._types, self._metadata, dimension, dtype).schema
        return schema.empty_table()


class ParquetWriter(FileWriter):
    """A Parquet file: the other columns, then ``embedding``, in row groups of bounded size."""

    _writer: Any = None
    _bytes = 0

    def _append(self, vectors: Embeddings, columns: Mapping[str, Any], given_away: bool) -> None:
        pa = import_pyarrow()
        if self._writer is None:
            self._waiting: list[Any] = []
            self._batches = _ArrowBatches(self._types, self._metadata, self.dimension, self.dtype)
            self._writer = pa.parquet.ParquetWriter(
                self._file, self._batches.schema, use_dictionary=list(self._types)
            )
        batch = self._batches.of(vectors if given_away else vectors.copy(), columns, self._name)
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES or sum(map(len, self._waiting)) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        pa = import_pyarrow()
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._batches.schema)
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
