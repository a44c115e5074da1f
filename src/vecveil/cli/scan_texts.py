"""The texts of a sample of a store: from a field beside the vectors, or from a file joined by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.errors import DataFileError, InvalidInputError

if TYPE_CHECKING:
    from vecveil.cli.inputs import TableFormat
    from vecveil.databases.scanning import Scan
    from vecveil.types import Embeddings

__all__ = ["SampleTexts", "ids_in", "texts_beside", "texts_from_file", "values_of"]


@dataclass(frozen=True)
class SampleTexts:
    """Rows of a sample whose text is known; shows none of it.

    Attributes:
        texts, vectors: of these rows.
        rows: where they are in the sample.
        columns: further columns of the file, a value for each of these rows.
        origin: what the texts were taken from.
    """

    texts: list[str] = field(repr=False)
    vectors: Embeddings = field(repr=False)
    rows: list[int] = field(repr=False)
    columns: Mapping[str, Sequence[Any]] = field(repr=False)
    origin: str


def ids_in(path: Path, form: TableFormat, id_column: str) -> frozenset[str]:
    """Return the ids of a file of texts.

    Raises:
        DataFileError: no such column, or an id that stands there twice.
    """
    from vecveil.data.columns import python_values

    found: set[str] = set()
    rows = 0
    reader = _reader(path, form, [id_column])
    for chunk in reader.select([id_column], texts=False, vectors=False):
        found.update(map(str, python_values(chunk.columns[id_column])))
        rows += chunk.rows
    if len(found) < rows:
        raise DataFileError.of(path.name, "id_column", "a column of different ids",
                               f"{rows - len(found):,} that repeat another",
                               "A row of the store belongs to one text.")  # fmt: skip
    return frozenset(found)


def texts_from_file(
    scan: Scan, path: Path, form: TableFormat, id_column: str, columns: Sequence[str]
) -> SampleTexts | None:
    """Return the texts of sampled rows from a file with their ids; None if it has none of them."""
    from vecveil.data.columns import python_values

    place = {one: i for i, one in enumerate(scan.sample.ids)}
    found: dict[int, tuple[str, list[Any]]] = {}
    wanted = list(dict.fromkeys([id_column, *columns]))
    for chunk in _reader(path, form, wanted).select(wanted, vectors=False):
        values = [python_values(chunk.columns[name]) for name in wanted]
        for i, text in enumerate(chunk.texts or []):
            row = place.get(str(values[0][i]))
            if row is not None and text.strip():
                found[row] = (text, [column[i] for column in values])
    rows = sorted(found)
    if not rows:
        return None
    beside = {name: [found[row][1][i] for row in rows] for i, name in enumerate(wanted)}
    texts = [found[row][0] for row in rows]
    return SampleTexts(texts, scan.sample.vectors[rows], rows, beside, path.name)


def texts_beside(scan: Scan, name: str | None) -> SampleTexts | None:
    """Return the texts that lie beside the sampled vectors: of the field ``name``, else of the longest texts.

    Raises:
        InvalidInputError: no such field.
    """
    fields = scan.survey.fields
    if name is None:
        texts = [one for one in fields if one.withheld == "text"]
        if not texts:
            return None
        name = max(texts, key=lambda one: one.characters * one.strings).name
    elif all(one.name != name for one in fields):
        known = ", ".join(repr(one.name) for one in fields) or "none"
        raise InvalidInputError.of(
            "scan", "text_field", f"a field of the store ({known})", repr(name)[:80]
        )
    values = values_of(scan, name)
    rows = [i for i, value in enumerate(values) if isinstance(value, str) and value.strip()]
    if not rows:
        return None
    return SampleTexts(
        [values[i] for i in rows], scan.sample.vectors[rows], rows, {}, f"field {name!r}"
    )


def values_of(scan: Scan, name: str) -> list[Any]:
    """Return the first value under ``name`` of each sampled row, or None."""
    from vecveil.databases.fields import leaves

    return [
        next((value for each, value in leaves(fields) if each == name), None)
        for fields in scan.sample.fields
    ]


def _reader(path: Path, form: TableFormat, columns: Sequence[str]) -> Any:
    from vecveil.data import read_table
    from vecveil.data.columns import missing_column

    reader = read_table(path, columns=[], **form.all_options)
    if reader.text_column is None:
        raise missing_column(reader.name, "text_column", None, reader.types)
    for name in columns:
        if name not in reader.types:
            raise missing_column(reader.name, "columns", name, reader.types)
    return reader
