"""CSV and TSV: every column is text, so that an id such as 007 stays what it is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from vecveil.data.formats import InputFile, not_usable
from vecveil.data.lines import LONGEST, in_groups, read_lines
from vecveil.data.sources import Batch, Source, check_names, check_rows
from vecveil.errors import InvalidInputError

__all__ = ["DelimitedSource"]


class DelimitedSource(Source):
    """A table with a header line; quoted fields may hold delimiters, quotes ("") and line breaks.

    The file is read through once when it is opened, which counts its rows and finds a broken one
    before any work starts.
    """

    def __init__(self, file: InputFile, encoding: str, delimiter: str | None) -> None:
        self.name, self.format, self.metadata = file.name, file.format, {}
        self._file, self._encoding = file, encoding
        self._delimiter = _check_delimiter(delimiter) or (
            "\t" if file.format == "tsv" else self._detect()
        )
        header = next(self._records(), None)
        if header is None:
            check_rows(self.name, 0)
            raise AssertionError  # pragma: no cover
        self._names = [name.strip() or f"unnamed_{i + 1}" for i, name in enumerate(header)]
        check_names(self.name, self._names)
        self.types = dict.fromkeys(self._names, "string")
        self.rows = sum(1 for _ in self._rows())
        check_rows(self.name, self.rows, len(self._names))

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        places = [(name, self._names.index(name)) for name in columns]
        for group in in_groups(self._rows(), chunk_rows, lambda row: sum(map(len, row))):
            yield len(group), {name: [row[place] for row in group] for name, place in places}

    def _rows(self) -> Iterator[list[str]]:
        records = self._records()
        next(records, None)
        width = len(self._names)
        for index, record in enumerate(records):
            if len(record) != width:
                raise not_usable(
                    self.name,
                    f"a table with {width} fields in each row, as in its header",
                    f"{len(record)} fields in row {index + 1} (counted from 1)",
                    f"The delimiter is {self._delimiter!r}.",
                    "Quote fields that hold a delimiter or a line break, or name it: delimiter= (--delimiter).",
                )
            yield record

    def _records(self) -> Iterator[list[str]]:
        if csv.field_size_limit() < LONGEST:
            csv.field_size_limit(LONGEST)
        lines = read_lines(self._file, self._encoding)
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        number = 1
        while True:
            try:
                record = next(reader, None)
            except csv.Error:
                raise not_usable(
                    self.name,
                    "a table with closed quotes",
                    f"a record that breaks off (it starts at line {number})",
                    "A quoted field ends with a quote; a quote inside it is written twice.",
                ) from None
            if record is None:
                return
            number = reader.line_num + 1
            if record:
                yield record

    def _detect(self) -> str:
        """Return the delimiter that splits the header into most names; a comma where none does."""
        lines = read_lines(self._file, self._encoding)
        first = next((line for line in lines if line.strip()), "")
        lines.close()  # type: ignore[attr-defined]

        def fields(delimiter: str) -> int:
            try:
                return len(next(csv.reader([first], delimiter=delimiter), []))
            except csv.Error:
                return 0

        return max(",;\t", key=fields)


def _check_delimiter(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n ':
        raise InvalidInputError.of(
            "read_table", "delimiter", "one character such as , or ;", "something else"
        )
    return delimiter
