"""Reading a table in chunks: texts, vectors and the other columns, one schema for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.data.arrow import is_text, texts_from_arrow, vector_width, vectors_from_arrow
from vecveil.data.npy import NpySource
from vecveil.data.sources import ColumnType, Source, is_word, missing_column, row_number
from vecveil.errors import DataFileError, message
from vecveil.types import Embeddings

__all__ = ["Chunk", "TableReader"]

EMBEDDING = "embedding"
TEXT = "text"
CHUNK_ROWS = 16_384
CHUNK_BYTES = 1 << 25
TEXT_CHUNK_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table. Its repr shows no contents."""

    first_row: int
    """Position in the file of its first row, from 0."""
    rows: int
    texts: list[str] | None = field(repr=False)
    vectors: Embeddings | None = field(repr=False)
    columns: Mapping[str, Any] = field(repr=False)
    """The other columns: lists (text formats) or pyarrow arrays (Parquet)."""


class TableReader:
    """A checked table file. Iterate over it for chunks, as often as needed.

    Attributes:
        name: the file's name, as messages give it.
        format: csv, tsv, jsonl, txt, parquet or npy.
        rows: how many there are.
        types: column name to type: a pyarrow type, or "string", "int64", "float64", "bool_",
            "json", "vector".
        text_column: the column of texts, or None.
        embedding_column: the column of vectors, or None.
        dimension: of the vectors, or None.
        others: the further columns that chunks hold.
        metadata: what vecveil wrote into a protected Parquet file, else empty.
        chunk_rows: the most rows that a chunk has.
    """

    def __init__(
        self,
        source: Source,
        *,
        text_column: str | None,
        embedding_column: str | None,
        columns: Sequence[str] | None,
        chunk_rows: int | None,
    ) -> None:
        self._source = source
        self.name, self.format, self.rows = source.name, source.format, source.rows
        self.types: dict[str, ColumnType] = dict(source.types)
        self.metadata = dict(source.metadata)
        self.embedding_column = self._find_embedding(embedding_column)
        self.text_column = self._find_text(text_column)
        roles = (self.text_column, self.embedding_column)
        if columns is None:
            columns = [name for name in self.types if name not in roles]
        for name in columns:
            if name not in self.types:
                raise missing_column(self.name, "columns", name, self.types)
        self.others = tuple(dict.fromkeys(columns))
        self.dimension = self._find_dimension()
        self.chunk_rows = self._fitting() if chunk_rows is None else chunk_rows

    def __repr__(self) -> str:
        return f"TableReader(name={self.name!r}, format={self.format!r}, rows={self.rows})"

    def __iter__(self) -> Iterator[Chunk]:
        roles = [name for name in (self.text_column, self.embedding_column) if name is not None]
        first = self._source.first_row
        for rows, batch in self._source.batches(
            tuple(dict.fromkeys([*roles, *self.others])), self.chunk_rows
        ):
            texts = (
                None if self.text_column is None else self._texts(batch[self.text_column], first)
            )
            vectors = (
                None
                if self.embedding_column is None
                else self._vectors(batch[self.embedding_column], first)
            )
            yield Chunk(first, rows, texts, vectors, {name: batch[name] for name in self.others})
            first += rows

    def select(
        self, columns: Sequence[str], *, texts: bool = True, vectors: bool = True
    ) -> TableReader:
        """Return a reader of the same file whose chunks hold ``columns`` and the roles asked."""
        other: TableReader = object.__new__(TableReader)
        other.__dict__.update(self.__dict__)
        other.others = tuple(columns)
        if not texts:
            other.text_column = None
        if not vectors:
            other.embedding_column = None
        return other

    def in_chunks(self, rows: int) -> TableReader:
        """Return a reader of the same rows in chunks of at most ``rows``."""
        other = self.select(self.others)
        other.chunk_rows = rows
        return other

    def _find_embedding(self, wanted: str | None) -> str | None:
        if wanted is None:
            return EMBEDDING if EMBEDDING in self.types and self._holds_vectors(EMBEDDING) else None
        if wanted not in self.types:
            raise missing_column(self.name, "embedding_column", wanted, self.types)
        if not self._holds_vectors(wanted):
            raise DataFileError.of(self.name, "embedding_column", "a column of lists of float32 or float64",
                                   f"{wanted!r} of type {self.types[wanted]}",
                                   fix="Vectors are read from Parquet or .npy.")  # fmt: skip
        return wanted

    def _holds_vectors(self, name: str) -> bool:
        kind = self.types[name]
        return kind == "vector" if isinstance(kind, str) else vector_width(kind) is not None

    def _find_text(self, wanted: str | None) -> str | None:
        if wanted is None:
            if TEXT in self.types and is_text(self.types[TEXT]):
                return TEXT
            if self.embedding_column is not None:
                return None
            names = list(self.types)
            # The only "name" of a delimited file without a header is its first text.
            named = self.format not in ("csv", "tsv") or is_word(names[0])
            if len(names) == 1 and named and is_text(self.types[names[0]]):
                return names[0]
            raise missing_column(self.name, "text_column", None, names)
        if wanted not in self.types:
            raise missing_column(self.name, "text_column", wanted, self.types)
        if not is_text(self.types[wanted]):
            raise DataFileError.of(self.name, "text_column", "a column of texts",
                                   f"{wanted!r} of type {self.types[wanted]}")  # fmt: skip
        return wanted

    def _find_dimension(self) -> int | None:
        if self.embedding_column is None:
            return None
        if isinstance(self._source, NpySource):
            return self._source.dimension
        width = vector_width(self.types[self.embedding_column])
        if width:
            return width
        for _, batch in self._source.batches((self.embedding_column,), 1):
            return int(self._arrow_vectors(batch[self.embedding_column], 0, None).shape[1])
        return None

    def _fitting(self) -> int:
        if self.dimension is None:
            return TEXT_CHUNK_ROWS
        return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * self.dimension)))

    def _texts(self, values: Any, first: int) -> list[str]:
        texts: list[Any] = values if isinstance(values, list) else texts_from_arrow(values)
        missing = [i for i, text in enumerate(texts) if text is None]
        if missing:
            raise DataFileError(
                message(
                    self.name,
                    "text_column",
                    "a text in each row",
                    f"{len(missing)} empty (null) among the first {first + len(texts)} rows, "
                    f"the first is {row_number(first + missing[0])}",
                    fix=f"Drop these rows, with dropna(subset=[{self.text_column!r}]) of pandas.",
                )
            )
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataFileError.of(self.name, "text_column", "a text in each row",
                                       f"a {type(text).__name__} in {row_number(first + i)}")  # fmt: skip
        return texts

    def _vectors(self, values: Any, first: int) -> Embeddings:
        vectors = (
            values
            if isinstance(values, np.ndarray)
            else self._arrow_vectors(values, first, self.dimension)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(vectors.sum(dtype=np.float64)):
                return vectors
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise DataFileError(
                message(
                    self.name,
                    "embeddings",
                    "finite",
                    f"{bad.size} with NaN or infinity among the first {first + len(vectors)} rows, "
                    f"the first is {row_number(first + int(bad[0]))}",
                    fix="Drop or repair these rows.",
                )
            )
        return vectors

    def _arrow_vectors(self, values: Any, first: int, dimension: int | None) -> Embeddings:
        return vectors_from_arrow(
            values,
            source=self.name,
            column=str(self.embedding_column),
            first_row=first,
            dimension=dimension,
        )
