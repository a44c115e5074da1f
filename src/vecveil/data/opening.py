"""From a file's name to a reader of it, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vecveil.data.delimited import DelimitedSource
from vecveil.data.formats import InputFile, find_input
from vecveil.data.jsonlines import JsonLinesSource
from vecveil.data.lines import check_encoding
from vecveil.data.npy import NpySource
from vecveil.data.parquet import ParquetSource
from vecveil.data.reading import TableReader
from vecveil.data.sources import Source
from vecveil.data.textlines import TextLinesSource
from vecveil.validation import check_count

__all__ = ["read_input", "read_table"]


def read_table(
    path: str | os.PathLike[str],
    *,
    text_column: str | None = None,
    embedding_column: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_rows: int | None = None,
    format: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> TableReader:
    """Return a checked reader of the table at ``path``, which yields it in chunks of bounded size.

    Text files are read through once here: the rows are counted and a broken one is found before any
    work starts.

    Args:
        path: CSV, TSV, JSON lines or text lines (each also gzipped), Parquet or .npy; ``-`` is
            standard input (text formats; held in memory).
        text_column: None takes ``text``, or the only column; of CSV and TSV only if its name is a
            single word, as it may be the first text of a file without a header.
        embedding_column: None takes the Parquet column ``embedding`` if it holds lists of floats.
        columns: the further columns that chunks hold; None takes all.
        chunk_rows: the most rows of a chunk; None chooses by size.
        format: csv, tsv, jsonl, txt, parquet or npy; None goes by the suffix.
        encoding: of text formats.
        delimiter: of CSV; None tells ``,``, ``;`` and tab apart by the header.

    Raises:
        DataFileError: the file is missing, empty, damaged, in another encoding, or lacks a column.
        InvalidInputError: an argument is wrong or the suffix is not known.
    """
    return read_input(
        find_input(path, format),
        text_column=text_column,
        embedding_column=embedding_column,
        columns=columns,
        chunk_rows=chunk_rows,
        encoding=encoding,
        delimiter=delimiter,
    )


def read_input(
    file: InputFile,
    source: Source | None = None,
    *,
    text_column: str | None = None,
    embedding_column: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_rows: int | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> TableReader:
    """Return a checked reader of ``file``; ``source`` reads some of its rows, None all. See `read_table`."""
    check_encoding(encoding)
    if chunk_rows is not None:
        chunk_rows = check_count(chunk_rows, owner="read_table", param="chunk_rows")
    source = _source(file, encoding, delimiter) if source is None else source
    return TableReader(
        source,
        text_column=text_column,
        embedding_column=embedding_column,
        columns=columns,
        chunk_rows=chunk_rows,
    )


def _source(file: InputFile, encoding: str, delimiter: str | None) -> Source:
    match file.format:
        case "csv" | "tsv":
            return DelimitedSource(file, encoding, delimiter)
        case "jsonl":
            return JsonLinesSource(file, encoding)
        case "txt":
            return TextLinesSource(file, encoding)
        case "parquet":
            return ParquetSource(file)
        case _:
            return NpySource(file)
