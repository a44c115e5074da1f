"""What every file format offers to the reader: columns with types, a row count, and batches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

from vecveil.data.formats import NoRowsError, not_usable
from vecveil.errors import DataFileError, message

__all__ = [
    "Batch",
    "ColumnType",
    "Source",
    "check_names",
    "check_rows",
    "is_word",
    "missing_column",
    "row_number",
    "shown",
    "shown_name",
]

ColumnType: TypeAlias = Any
"""A pyarrow type (Parquet), or one of "string", "int64", "float64", "bool_", "json", "vector"."""

Batch: TypeAlias = Mapping[str, Any]
"""Column name to values: a list (text formats), a pyarrow array (Parquet), an array (.npy)."""

_NAME = re.compile(r"[^\W\d][\w./:#()\-]{0,39}")
SHOWN = 20


class Source(ABC):
    """One checked file. ``batches`` starts from the first row each time it is called."""

    name: str
    format: str
    rows: int
    first_row: int = 0
    """Position in the file of the first row that is read."""
    types: dict[str, ColumnType]
    metadata: dict[str, Any]

    @abstractmethod
    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        """Yield (number of rows, the asked columns) with at most ``chunk_rows`` rows each."""


def row_number(index: int) -> str:
    """Return how messages name the row at position ``index``; a header is not a row."""
    return f"row {index + 1} (counted from 1)"


def shown(names: Iterable[str]) -> str:
    """Return a sentence that lists column names, unless they look like data.

    A file without a header has its first row of data where the names should be, and data must not
    get into a message: nothing is listed as soon as one of them is not one word.
    """
    names = list(names)
    if not names:
        return "It has no columns."
    if not all(map(is_word, names)):
        return (
            f"It has {len(names)} columns, not listed because some are not single words: "
            "check that the file starts with a header."
        )
    listed = ", ".join(repr(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"It has the columns {listed}{more}."


def is_word(name: str) -> bool:
    """Return whether ``name`` looks like a column's name rather than data."""
    return _NAME.fullmatch(name) is not None


def shown_name(name: str, names: Iterable[str]) -> str:
    """Return how messages give one of ``names``: by its place if it is not a single word."""
    return repr(name) if is_word(name) else f"at position {list(names).index(name)}"


def missing_column(
    source: str, param: str, wanted: str | None, names: Iterable[str]
) -> DataFileError:
    """Return the error for a column that is not there, with those that are and the nearest name."""
    names = list(names)
    listed = shown(names)
    lowered = {name.lower(): name for name in names}
    nearness = 0.9 if "not listed" in listed else 0.6
    close = get_close_matches((wanted or "").lower(), lowered, n=1, cutoff=nearness)
    fix = f"Did you mean {lowered[close[0]]!r}?" if close else ""
    got = "None, and none was found" if wanted is None else repr(wanted)
    if wanted is None:
        fix = fix or f"Name it with {param} (--{param.replace('_', '-')})."
    return DataFileError(message(source, param, "a column of the file", got, listed, fix))


def check_names(source: str, names: Sequence[str]) -> None:
    """Refuse column names that occur twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        listed = all(map(is_word, names))
        which = f": {', '.join(map(repr, twice[:SHOWN]))}" if listed else ""
        raise not_usable(
            source,
            "a table with different column names",
            f"{len(twice)} that occur twice{which}",
            fix="Rename them; if the first line is data, add a header line.",
        )


def check_rows(source: str, rows: int, columns: int | None = None) -> None:
    """Refuse a table without rows."""
    if rows == 0:
        got = (
            "an empty one"
            if columns is None
            else f"one with a header ({columns} columns) and no rows"
        )
        raise NoRowsError.of(source, "path", "a table with rows", got)
