"""JSON lines: one object per line, with fields that may differ from row to row.

One schema holds for the whole file. It is found by reading the file through once when it is
opened: a field whose values are all numbers, all booleans or all texts keeps that type, anything
else (lists such as ``spans``, objects, mixtures) is kept as a value and written as JSON text. A
field that a row lacks is null there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from vecveil.data.formats import InputFile, not_usable
from vecveil.data.lines import in_groups, read_lines
from vecveil.data.sources import Batch, Source, check_rows
from vecveil.errors import DataFileError

__all__ = ["JsonLinesSource"]

DEEPEST = 100
MOST_FIELDS = 10_000
_EXACT = 1 << 53
_WORD = 1 << 63
_KINDS: dict[type, str] = {str: "string", bool: "bool_", float: "float64", type(None): "null"}


class JsonLinesSource(Source):
    """JSON objects, one a line; blank lines are skipped."""

    def __init__(self, file: InputFile, encoding: str) -> None:
        self.name, self.format, self.metadata = file.name, file.format, {}
        self._file, self._encoding = file, encoding
        kinds: dict[str, set[str]] = {}
        self.rows = 0
        for _, row in self._objects():
            self.rows += 1
            for key, value in row.items():
                kinds.setdefault(key, set()).add(_kind(value))
            if len(kinds) > MOST_FIELDS:
                raise not_usable(
                    self.name,
                    f"objects with at most {MOST_FIELDS} different fields",
                    "more",
                    fix="Keep values that differ from row to row out of the field names.",
                )
        check_rows(self.name, self.rows)
        self.types = {key: _merged(found) for key, found in kinds.items()}

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        for group in in_groups(self._objects(), chunk_rows, lambda item: item[0]):
            yield len(group), {name: [row.get(name) for _, row in group] for name in columns}

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (length of the line, the object on it)."""
        for number, line in enumerate(read_lines(self._file, self._encoding), start=1):
            if line.isspace():
                continue
            yield len(line), self._parse(line, number)

    def _parse(self, line: str, number: int) -> dict[str, Any]:
        try:
            if _too_deep(line):
                raise RecursionError
            value = json.loads(line)
            if "\\ud" in line or "\\uD" in line:
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise self._wrong(number, "half of a surrogate pair, which is no character,") from None
        except RecursionError:
            raise self._wrong(number, f"more than {DEEPEST} nested brackets") from None
        except ValueError:
            fix = ""
            if number == 1 and line.startswith("["):
                fix = "The file looks like one JSON array: convert it with jq -c '.[]'."
            raise self._wrong(number, "something that is not JSON", fix) from None
        if not isinstance(value, dict):
            fix = "Convert a JSON array with jq -c '.[]'." if isinstance(value, list) else ""
            raise self._wrong(number, f"a JSON {type(value).__name__}", fix)
        return value

    def _wrong(self, number: int, got: str, fix: str = "") -> DataFileError:
        return not_usable(
            self.name, "a file with one JSON object a line", f"{got} at line {number}", fix=fix
        )


def _kind(value: Any) -> str:
    if type(value) is int:
        size = abs(value)
        return "int64" if size <= _EXACT else "long" if size < _WORD else "json"
    return _KINDS.get(type(value), "json")


def _merged(kinds: set[str]) -> str:
    kinds = kinds - {"null"}
    if not kinds:
        return "string"
    if len(kinds) == 1:
        return "int64" if kinds == {"long"} else next(iter(kinds))
    if kinds == {"int64", "long"}:
        return "int64"
    return "float64" if kinds == {"int64", "float64"} else "json"


def _too_deep(line: str) -> bool:
    """Return whether brackets nest deeper than DEEPEST; brackets inside strings do not count."""
    if line.count("[") + line.count("{") <= DEEPEST:
        return False
    depth, quoted, escaped = 0, False, False
    for character in line:
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "[{":
            depth += 1
            if depth > DEEPEST:
                return True
        elif character in "]}":
            depth -= 1
    return False
