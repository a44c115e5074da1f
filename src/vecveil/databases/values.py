"""What one value beside a vector is: free text, a list of numbers, an address. Judged from the value, never kept."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np

from vecveil.data.numberlists import is_number_list

__all__ = ["ValueKind", "is_vector", "kind_of", "words_of"]

ValueKind = Literal["text", "numbers", "binary", "email", "phone", "name", "other"]

FEWEST_NUMBERS = 8
FEWEST_WORDS = 5
_FEWEST_SIGNS = 12  # of a script without spaces
_LOOKED_AT = 4_000  # characters
_WORD = re.compile(r"[^\W\d_]{2,}")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*[A-Za-z]{2,}")
_ADDRESS = re.compile(r"\w+://\S+|\S+@\S+")
_PHONE = re.compile(r"(?:\+|\(?\d)[\d\s()./-]{6,}\d")
_NO_PHONE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|(?:\d{1,3}\.){3}\d{1,3}|\d+|\d+[./]\d+"
)
_NAME = re.compile(
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[^\W\d_a-z][\w'’.-]*(?:,? [^\W\d_a-z][\w'’.-]*){1,3}"
)


def kind_of(value: Any) -> ValueKind:
    """Return what ``value`` is.

    ``text`` has five words of letters, or twelve signs of a script without spaces. ``numbers`` are eight or more in a
    list, also one that is written as text: it may be a vector. ``binary`` may hold anything.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "binary"
    if is_vector(value):
        return "numbers"
    if not isinstance(value, str):
        return "other"
    start = value[:_LOOKED_AT].strip()
    if is_number_list(start):
        return "numbers"
    if words_of(start) >= FEWEST_WORDS:
        return "text"
    if _EMAIL.search(start):
        return "email"
    if (
        _PHONE.fullmatch(start)
        and not _NO_PHONE.fullmatch(start)
        and sum(c.isdigit() for c in start) <= 15
    ):
        return "phone"
    return "name" if len(start) <= 60 and _NAME.fullmatch(start) else "other"


def is_vector(value: Any) -> bool:
    """Return whether ``value`` is an array, or a list of at least eight numbers and nothing else."""
    if isinstance(value, np.ndarray):
        return True
    if not isinstance(value, list | tuple) or len(value) < FEWEST_NUMBERS:
        return False
    return all(
        isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in value
    )


def words_of(text: str) -> int:
    """Return how many words of at least two letters the beginning of ``text`` has; those of addresses do not count."""
    start = _ADDRESS.sub(" ", text[:_LOOKED_AT])
    signs = len(_UNSPACED.findall(start))
    if signs >= _FEWEST_SIGNS:
        return max(FEWEST_WORDS, signs // 2)
    return len(_WORD.findall(start))
