"""Labels that stand for a concept: one for each text, None for a text without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vecveil.errors import InvalidInputError

__all__ = ["checked_labels"]


def checked_labels(labels: Sequence[Any], *, owner: str) -> tuple[str | None, ...]:
    """Return one string or None for each text; an empty string counts as None."""
    if isinstance(labels, str | bytes | Mapping) or not hasattr(labels, "__iter__"):
        raise InvalidInputError.of(
            owner, "labels", "a sequence, one label a text", type(labels).__name__
        )
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    for i, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            got = f"{type(value).__name__} at position {i}"
            raise InvalidInputError.of(owner, "labels", "strings, integers or None", got)
    return tuple(None if value is None or value == "" else str(value) for value in values)
