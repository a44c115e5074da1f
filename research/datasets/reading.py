"""Read checked columns, lines and records; errors name file, field and row."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from research.datasets.kinds import MarkedSpan, TextSet, group_ids
from vecveil.errors import DataFileError
from vecveil.texts.tables import read_table
from vecveil.texts.tables.columns import missing_column, python_values, row_number
from vecveil.texts.tables.files import LONGEST, find_input, read_lines

_SPLITS = {"valid": "dev", "validation": "dev", "val": "dev", "development": "dev"}


def read_columns(
    path: Path, text: str, others: Sequence[str] = (), optional: Sequence[str] = (), *, format: str | None = None
) -> dict[str, list[Any]]:
    """Return whole columns of a JSON lines, delimited or Parquet file.

    Args:
        text: column of texts; null is an error.
        others: required columns.
        optional: columns to read where the file has them.

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


def field_error(source: str, field: str, expected: str, found: object, row: int | str) -> DataFileError:
    """Return the error for one value; ``row`` is a position from 0, or a place such as "line 3"."""
    where = row if isinstance(row, str) else row_number(row)
    after = f", found {found}" if found != "" else ""
    return DataFileError(f"{source}: `{field}` in {where}: expected {expected}{after}.", param=field)


class Wrong(Protocol):
    """Returns the error for a field of one line or record."""

    def __call__(self, field: str, expected: str, found: object = "", /) -> DataFileError: ...


def _wrong_at(source: str, where: str) -> Wrong:
    def wrong(field: str, expected: str, found: object = "", /) -> DataFileError:
        return field_error(source, field, expected, found, where)

    return wrong


def as_texts(values: Iterable[Any], source: str, field: str) -> tuple[str, ...]:
    return tuple(
        value if isinstance(value, str) else _raise(source, field, "a text", value, row)
        for row, value in enumerate(values)
    )


def as_ids(values: Iterable[Any], source: str, field: str) -> tuple[str, ...]:
    """Return identifiers as texts; whole numbers are accepted."""
    found = []
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            _raise(source, field, "an identifier", value, row)
        found.append(str(value))
    return tuple(found)


def as_number(value: Any, source: str, field: str, row: int, low: float, high: float) -> float:
    """Return a table value, a number or its text, as a float from ``low`` to ``high``."""
    given = value if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return number_in(given, field, _wrong_at(source, row_number(row)), low, high)


def number_in(value: Any, field: str, wrong: Wrong, low: float, high: float) -> float:
    """Return a field of a line as a float from ``low`` to ``high``."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        got = "" if math.isnan(number) else f"{number:g}"
        raise wrong(field, f"a number from {low:g} to {high:g}", got)
    return number


def as_splits(values: Iterable[Any], source: str) -> tuple[str, ...]:
    """Return the names of splits; "valid" and "validation" become "dev"."""
    return tuple(split_name(value) for value in as_texts(values, source, "split"))


def split_name(name: str) -> str:
    return _SPLITS.get(name.lower(), name.lower())


def as_classes(values: Iterable[Any], names: Mapping[str, str], source: str, field: str = "label") -> tuple[str, ...]:
    """Return the class name of each value, such as that of "1"."""
    return tuple(
        names[str(value)]
        if str(value) in names and not isinstance(value, bool)
        else _raise(source, field, f"one of {', '.join(names)}", value, row)
        for row, value in enumerate(values)
    )


def as_spans(
    values: Iterable[Any], texts: Sequence[str], source: str, field: str = "spans"
) -> tuple[tuple[MarkedSpan, ...], ...]:
    """Return the spans of each text, from lists of objects with start, end and label."""
    found = []
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        if value is not None and not isinstance(value, list):
            _raise(source, field, "a list", value, row)
        found.append(tuple(_span(item, text, source, field, row) for item in value or ()))
    return tuple(found)


def _span(item: Any, text: str, source: str, field: str, row: int) -> MarkedSpan:
    parts = item if isinstance(item, dict) else {}
    start, end, label = parts.get("start"), parts.get("end"), parts.get("label")
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        _raise(source, field, "objects with start, end and label", item, row)
    if not 0 <= start < end <= len(text):
        got = f"offsets {start}:{end} in a text of {len(text)} characters"
        raise field_error(source, field, "offsets inside the text", got, row)
    return {"start": start, "end": end, "label": label}


def _raise(source: str, field: str, constraint: str, value: Any, row: int | str) -> NoReturn:
    got = "nothing" if value is None else f"a {type(value).__name__}"
    raise field_error(source, field, constraint, got, row)


def lines_in(folder: Path, *names: str, encoding: str = "utf-8") -> Iterator[tuple[str, Wrong]]:
    """Yield each line of the first file that exists (also .gz), with the factory of its errors.

    Only a line feed ends a line. An empty or damaged file, or one in another encoding, raises `DataFileError`.
    """
    path = existing(folder, *names)
    if path is not None:
        lines = read_lines(find_input(path, "txt"), encoding, newline="\n")
        for number, line in enumerate(lines, start=1):
            yield line.rstrip("\r\n"), _wrong_at(path.name, f"line {number}")


def records_of(path: Path) -> Iterator[tuple[list[str], Wrong]]:
    """Yield the fields of each record of a comma-separated file, with the factory of its errors.

    Quoted fields may hold line breaks. A header is the first record.
    """
    if csv.field_size_limit() < LONGEST:
        csv.field_size_limit(LONGEST)
    file = find_input(path, "csv")
    number = 0
    try:
        for record in csv.reader(read_lines(file, "utf-8"), strict=True):
            if record:
                number += 1
                yield record, _wrong_at(path.name, f"record {number}")
    except csv.Error:
        raise DataFileError(
            f"{file.name}: record {number + 1} has a quote that does not close.", param="path"
        ) from None


def labelled(name: str, rows: Iterable[tuple[str, str, str]]) -> TextSet:
    """Return a set from (text, split, label), each row its own group."""
    texts, splits, labels = tuple(zip(*rows, strict=True)) or ((), (), ())
    return TextSet(name, texts, np.arange(len(texts)), splits, None, labels)


def existing(folder: Path, *names: str) -> Path | None:
    """Return the first existing file of ``names`` in ``folder``, also with .gz appended."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def read_text_table(
    name: str,
    folder: Path,
    *,
    file: str,
    text: str = "text",
    split: str | None = None,
    spans: str | None = None,
    label: str | None = None,
    classes: Mapping[str, str] | None = None,
    group: str | None = None,
) -> TextSet:
    """Return the texts of a table (JSON lines, CSV, TSV or Parquet; text formats also .gz).

    Args:
        text, split, spans, label, group: columns; None for a column that the table lacks. Without a group each row is
            its own.
        classes: class names by value of the label column; None keeps its texts.
    """
    path = folder / file
    named = [column for column in (split, spans, label, group) if column is not None]
    rows = read_columns(path, text, [*named])
    labels = None
    if label is not None:
        found = rows[label]
        labels = as_texts(found, path.name, label) if classes is None else as_classes(found, classes, path.name, label)
    return TextSet(
        name=name,
        texts=tuple(rows[text]),
        groups=np.arange(len(rows[text])) if group is None else group_ids(rows[group]),
        split=None if split is None else as_splits(rows[split], path.name),
        spans=None if spans is None else as_spans(rows[spans], rows[text], path.name, spans),
        labels=labels,
    )


def read_split_tables(
    name: str, folder: Path, *, files: Mapping[str, str], text: str, label: str | None = None
) -> TextSet:
    """Return the texts of one table per split; ``files`` maps splits to files, missing files are skipped."""
    parts = []
    for split, file in files.items():
        if (folder / file).is_file():
            part = read_text_table(name, folder, file=file, text=text, label=label)
            parts.append(replace(part, split=(split,) * len(part.texts)))
    return joined(name, parts)


def joined(name: str, sets: Sequence[TextSet]) -> TextSet:
    """Return the rows of all ``sets``, which hold the same columns, one set after the other."""
    groups, first = [], 0
    for part in sets:
        groups.append(part.groups + first)
        first += int(part.groups.max()) + 1
    with_split = all(part.split is not None for part in sets)
    with_spans = all(part.spans is not None for part in sets)
    with_labels = all(part.labels is not None for part in sets)
    return TextSet(
        name=name,
        texts=tuple(text for part in sets for text in part.texts),
        groups=np.concatenate(groups),
        split=tuple(x for part in sets for x in part.split or ()) if with_split else None,
        spans=tuple(x for part in sets for x in part.spans or ()) if with_spans else None,
        labels=tuple(x for part in sets for x in part.labels or ()) if with_labels else None,
    )
