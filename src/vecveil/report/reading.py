"""Reading one object of a saved record, key by key, with errors that name the key."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from vecveil.errors import VecveilError, message

__all__ = ["Node", "Said"]


class Said(str):
    """What an error says it got, where the type of the value alone would not help."""

    __slots__ = ()


class Node:
    """An object inside the record that knows its own path, so that an error can name the key."""

    def __init__(self, data: Any, path: str, owner: str, error: type[VecveilError]) -> None:
        self.path, self.owner, self.error = path, owner, error
        if not isinstance(data, Mapping):
            raise self.fail("", "an object", data)
        self.data = data

    def key(self, name: str) -> str:
        """Return the path of the key ``name`` from the top of the record."""
        return ".".join(str(part) for part in (self.path, name) if part) or "record"

    def fail(self, name: str, constraint: str, got: Any, fix: str = "") -> VecveilError:
        """Return the error for one key; it shows the type of ``got`` alone, or a ``Said``."""
        kind = "null" if got is None else got if isinstance(got, Said) else type(got).__name__
        return self.error(message(self.owner, self.key(name), constraint, kind, fix=fix))

    def get(self, name: str) -> Any:
        if name not in self.data:
            fix = "Write the record again with this version of vecveil."
            raise self.fail(name, "present", Said("a record without it"), fix)
        return self.data[name]

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise self.fail(name, "a string", value)
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise self.fail(name, "a number", value)
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond all floating-point ones
            number = math.inf
        if not math.isfinite(number):
            raise self.fail(name, "a finite number", Said("NaN or infinity"))
        if not low - 1e-9 <= number <= high + 1e-9:
            bounds = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
            raise self.fail(name, f"a number {bounds}", Said(f"{number:.6g}"))
        return number

    def count(self, name: str) -> int:
        number = self.number(name, low=0)
        if number != int(number):
            raise self.fail(name, "a whole number", Said(f"{number:.6g}"))
        return int(number)

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if not isinstance(value, bool):
            raise self.fail(name, "true or false", value)
        return value

    def maybe(self, name: str, read: Callable[..., Any], **bounds: float) -> Any:
        return None if self.get(name) is None else read(name, **bounds)

    def child(self, name: str) -> Node:
        return Node(self.get(name), self.key(name), self.owner, self.error)

    def children(self, name: str) -> list[Node]:
        return [
            Node(e, f"{self.key(name)}[{i}]", self.owner, self.error) for i, e in self.items(name)
        ]

    def items(self, name: str) -> list[tuple[int, Any]]:
        value = self.get(name)
        if not isinstance(value, list | tuple):
            raise self.fail(name, "a list", value)
        return list(enumerate(value))

    def texts(self, name: str) -> tuple[str, ...]:
        for i, value in (items := self.items(name)):
            if not isinstance(value, str):
                raise self.fail(f"{name}[{i}]", "a string", value)
        return tuple(value for _, value in items)
