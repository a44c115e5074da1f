"""Saved records: frozen structs that `msgspec` writes as JSON objects and reads with a check of every key.

An error names the key (``attacks[2].clean_low``) and the kind of value, never a text of the record.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from vecveil.errors import DataFileError, InvalidInputError, VecveilError, optional_import
from vecveil.io import expanded, parse_json, write_bytes

with optional_import("A saved record", "msgspec", "cli"):
    import msgspec

# Bounds refuse NaN and infinity, which Python's JSON reader accepts. Shares may exceed theirs by rounding.
Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e-9, le=1 + 1e-9)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]  # a larger one overflows where it is divided
Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
LARGEST = 1 << 26  # bytes of a saved record
Scalar: TypeAlias = str | Integer | Finite | bool | None


class Conflict(ValueError):
    """Keys of a record contradict each other; ``key`` is the one to name, relative to the record."""

    def __init__(self, key: str, sentence: str) -> None:
        self.key = key
        super().__init__(sentence)


class Record(msgspec.Struct, frozen=True):
    """Base of the records; their fields are the keys, in the order of the file.

    A record with a schema has it as its tag (``tag_field="schema"``). ``__post_init__`` raises `Conflict`. Reading
    ignores unknown keys, which later versions may add, unless a class sets ``forbid_unknown_fields``.
    """

    @classmethod
    def read(cls, value: Any, *, owner: str = "", error: type[VecveilError] = InvalidInputError) -> Self:
        """Return the record that a JSON object contains; errors begin with ``owner``.

        Raises:
            InvalidInputError (or ``error``): a different schema, or a missing or invalid key.
        """
        place, owner = "", owner or cls.__name__
        try:
            # msgspec takes an object without its tag.
            if (field := cls.__struct_config__.tag_field) and isinstance(value, dict) and field not in value:
                raise msgspec.ValidationError(f"Object missing required field `{field}`")
            record: Self = _converted(value, cls)
            return record
        except msgspec.ValidationError as problem:
            words, _, where = str(problem).partition(" - at `$")
            place, words, cause = where.rstrip("`").lstrip("."), words[:1].lower() + words[1:], problem.__cause__
            if isinstance(cause, Conflict):
                place = f"{place}.{cause.key}".lstrip(".") if cause.key else place
            elif missing := re.fullmatch("object (?:missing required|contains unknown) field `(.{1,40}).*`", words):
                place = f"{place}.{missing[1]}".lstrip(".")
                words = "this key is missing" if "missing" in words else "this key is not in the schema"
            elif place == "schema":
                words = f"a different schema than {cls.__struct_config__.tag!r}"
            elif "'" in words:  # a value of the record, which may be a text
                words = "none of the values that this key may have"
        except (RecursionError, TypeError, OverflowError):
            words = "it is not a record"
        fix = "Write it again with this version of vecveil."
        raise error(f"{owner}: {place or 'the record'}: {words}. {fix}", param=place or "record")

    @classmethod
    def load(cls, source: Any, *, owner: str = "") -> Self:
        """Return the record, given as such, as a JSON object or as the path of its file; errors begin with ``owner``.

        Raises:
            InvalidInputError: a different schema, or a missing or invalid key.
            DataFileError: the same for a file, or the file cannot be read or is not JSON.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str | os.PathLike):
            return cls.read(load_json(source), owner=Path(source).name, error=DataFileError)
        return cls.read(source, owner=owner)

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the record of an object with these fields: NumPy's numbers as plain ones, NaN as None."""
        return msgspec.json.decode(_json(value), type=cls)

    def to_record(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        record: dict[str, Any] = msgspec.json.decode(_json(self))
        return record

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON, atomically; `load` reads it."""
        write_json(path, self)


def load_json(path: str | os.PathLike[str], *, param: str = "record") -> Any:
    """Return the content of a UTF-8 JSON file.

    Raises:
        DataFileError: the file cannot be read, or is not UTF-8 JSON.
    """
    try:
        with open(expanded(path), "rb") as file:
            content = file.read(LARGEST + 1)  # a device never ends
        if len(content) > LARGEST:
            raise ValueError
        return parse_json(content.decode("utf-8"))
    except OSError as problem:
        words = problem.strerror or type(problem).__name__
    except (ValueError, RecursionError):  # deep nesting exhausts the stack of the JSON reader
        words = f"it is no UTF-8 JSON file, has a key twice, or has more than {LARGEST >> 20} MiB"
    # Outside the handlers, so that no cause is chained: a JSON error quotes the file.
    raise DataFileError(f"{Path(path).name}: {words}. Pass the file that vecveil wrote.", param=param)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a record, or one of our objects, as JSON, atomically; a question mark replaces a lone surrogate."""
    write_bytes(path, msgspec.json.format(_json(value), indent=1) + b"\n")


def _converted(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError:  # a lone surrogate in a key, or in the place of a number
        return msgspec.convert(json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")), kind)


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:  # lone surrogates, which texts of files may contain
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain), ensure_ascii=False).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.item()
