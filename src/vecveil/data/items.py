"""What the rows of a table are: their ids, for noise that repeats and for ledgers, and their texts."""

from __future__ import annotations

from dataclasses import dataclass, field

from vecveil.data.reading import Chunk, TableReader
from vecveil.data.sources import missing_column, row_number
from vecveil.errors import DataFileError

__all__ = ["RowItems", "check_id_column", "ids_of"]


@dataclass(frozen=True, slots=True)
class RowItems:
    """What the rows of a chunk are. Its repr shows no contents."""

    ids: list[str] = field(repr=False)
    """The values of the id column, or the numbers of the rows in the file, from 0."""
    texts: list[str] | None = field(repr=False)
    """What the vectors were encoded from, or None for a file of vectors."""


def check_id_column(reader: TableReader, id_column: str | None) -> None:
    """Refuse an id column that is not there."""
    if id_column is not None and id_column not in reader.types:
        raise missing_column(reader.name, "id_column", id_column, reader.types)


def ids_of(chunk: Chunk, id_column: str | None, source: str) -> list[str]:
    """Return the ids of a chunk's rows: the column's values, or the numbers of the rows from 0."""
    if id_column is None:
        return [str(i) for i in range(chunk.first_row, chunk.first_row + chunk.rows)]
    values = chunk.columns[id_column]
    listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    for i, value in enumerate(listed):
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            what = "nothing" if value is None or value == "" else type(value).__name__
            raise DataFileError.of(source, "id_column", "a column of texts or whole numbers",
                                   f"{what} in {row_number(chunk.first_row + i)}",
                                   "It names the item of each row.")  # fmt: skip
    # A CSV's "7" and a Parquet file's 7 are one item: what the format makes of an id must not matter.
    return [str(value) for value in listed]
