"""Telling texts that are lists of numbers, such as "[0.1, 0.2, ...]", from other texts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

__all__ = ["has_number_list", "is_number_list"]

FEWEST = 8
ROWS = 100
LONGEST = 2_000
_AROUND = str.maketrans(dict.fromkeys("[](){},;|\"'", " "))


def has_number_list(values: Any) -> bool:
    """Return whether one of the first texts of a column is a list of numbers."""
    return any(map(is_number_list, _first(values)))


def is_number_list(text: str) -> bool:
    """Return whether ``text`` is at least eight numbers with nothing but punctuation around.

    After an opening bracket at its beginning, or behind one word such as ``array(``, eight numbers
    are enough, whatever follows them. Long texts are judged by their beginning.
    """
    start = text[:LONGEST]
    opening = start.find("[", 0, 20)
    numbers = start[opening + 1 :].translate(_AROUND).split()
    if len(text) > LONGEST:
        numbers = numbers[:-1]
    if opening >= 0:
        numbers = numbers[:FEWEST]
    return len(numbers) >= FEWEST and all(map(_is_number, numbers))


def _first(values: Any) -> Iterator[str]:
    texts = values if isinstance(values, list) else values.drop_null().slice(0, ROWS).to_pylist()
    return islice((text for text in texts if isinstance(text, str)), ROWS)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
