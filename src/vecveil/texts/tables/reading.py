"""Read a table in chunks, or its texts at once, with one schema for all formats."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.texts.tables.binary_formats import MemoryAccount, NpySource, ParquetSource
from vecveil.texts.tables.columns import (
    ColumnType,
    TableSource,
    is_text,
    is_word,
    missing_column,
    python_values,
    row_number,
    vector_width,
    vectors_from_arrow,
)
from vecveil.texts.tables.files import InputFile, find_input
from vecveil.texts.tables.text_formats import DelimitedSource, JsonLinesSource, TextLinesSource
from vecveil.types import Embeddings
from vecveil.validation import check_count

EMBEDDING, TEXT = "embedding", "text"
CHUNK_ROWS = 16_384
CHUNK_BYTES = 1 << 25
TEXT_CHUNK_ROWS = 2_048


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table. Its repr shows no contents."""

    first_row: int
    """Position of its first row in the file, from 0."""
    rows: int
    texts: list[str] | None = field(repr=False)
    vectors: Embeddings | None = field(repr=False)
    columns: Mapping[str, Any] = field(repr=False)
    """The other columns: lists (text formats) or pyarrow arrays (Parquet)."""


@dataclass(frozen=True)
class TableFormat:
    """Options for reading a table. The functions that read one take the fields as keyword arguments.

    Attributes:
        text_column: None takes ``text``, or the only column; of CSV and TSV only if its name is a single word, because
            without a header it would be the first text.
        embedding_column: None takes the column ``embedding`` of Parquet or JSON lines if it contains lists of numbers.
        format: csv, tsv, jsonl, txt, parquet or npy; None goes by the suffix.
        encoding: of text formats.
        delimiter: of CSV; None chooses among ``,``, ``;`` and tab by the header.
        max_memory: bytes of a chunk's decoded Parquet columns, of `read_texts` of all that it returns; None is the
            smaller of 1 GiB and a quarter of the machine's memory.
    """

    text_column: str | None = None
    embedding_column: str | None = None
    format: str | None = None
    encoding: str = "utf-8"
    delimiter: str | None = None
    max_memory: int | None = None

    def source(self, path: str | os.PathLike[str] | InputFile) -> TableSource:
        """Return the columns of the table at ``path``."""
        file = path if isinstance(path, InputFile) else find_input(path, self.format)
        match file.format:
            case "csv" | "tsv":
                return DelimitedSource(file, self.encoding, self.delimiter)
            case "jsonl":
                return JsonLinesSource(file, self.encoding)
            case "txt":
                return TextLinesSource(file, self.encoding)
            case "parquet":
                return ParquetSource(file, max_memory=self.max_memory)
            case _:
                return NpySource(file)


class TableReader:
    """A checked table file. Iterate over it for chunks, any number of times.

    Attributes:
        name: the file's name in messages.
        format: csv, tsv, jsonl, txt, parquet or npy.
        types: column name to type: a pyarrow type, or "string", "int64", "float64", "bool_", "json", "vector".
        text_column, embedding_column, dimension: None for a file without texts or without vectors.
        others: the further columns in chunks.
        metadata: vecveil's metadata of a protected Parquet file, else empty.
    """

    def __init__(
        self,
        source: TableSource,
        form: TableFormat,
        *,
        columns: Sequence[str] | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        self._source = source
        self.name, self.format, self.rows = source.name, source.format, source.rows
        self.types: dict[str, ColumnType] = dict(source.types)
        self.metadata = dict(source.metadata)
        self.embedding_column = self._find_embedding(form.embedding_column)
        self.text_column = self._find_text(form.text_column)
        roles = (self.text_column, self.embedding_column)
        if columns is None:
            columns = [name for name in self.types if name not in roles]
        self._check_columns("columns", columns)
        self.others = tuple(dict.fromkeys(columns))
        self.dimension = self._find_dimension()
        if chunk_rows is not None:
            self.chunk_rows = chunk_rows
        elif self.dimension is None:
            self.chunk_rows = TEXT_CHUNK_ROWS
        else:
            self.chunk_rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * self.dimension)))

    def __repr__(self) -> str:
        return f"TableReader(name={self.name!r}, format={self.format!r}, rows={self.rows})"

    def __iter__(self) -> Iterator[Chunk]:
        text, embedding = self.text_column, self.embedding_column
        roles = [name for name in (text, embedding) if name is not None]
        first = self._source.first_row
        for rows, batch in self._source.batches(tuple(dict.fromkeys([*roles, *self.others])), self.chunk_rows):
            texts = None if text is None else self._texts(batch[text], first)
            vectors = None if embedding is None else self._vectors(batch[embedding], first)
            yield Chunk(first, rows, texts, vectors, {name: batch[name] for name in self.others})
            first += rows

    def select(self, columns: Sequence[str], *, texts: bool = True, vectors: bool = True) -> TableReader:
        """Return a reader of the same file whose chunks hold ``columns``, and texts and vectors on request."""
        other = copy.copy(self)
        other.others = tuple(columns)
        other.text_column = self.text_column if texts else None
        other.embedding_column = self.embedding_column if vectors else None
        return other

    def in_chunks(self, rows: int) -> TableReader:
        other = copy.copy(self)
        other.chunk_rows = rows
        return other

    def _check_columns(self, param: str, names: Sequence[str | None]) -> None:
        for name in names:
            if name is not None and name not in self.types:
                raise missing_column(self.name, param, name, self.types)

    def _find_embedding(self, name: str | None) -> str | None:
        if name is None:
            return EMBEDDING if EMBEDDING in self.types and self._holds_vectors(EMBEDDING) else None
        self._check_columns("embedding_column", [name])
        if not self._holds_vectors(name):
            raise DataFileError(
                f"{self.name}: the column {name!r} has the type {self.types[name]}, not lists of float32 or "
                "float64. Vectors are read from Parquet, .npy or JSON lines (lists of one length in every row).",
                param="embedding_column",
            )
        return name

    def _holds_vectors(self, name: str) -> bool:
        kind = self.types[name]
        return kind == "vector" if isinstance(kind, str) else vector_width(kind) is not None

    def _find_text(self, name: str | None) -> str | None:
        if name is not None:
            self._check_columns("text_column", [name])
            if not is_text(self.types[name]):
                raise DataFileError(
                    f"{self.name}: the column {name!r} has the type {self.types[name]}, not text.", param="text_column"
                )
            return name
        if TEXT in self.types and is_text(self.types[TEXT]):
            return TEXT
        if self.embedding_column is not None:
            return None
        names = list(self.types)
        # Without a header, the only "name" of a delimited file is its first text.
        has_header = self.format not in ("csv", "tsv") or is_word(names[0])
        if len(names) == 1 and has_header and is_text(self.types[names[0]]):
            return names[0]
        raise missing_column(self.name, "text_column", None, names)

    def _find_dimension(self) -> int | None:
        if self.embedding_column is None:
            return None
        width = vector_width(self.types[self.embedding_column])
        if width:
            return width
        # Elsewhere the first row gives the dimension; later rows are compared with it.
        for _, batch in self._source.batches((self.embedding_column,), 1):
            return int(self._array(batch[self.embedding_column], 0, None).shape[1])
        return None

    def _texts(self, values: Any, first: int) -> list[str]:
        texts = python_values(values)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                got, fix = f"a {type(text).__name__}, no text", ""
                if text is None:
                    got, fix = "null", f" Drop such rows, with dropna(subset=[{self.text_column!r}]) of pandas."
                raise DataFileError(
                    f"{self.name}: {row_number(first + i)} of `text_column` has {got}.{fix}", param="text_column"
                )
        return texts

    def _vectors(self, values: Any, first: int) -> Embeddings:
        vectors = self._array(values, first, self.dimension)
        # A finite sum proves all values finite, without an array of flags; the exact test runs otherwise.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(vectors.sum(dtype=np.float64)):
                return vectors
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            param = "embeddings" if self.format == "npy" else "embedding_column"
            raise DataFileError(
                f"{self.name}: `{param}` has NaN or infinity in {bad.size} of the first {first + len(vectors)} rows; "
                f"the first is {row_number(first + int(bad[0]))}. Drop or repair them.",
                param=param,
            )
        return vectors

    def _array(self, values: Any, first: int, dimension: int | None) -> Embeddings:
        if isinstance(values, np.ndarray):
            return values
        if isinstance(values, list):
            with np.errstate(over="ignore"):  # becomes infinity, which is refused
                return np.array(values, np.float64).astype(np.float32)
        return vectors_from_arrow(
            values, source=self.name, column=str(self.embedding_column), first_row=first, dimension=dimension
        )


def read_table(
    path: str | os.PathLike[str] | InputFile,
    *,
    columns: Sequence[str] | None = None,
    chunk_rows: int | None = None,
    **form: Any,
) -> TableReader:
    """Return a checked reader of the table at ``path``, which yields it in chunks of bounded size.

    Opening a text file reads it once, so that a broken row fails before any work starts.

    Args:
        path: CSV, TSV, JSON lines or text lines (also gzipped), Parquet or .npy; ``-`` is standard input (text formats,
            held in memory).
        columns: the further columns in chunks; None takes all.
        chunk_rows: largest number of rows of a chunk; None chooses by size.
        form: fields of `TableFormat`.

    Raises:
        DataFileError: the file is missing, empty, damaged, in a different encoding, or lacks a column.
        MemoryLimitError: decoded rows exceed ``max_memory`` (code ``E-MEMORY-TABLE``).
        InvalidInputError: the suffix is not known.
    """
    table = TableFormat(**form)
    if chunk_rows is not None:
        chunk_rows = check_count(chunk_rows, owner="read_table", param="chunk_rows")
    return TableReader(table.source(path), table, columns=columns, chunk_rows=chunk_rows)


@dataclass(frozen=True, slots=True)
class TextRows:
    """Texts of a file with the requested columns. Its repr shows no contents."""

    texts: list[str] = field(repr=False)
    embeddings: Embeddings | None = field(repr=False)
    columns: dict[str, list[Any]] = field(repr=False)
    text_column: str


def read_texts(
    path: str | os.PathLike[str],
    text_column: str | None = None,
    *,
    columns: Sequence[str] = (),
    embeddings: bool = False,
    limit: int | None = None,
    **form: Any,
) -> TextRows:
    """Return the texts of a file, at most ``limit``, with further columns.

    Args:
        columns: further columns, as Python values.
        embeddings: also return the vectors of ``embedding_column``, if the file has them.
        form: further fields of `TableFormat`.
    """
    if limit is not None:
        limit = check_count(limit, owner="read_texts", param="limit")
    reader = read_table(path, text_column=text_column, columns=[], **form)
    if reader.text_column is None:
        raise missing_column(reader.name, "text_column", None, reader.types)
    reader._check_columns("columns", columns)
    account = MemoryAccount(reader.name, form.get("max_memory"))
    texts: list[str] = []
    vectors: list[Embeddings] = []
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for chunk in reader.select(tuple(values), vectors=embeddings):
        take = chunk.rows if limit is None else min(chunk.rows, limit - len(texts))
        # Counted before the lists grow: the limit covers all chunks together.
        account.add(chunk.texts, *chunk.columns.values())
        texts += (chunk.texts or [])[:take]
        if chunk.vectors is not None:
            account.add(chunk.vectors)
            vectors.append(chunk.vectors[:take])
        for name in values:
            values[name] += python_values(chunk.columns[name])[:take]
        if limit is not None and len(texts) >= limit:
            break
    return TextRows(
        texts=texts,
        embeddings=np.concatenate(vectors) if vectors else None,
        columns=values,
        text_column=reader.text_column,
    )


def read_corpus(path: str | os.PathLike[str] | None, *, param: str) -> tuple[str, ...]:
    """Return the texts of a file that holds nothing else, without blank ones; none without a file.

    Raises:
        DataFileError, InvalidInputError: the file cannot be read or has no text; they name the argument ``param``.
    """
    if path is None:
        return ()
    name = Path(path).name
    try:
        texts = tuple(text for text in read_texts(path).texts if text.strip())
    except (DataFileError, InvalidInputError) as error:
        words = str(error)
        # Other settings of the format are those of the main table, not of this file.
        if isinstance(error, InvalidInputError):
            words = f"{name} has none of the suffixes *.txt (one text a line), *.csv, *.tsv, *.jsonl and *.parquet."
        elif error.param == "text_column":
            words = f"{name} needs a column `text` that has a text in every row, or one text a line in a file *.txt."
        raise type(error)(f"`{param}`: {words}", code=error.code, param=param) from None
    if not texts:
        raise DataFileError(f"`{param}`: {name} has no text.", param=param)
    return texts
