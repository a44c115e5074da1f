"""Which columns of a table stand in the output as they are; what may hold clean vectors does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vecveil.data.arrow import is_plain, is_text
from vecveil.data.numberlists import has_number_list
from vecveil.data.reading import EMBEDDING, TableReader
from vecveil.data.sources import ColumnType, missing_column, shown_name
from vecveil.errors import DataFileError, InvalidInputError, message

__all__ = ["Carried", "carried_columns"]

MANY_NUMBERS = 8
"""So many columns of fractions may be a vector, one value a column."""


class Carried:
    """The columns to write as they are.

    Attributes:
        types: name to type, in the order of the file.
    """

    def __init__(
        self, reader: TableReader, types: Mapping[str, ColumnType], *, chosen: bool
    ) -> None:
        self.types = dict(types)
        self._reader = reader
        self._sniffed = [
            name
            for name, kind in self.types.items()
            if not chosen and name != reader.text_column and is_text(kind)
        ]

    def of(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values to write of a chunk's columns.

        Raises:
            DataFileError: texts that nobody asked for by name are lists of numbers.
        """
        for name in self._sniffed:
            if has_number_list(columns[name]):
                raise _perhaps_vectors(self._reader, name, "lists of numbers as text")
        return {name: columns[name] for name in self.types}


def carried_columns(reader: TableReader, carry: Sequence[str] | None, keep_text: bool) -> Carried:
    """Return the columns of ``reader`` to carry; see :func:`vecveil.data.protect_table`."""
    return Carried(reader, _carried(reader, carry, keep_text), chosen=carry is not None)


def _carried(
    reader: TableReader, carry: Sequence[str] | None, keep_text: bool
) -> dict[str, ColumnType]:
    """Return the columns to write as they are, with their types, in the order of the file."""
    roles = (reader.text_column, reader.embedding_column)
    if carry is None:
        wanted = {name for name in reader.types if name not in roles}
        for name, kind in reader.types.items():
            if name in wanted and not is_plain(kind):
                what = "lists, objects or mixed values" if kind == "json" else "another type"
                raise _perhaps_vectors(reader, name, what)
        numbers = [
            name for name in reader.types if name in wanted and _is_float(reader.types[name])
        ]
        if len(numbers) >= MANY_NUMBERS:
            raise _perhaps_vectors(reader, numbers[0], f"numbers, one of {len(numbers)} such")
    else:
        wanted = set(carry)
        for name in carry:
            if name not in reader.types:
                raise missing_column(reader.name, "carry", name, reader.types)
            if name in roles and not (keep_text and name == reader.text_column):
                raise InvalidInputError(
                    message(
                        "protect_table",
                        "carry",
                        "without the text and the clean vectors",
                        repr(name),
                        fix="Keep the text with keep_text=True (--keep-text).",
                    )
                )
    if keep_text and reader.text_column is not None:
        wanted.add(reader.text_column)
    if EMBEDDING in wanted:
        raise InvalidInputError(
            message(
                "protect_table",
                "carry",
                f"without a column {EMBEDDING!r}",
                "one",
                "The protected vectors are written under that name.",
                "Rename the column.",
            )
        )
    return {name: kind for name, kind in reader.types.items() if name in wanted}


def _is_float(kind: ColumnType) -> bool:
    return str(kind) in ("float64", "double", "float", "float32", "halffloat", "float16")


def _perhaps_vectors(reader: TableReader, name: str, what: str) -> DataFileError:
    return DataFileError(
        message(
            reader.name,
            "carry",
            "columns of single numbers, texts or times",
            f"the column {shown_name(name, reader.types)} of {what}",
            "It may hold clean vectors, which would be released unprotected.",
            "Name the columns to carry with carry=[...] (--carry) if this one is harmless, or to "
            "leave it out.",
        )
    )
