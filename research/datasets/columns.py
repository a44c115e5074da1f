"""Checked columns of a table file: each value that does not fit is named by file, field and row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from research.datasets.kinds import Span
from vecveil.data import read_table
from vecveil.data.columns import missing_column, python_values, row_number
from vecveil.errors import DataFileError, message

__all__ = [
    "as_classes",
    "as_ids",
    "as_number",
    "as_spans",
    "as_splits",
    "as_texts",
    "field_error",
    "read_columns",
    "split_name",
]

_SPLITS = {"valid": "dev", "validation": "dev", "val": "dev", "development": "dev"}


def read_columns(
    path: Path,
    text: str,
    others: Sequence[str] = (),
    optional: Sequence[str] = (),
    *,
    format: str | None = None,
) -> dict[str, list[Any]]:
    """Return whole columns of a JSON lines, delimited or Parquet file.

    Args:
        text: a column of texts; a null in it is an error.
        others: columns that must be there.
        optional: columns that are left out of the result where the file has none.

    Raises:
        DataFileError: the file is missing, damaged, or lacks a column.
    """
    reader = read_table(path, text_column=text, columns=[], format=format)
    for name in others:
        if name not in reader.types:
            raise missing_column(reader.name, "columns", name, reader.types)
    wanted = [*others, *(name for name in optional if name in reader.types)]
    found: dict[str, list[Any]] = {name: [] for name in (text, *wanted)}
    for chunk in reader.select(wanted, vectors=False):
        found[text] += chunk.texts or []
        for name in wanted:
            found[name] += python_values(chunk.columns[name])
    return found


def field_error(
    source: str, field: str, constraint: str, got: object, row: int | str
) -> DataFileError:
    """Return the error for one value; ``row`` is a position from 0, or says where, as "line 3"."""
    where = row if isinstance(row, str) else row_number(row)
    return DataFileError(message(source, field, constraint, f"{got} in {where}"))


def as_texts(values: Iterable[Any], source: str, field: str) -> tuple[str, ...]:
    """Return ``values``, which must all be texts."""
    return tuple(
        value if isinstance(value, str) else _raise(source, field, "a text", value, row)
        for row, value in enumerate(values)
    )


def as_ids(values: Iterable[Any], source: str, field: str) -> tuple[str, ...]:
    """Return identifiers as texts; whole numbers are taken as well."""
    found = []
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            _raise(source, field, "an identifier", value, row)
        found.append(str(value))
    return tuple(found)


def as_number(
    value: Any, source: str, field: str, row: int | str, low: float, high: float
) -> float:
    """Return ``value`` as a float from ``low`` to ``high``; a text that spells one is taken."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        got = "something else" if math.isnan(number) else f"{number:g}"
        raise field_error(source, field, f"a number from {low:g} to {high:g}", got, row)
    return number


def as_splits(values: Iterable[Any], source: str) -> tuple[str, ...]:
    """Return the names of splits; "valid" and "validation" become "dev"."""
    return tuple(split_name(value) for value in as_texts(values, source, "split"))


def split_name(name: str) -> str:
    """Return the name that all sets share for the split ``name``."""
    return _SPLITS.get(name.lower(), name.lower())


def as_classes(
    values: Iterable[Any], names: Mapping[str, str], source: str, field: str = "label"
) -> tuple[str, ...]:
    """Return the name of each class, from the key (such as "1") that the file has for it."""
    found = []
    for row, value in enumerate(values):
        key = str(value)
        if isinstance(value, bool) or key not in names:
            _raise(source, field, f"one of {', '.join(names)}", value, row)
        found.append(names[key])
    return tuple(found)


def as_spans(
    values: Iterable[Any], texts: Sequence[str], source: str, field: str = "spans"
) -> tuple[tuple[Span, ...], ...]:
    """Return the spans of each text, from lists of objects with start, end and label."""
    found = []
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        if value is not None and not isinstance(value, list):
            _raise(source, field, "a list", value, row)
        found.append(tuple(_span(item, text, source, field, row) for item in value or ()))
    return tuple(found)


def _span(item: Any, text: str, source: str, field: str, row: int) -> Span:
    parts = item if isinstance(item, dict) else {}
    start, end, label = parts.get("start"), parts.get("end"), parts.get("label")
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        _raise(source, field, "objects with start, end and label", item, row)
    if not 0 <= start < end <= len(text):
        got = f"offsets {start}:{end} in a text of {len(text)} characters"
        raise field_error(source, field, "inside the text", got, row)
    return {"start": start, "end": end, "label": label}


def _raise(source: str, field: str, constraint: str, value: Any, row: int | str) -> NoReturn:
    got = "nothing" if value is None else f"another {type(value).__name__}"
    raise field_error(source, field, constraint, got, row)
