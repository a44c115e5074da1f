"""Whole columns in memory, for fitting and auditing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.data.arrow import python_values
from vecveil.data.opening import read_table
from vecveil.data.sources import missing_column, row_number
from vecveil.errors import DataFileError, message
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["TextRows", "read_texts"]


@dataclass(frozen=True, slots=True)
class TextRows:
    """Texts of a file with the columns that were asked for. Its repr shows no contents."""

    texts: list[str] = field(repr=False)
    spans: list[list[tuple[int, int, str]]] | None = field(repr=False)
    """(start, end, label) per text, checked against its length; None if no column was named."""
    labels: list[Any] | None = field(repr=False)
    embeddings: Embeddings | None = field(repr=False)
    columns: dict[str, list[Any]] = field(repr=False)
    text_column: str
    total: int
    """Rows that the file has; more than ``len(texts)`` where a limit cut it."""


def read_texts(
    path: str | os.PathLike[str],
    text_column: str | None = None,
    *,
    spans_column: str | None = None,
    labels_column: str | None = None,
    columns: Sequence[str] = (),
    embeddings: bool = False,
    embedding_column: str | None = None,
    limit: int | None = None,
    format: str | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> TextRows:
    """Return the texts of a file, at most ``limit``, with spans, labels and further columns.

    Args:
        spans_column: a list of objects with start, end and label per row (JSON lines, a Parquet
            column of structs, or JSON text in a CSV cell). Null and empty mean none.
        labels_column: any values; JSON text that holds a list is read as that list.
        columns: further columns, as Python values.
        embeddings: also return the vectors of ``embedding_column``, if the file has them.

    The other arguments are those of :func:`read_table`.
    """
    if limit is not None:
        limit = check_count(limit, owner="read_texts", param="limit")
    named = [name for name in (spans_column, labels_column) if name is not None]
    reader = read_table(
        path,
        text_column=text_column,
        embedding_column=embedding_column,
        columns=[],
        format=format,
        encoding=encoding,
        delimiter=delimiter,
    )
    if reader.text_column is None:
        raise missing_column(reader.name, "text_column", None, reader.types)
    for param, names in (
        ("spans_column", [spans_column]),
        ("labels_column", [labels_column]),
        ("columns", columns),
    ):
        for name in names:
            if name is not None and name not in reader.types:
                raise missing_column(reader.name, param, name, reader.types)
    wanted = list(dict.fromkeys([*named, *columns]))
    texts: list[str] = []
    vectors: list[Embeddings] = []
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    for chunk in reader.select(wanted, vectors=embeddings):
        take = chunk.rows if limit is None else min(chunk.rows, limit - len(texts))
        texts += (chunk.texts or [])[:take]
        if chunk.vectors is not None:
            vectors.append(chunk.vectors[:take])
        for name in wanted:
            values[name] += python_values(chunk.columns[name])[:take]
        if limit is not None and len(texts) >= limit:
            break
    return TextRows(
        texts=texts,
        spans=None if spans_column is None else _spans(values[spans_column], texts, reader.name),
        labels=None
        if labels_column is None
        else [_from_json(value) for value in values[labels_column]],
        embeddings=np.concatenate(vectors) if vectors else None,
        columns={name: values[name] for name in columns},
        text_column=reader.text_column,
        total=reader.rows,
    )


def _from_json(value: Any) -> Any:
    """Return the list that JSON text holds, and anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _spans(column: list[Any], texts: list[str], source: str) -> list[list[tuple[int, int, str]]]:
    return [
        [_span(item, len(text), index, source) for item in _span_list(value, index, source)]
        for index, (value, text) in enumerate(zip(column, texts, strict=True))
    ]


def _span_list(value: Any, index: int, source: str) -> list[Any]:
    if value is None or value == "":
        return []
    value = _from_json(value)
    if not isinstance(value, list):
        raise _wrong_span(source, index, "something else")
    return value


def _span(item: Any, length: int, index: int, source: str) -> tuple[int, int, str]:
    if isinstance(item, dict):
        item = [item.get("start"), item.get("end"), item.get("label")]
    if not isinstance(item, list | tuple) or len(item) != 3:
        raise _wrong_span(source, index, "something else")
    start, end, label = item
    for offset in (start, end):
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise _wrong_span(source, index, "an offset that is not an integer")
    if not isinstance(label, str):
        raise _wrong_span(source, index, "a label that is not a text")
    if not 0 <= start < end <= length:
        raise _wrong_span(
            source,
            index,
            f"offsets {start}:{end} in a text of {length} characters",
            "Offsets count characters, not bytes, and the end is exclusive.",
        )
    return start, end, label


def _wrong_span(source: str, index: int, got: str, why: str = "") -> DataFileError:
    return DataFileError(
        message(
            source,
            "spans_column",
            "a list of {start, end, label} in each row",
            f"{got} in {row_number(index)}",
            why,
        )
    )
