"""CSV, TSV, JSON lines and text lines as table sources.

Opening a text file reads it once: that counts its rows, finds the types of JSON fields, and finds a broken row before
any work starts.
"""

from __future__ import annotations

import csv
import decimal
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any

from vecveil.errors import DataFileError, InvalidInputError
from vecveil.io import RepeatedKeyError, parse_json
from vecveil.texts.tables.columns import ColumnBatch, TableSource, check_names, check_rows
from vecveil.texts.tables.files import LONGEST, InputFile, in_groups, read_lines

DEEPEST = 100
MOST_FIELDS = 10_000
# Largest integer that float64 represents exactly, and the range of int64.
_EXACT, _WORD = 1 << 53, 1 << 63
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_KINDS: dict[type, str] = {str: "string", bool: "bool_", float: "float64", type(None): "null"}


class _TextSource(TableSource):
    def __init__(self, file: InputFile, encoding: str) -> None:
        self.name, self.format, self.metadata = file.name, file.format, {}
        self._file, self._encoding = file, encoding


class TextLinesSource(_TextSource):
    """Lines of text in the column ``text``. A blank line is an empty text, so row i is always line i."""

    def __init__(self, file: InputFile, encoding: str) -> None:
        super().__init__(file, encoding)
        self.types = {"text": "string"}
        self.rows = sum(1 for _ in self._texts())
        check_rows(self.name, self.rows)

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        for group in in_groups(self._texts(), chunk_rows, len):
            yield len(group), dict.fromkeys(columns, group)

    def _texts(self) -> Iterator[str]:
        for line in read_lines(self._file, self._encoding, newline=None):
            yield line.removesuffix("\n")


class DelimitedSource(_TextSource):
    """A table with a header line. Every column is text, which keeps an id such as 007.

    Quoted fields may contain delimiters, quotes ("") and line breaks. Most programs do not quote fields between tabs:
    there a quote is data unless it encloses a whole field, and a line with a field for each name is a row.
    """

    def __init__(self, file: InputFile, encoding: str, delimiter: str | None) -> None:
        super().__init__(file, encoding)
        # The limit is global to the process: never lower the application's.
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
        self._delimiter = _check_delimiter(delimiter) or ("\t" if file.format == "tsv" else self._detect())
        header = next(self._records(), None)
        if header is None:
            check_rows(self.name, 0)
        self._names = [name.strip() or f"unnamed_{i + 1}" for i, name in enumerate(header or [])]
        check_names(self.name, self._names)
        self.types = dict.fromkeys(self._names, "string")
        self.rows = sum(1 for _ in self._rows())
        check_rows(self.name, self.rows, len(self._names))

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        places = [(name, self._names.index(name)) for name in columns]
        for group in in_groups(self._rows(), chunk_rows, lambda row: sum(map(len, row))):
            yield len(group), {name: [row[place] for row in group] for name, place in places}

    def _rows(self) -> Iterator[list[str]]:
        records = self._records()
        next(records, None)
        width = len(self._names)
        for number, record in enumerate(records, start=1):
            if len(record) != width:
                raise DataFileError(
                    f"{self.name}: row {number} (counted from 1) has {len(record)} fields and the header {width}. "
                    f"The delimiter is {self._delimiter!r}. Quote fields that contain a delimiter or a line break, "
                    "or name it: delimiter= (--delimiter).",
                    param="path",
                )
            yield record

    def _records(self) -> Iterator[list[str]]:
        taken: list[str] = []
        lines = _kept(read_lines(self._file, self._encoding), taken)
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        number, width = 1, 0
        while True:
            number += len(taken)  # a quoted field may span lines
            taken.clear()
            try:
                record = next(reader, None)
            except csv.Error:
                record = []
            if record is None:
                return
            rows = [record] if record else []
            if self._delimiter == "\t" and (not record or len(taken) > 1 or len(record) != width > 0):
                split = [_fields(line) for line in taken if line.strip("\r\n")]
                # A lone quote joined lines or fields that are each complete.
                if all(len(fields) == (width or len(split[0])) for fields in split):
                    if record and len(split) > 1 and len(split[0]) == 1:
                        raise self._ambiguous(number)
                    rows = split
            if not rows and any(line.strip("\r\n") for line in taken):
                raise DataFileError(
                    f"{self.name}: the record that starts at line {number} breaks off. A quoted field ends with a "
                    "quote; a quote inside it is written twice.",
                    param="path",
                )
            for row in rows:
                width = width or len(row)
                yield row

    def _ambiguous(self, number: int) -> DataFileError:
        return DataFileError(
            f"{self.name}: the quote that begins at line {number} ends at a later line. This is one row with line "
            "breaks, or several rows with quotes. Save a table of one column as CSV or JSON lines.",
            param="path",
        )

    def _detect(self) -> str:
        """Return the delimiter that splits the header into most names; a comma if none splits it."""
        with closing(read_lines(self._file, self._encoding)) as lines:
            header = next((line for line in lines if line.strip()), "")
        return max(",;\t", key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter), [])))


def _kept(lines: Iterator[str], taken: list[str]) -> Iterator[str]:
    """Yield ``lines`` and append them to ``taken``."""
    for line in lines:
        taken.append(line)
        yield line


def _fields(line: str) -> list[str]:
    """Return the fields of a line between tabs, without the quotes that enclose a whole field."""
    return [
        field[1:-1].replace('""', '"') if _QUOTED.fullmatch(field) else field
        for field in line.rstrip("\r\n").split("\t")
    ]


def _check_delimiter(delimiter: str | None) -> str | None:
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n '):
        raise InvalidInputError("`delimiter` must be one character, such as a comma.", param="delimiter")
    return delimiter


class JsonLinesSource(_TextSource):
    """JSON objects, one per line; blank lines are skipped, and a field missing in a row is null there.

    A field of only numbers, only booleans or only texts keeps that type. Anything else (lists such as ``spans``,
    objects, mixtures) keeps its values and is written as JSON text, except lists of numbers of one length in every
    row, which are vectors. A number that float64 cannot hold, of more than 17 digits or beyond its range, is a text.
    """

    def __init__(self, file: InputFile, encoding: str) -> None:
        super().__init__(file, encoding)
        kinds: dict[str, set[str]] = {}
        filled: Counter[str] = Counter()
        self.rows = 0
        for _, row in self._objects():
            self.rows += 1
            filled.update(row.keys())
            for key, value in row.items():
                kinds.setdefault(key, set()).add(_kind(value))
            if len(kinds) > MOST_FIELDS:
                raise DataFileError(
                    f"{self.name} has objects with more than {MOST_FIELDS} different fields. Keep values that "
                    "differ from row to row out of the field names.",
                    param="path",
                )
        check_rows(self.name, self.rows)
        self.types = {key: _merged(values, everywhere=filled[key] == self.rows) for key, values in kinds.items()}
        given = kinds.get("embedding", set())
        if self.types.get("embedding") != "vector" and any(kind.startswith(("vector", "list")) for kind in given):
            raise DataFileError(
                f"{self.name}: the field 'embedding' is not a list of numbers of the same length in every row. Repair "
                "these rows, or rename the field if it does not contain vectors.",
                param="embedding_column",
            )

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, ColumnBatch]]:
        for group in in_groups(self._objects(), chunk_rows, lambda item: item[0]):
            yield len(group), {name: [row.get(name) for _, row in group] for name in columns}

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (length of the line, its object)."""
        for number, line in enumerate(read_lines(self._file, self._encoding), start=1):
            if not line.isspace():
                yield len(line), self._parse(line, number)

    def _parse(self, line: str, number: int) -> dict[str, Any]:
        fix = ""
        try:
            # Checked before parsing, because the depth at which json.loads fails depends on the caller.
            if _too_deep(line):
                raise RecursionError
            value = parse_json(line, _fraction)
            # A lone surrogate escape is valid JSON but cannot be written as UTF-8.
            if "\\ud" in line or "\\uD" in line:
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise self._wrong(number, "half of a surrogate pair, which is no character") from None
        except RecursionError:
            raise self._wrong(number, f"more than {DEEPEST} nested brackets") from None
        except RepeatedKeyError:
            raise DataFileError(
                f"{self.name}: line {number} has the same key twice. Remove one of them.", param="path"
            ) from None
        except ValueError:
            if number == 1 and line.startswith("["):
                fix = "The file looks like one JSON array: convert it with jq -c '.[]'."
            raise self._wrong(number, "something that is not JSON", fix) from None
        if not isinstance(value, dict):
            fix = "Convert a JSON array with jq -c '.[]'." if isinstance(value, list) else ""
            raise self._wrong(number, f"a JSON {type(value).__name__}", fix)
        return value

    def _wrong(self, number: int, got: str, fix: str = "") -> DataFileError:
        text = f"{self.name}: line {number} has {got}; each line must be one JSON object. {fix}"
        return DataFileError(text.rstrip(), param="path")


def _fraction(text: str) -> float | str:
    number = float(text)
    if len(text) <= 17 and "e" not in text and "E" not in text:
        return number
    exact = decimal.Decimal(text)
    # Programs print a float64 with up to 17 digits, of which the last need not be its shortest ones.
    digits = len(re.sub(r"[eE].*|[-.]", "", text).strip("0"))
    rounded = digits <= 17 and math.isfinite(number) and number != 0
    return number if rounded or exact == decimal.Decimal(repr(number)) else text


def _kind(value: Any) -> str:
    if type(value) is int:
        # Integers above 2^53 are not exact as float64, and above 2^63 do not fit into int64.
        size = abs(value)
        return "int64" if size <= _EXACT else "long" if size < _WORD else "json"
    if type(value) is list:
        # An integer beyond float64 would fail to convert.
        numbers = all(type(x) is float or (type(x) is int and abs(x) < _WORD) for x in value)
        return f"vector {len(value)}" if numbers and value else "list"
    return _KINDS.get(type(value), "json")


def _merged(kinds: set[str], *, everywhere: bool) -> str:
    if len(kinds) == 1 and next(iter(kinds)).startswith("vector"):
        return "vector" if everywhere else "json"
    kinds = {"json" if kind.startswith(("vector", "list")) else kind for kind in kinds - {"null"}}
    if not kinds:
        return "string"
    if kinds <= {"int64", "long"}:
        return "int64"
    if len(kinds) == 1:
        return next(iter(kinds))
    return "float64" if kinds == {"int64", "float64"} else "json"


def _too_deep(line: str) -> bool:
    """Return whether brackets nest deeper than DEEPEST; brackets inside strings do not count."""
    # Almost every line ends here, without the slow pass over its brackets.
    if line.count("[") + line.count("{") <= DEEPEST:
        return False
    brackets = re.findall(r"[][{}]", _STRING.sub("", line))
    return max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0) > DEEPEST
