"""Read JSON into frozen dataclasses and write it back: the base class of every saved record.

Reading checks key by key. An error names the key (``attacks[2].clean_low``) and the kind of value, never a text of
the record.
"""

from __future__ import annotations

import functools
import math
import numbers
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

from vecveil.errors import DataFileError, InvalidInputError, VecveilError
from vecveil.io import parse_json


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, written into its type: ``Annotated[float, Within(0, 1)]``."""

    low: float = -math.inf
    high: float = math.inf


Scalar: TypeAlias = str | int | float | bool | None
Count: TypeAlias = Annotated[int, Within(0)]
Share: TypeAlias = Annotated[float, Within(0, 1)]
Finite: TypeAlias = Annotated[float, Within(-1e15, 1e15)]


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside a record, with its path.

    Attributes:
        owner: name of the function that errors name.
        error: class of the errors: `DataFileError` for a file, `InvalidInputError` for an argument.
    """

    value: Any
    path: str
    owner: str
    error: type[VecveilError] = InvalidInputError

    def fail(self, constraint: str, got: str = "", fix: str = "") -> VecveilError:
        """Return the error for this key."""
        # The type, not the value: records hold the user's texts, and errors end in logs.
        shown = got or ("null" if self.value is None else type(self.value).__name__)
        return self.error.of(self.owner, self.path or "record", constraint, shown, fix=fix)

    def key(self, name: str) -> Place:
        """Return the place of a key of this object; raise if it is absent."""
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.mapping():
            fix = "Write the record again with this version of vecveil."
            raise Place(None, path, self.owner, self.error).fail("present", "a record without it", fix)
        return Place(self.value[name], path, self.owner, self.error)

    def mapping(self) -> Mapping[str, Any]:
        """Return the value; raise unless it is an object."""
        if not isinstance(self.value, Mapping):
            raise self.fail("an object")
        return self.value

    def items(self) -> list[Place]:
        """Return the place of each element; raise unless the value is a list."""
        if not isinstance(self.value, list | tuple):
            raise self.fail("a list")
        return [Place(value, f"{self.path}[{i}]", self.owner, self.error) for i, value in enumerate(self.value)]

    def number(self, bounds: Within, whole: bool = False) -> float:
        """Return the value; raise unless it is a finite number within bounds."""
        # bool is a subclass of int: JSON's true must not pass for 1.
        if isinstance(self.value, bool) or not isinstance(self.value, numbers.Real):
            raise self.fail("a number")
        try:
            number = float(self.value)
        except OverflowError:  # JSON allows whole numbers beyond the range of float
            number = math.inf
        # Python's JSON reader accepts NaN and Infinity, which are not JSON and would break a chart's scale.
        if not math.isfinite(number):
            raise self.fail("a finite number", "NaN or infinity")
        # A share computed in floating point may exceed its bound by rounding.
        if not bounds.low - 1e-9 <= number <= bounds.high + 1e-9:
            limits = f"at least {bounds.low:g}"
            if not math.isinf(bounds.high):
                limits = f"between {bounds.low:g} and {bounds.high:g}"
            raise self.fail(f"a number {limits}", f"{number:.6g}")
        if whole and number != int(number):
            raise self.fail("a whole number", f"{number:.6g}")
        return int(number) if whole else number


class Record:
    """Base of the dataclasses that are saved as JSON objects; their fields are the keys.

    Class attributes:
        SCHEMA: value of the key ``schema`` of a top-level object; empty for nested objects.
        CLOSED: reject unknown keys. By default they are left out, as later versions may add keys.
    """

    SCHEMA: ClassVar[str] = ""
    CLOSED: ClassVar[bool] = False

    @classmethod
    def read(cls, value: Any, *, owner: str, path: str = "", error: type[VecveilError] = InvalidInputError) -> Self:
        """Return the record that a JSON object holds; errors name ``owner`` and ``path``.

        Raises:
            InvalidInputError (or ``error``): another schema, or a key is missing or has a wrong value.
        """
        return cls.at(Place(value, path, owner, error))

    @classmethod
    def load(cls, source: Any, *, owner: str | None = None) -> Self:
        """Return the record, given as a JSON object or as the path of its file; errors name ``owner``.

        Raises:
            InvalidInputError: another schema, or a key is missing or has a wrong value.
            DataFileError: the same for a file, or the file cannot be read or is not JSON.
        """
        owner = owner or f"{cls.__name__}.load"
        if isinstance(source, str | os.PathLike):
            return cls.read(load_json(source, owner=owner), owner=owner, error=DataFileError)
        return cls.read(source, owner=owner)

    @classmethod
    def at(cls, place: Place) -> Self:
        """Return the record at a place inside another one."""
        data = place.mapping()
        if cls.SCHEMA:
            cls._check_schema(place.key("schema"))
        hints = _hints(cast(Any, cls))
        names = {"schema", *hints} if cls.SCHEMA else {*hints}
        if cls.CLOSED and (unknown := [key for key in data if key not in names]):
            # Cut: a key may be as long as the file, and the error shows it.
            key = Place(None, f"{place.path}.{str(unknown[0])[:40]}", place.owner, place.error)
            raise key.fail("absent", "a key that is not in the schema")
        # By field, not by key: the error is the first in the order of the schema, whatever the file's order.
        record = cls(**{name: _read(place.key(name), hint) for name, hint in hints.items()})
        record.check(place)
        return record

    @classmethod
    def _check_schema(cls, place: Place) -> None:
        schema = place.value
        if schema == cls.SCHEMA:
            return
        got = ""
        # Only a schema name of ours is repeated in the error: any other string may be a text of the user.
        if isinstance(schema, str):
            known = re.fullmatch(r"vecveil\.[a-z]{1,20}/\d{1,4}", schema)
            got = repr(schema) if known else "another schema"
        raise place.fail(repr(cls.SCHEMA), got, "Write it again, or use the version of vecveil that wrote it.")

    def check(self, place: Place) -> None:
        """Raise if keys that are valid alone contradict each other."""

    def to_record(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        record: dict[str, Any] = {"schema": self.SCHEMA} if self.SCHEMA else {}
        return record | {name: _plain(getattr(self, name)) for name in _hints(cast(Any, type(self)))}


def load_json(path: str | os.PathLike[str], *, owner: str, param: str = "record") -> Any:
    """Return the content of a UTF-8 JSON file.

    Raises:
        DataFileError: the file cannot be read, or is not UTF-8 JSON.
    """
    got, constraint = "a file that is not", "a UTF-8 JSON file"
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        got, constraint = problem.strerror or type(problem).__name__, "a readable file"
    except (ValueError, RecursionError):  # deep nesting exhausts the stack of the JSON reader
        pass
    # Outside the handlers, so that no cause is chained: a JSON error quotes the file.
    raise DataFileError.of(owner, param, constraint, got, fix="Pass the file that vecveil wrote.")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    # Annotations are strings (`from __future__ import annotations`); resolving them is slow, hence the cache.
    every = typing.get_type_hints(kind, include_extras=True)
    return {field.name: every[field.name] for field in fields(kind)}


def _read(place: Place, hint: Any) -> Any:
    """Return the value at a place, converted to the type of its field."""
    bounds = Within()
    if typing.get_origin(hint) is Annotated:
        hint, bounds = typing.get_args(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _read_union(place, inner)
    if hint is Any:
        return place.value
    if origin is Literal:
        if place.value not in inner:
            got = "another value" if isinstance(place.value, str) else ""
            raise place.fail(f"one of {', '.join(inner)}", got)
        return place.value
    if hint in (float, int):
        return place.number(bounds, whole=hint is int)
    if hint in (str, bool):
        if not isinstance(place.value, hint):
            raise place.fail("a string" if hint is str else "true or false")
        return place.value
    if origin is Sequence or origin is tuple:
        return tuple(_read(each, inner[0]) for each in place.items())
    if origin is Mapping:
        return {str(key): _read(place.key(key), inner[1]) for key in place.mapping()}
    return hint.at(place)


def _read_union(place: Place, hints: tuple[Any, ...]) -> Any:
    """Return a value that may be null, a number, a string or a record."""
    # Unions here are a type or null, a string or a record, and `Scalar`: the JSON type decides.
    if place.value is None and type(None) in hints:
        return None
    if set(hints) == set(typing.get_args(Scalar)):
        if not isinstance(place.value, str | int | float):
            raise place.fail("a string, a number, true, false or null")
        # `number` rejects NaN and infinity.
        return place.number(Within()) if isinstance(place.value, float) else place.value
    if isinstance(place.value, str) and str in hints:
        return place.value
    others = [hint for hint in hints if hint not in (str, type(None))]
    return _read(place, others[0] if others else str)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_record()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value
