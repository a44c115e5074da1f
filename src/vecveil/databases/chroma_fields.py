"""The fields of a row as Chroma keeps them: metadata, a text and an address beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError

__all__ = ["TEXT", "URI", "Value", "optional", "split"]

_OWNER = "ChromaStore"
TEXT, URI = "chroma:document", "chroma:uri"
Value = str | int | float | bool


def split(fields: Mapping[str, Any]) -> tuple[dict[str, Value], str | None, str | None]:
    """Return metadata, text and address of one row."""
    metadata: dict[str, Value] = {}
    for name, value in fields.items():
        if name in (TEXT, URI) or value is None:
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        listed = plain if isinstance(plain, list) else []
        simple = listed and all(isinstance(v, str | int | float) for v in listed)
        if not isinstance(plain, str | int | float | bool) and not simple:
            raise InvalidInputError.of(_OWNER, "fields", "texts, numbers, true or false, or lists of these",
                                       type(value).__name__, "Chroma's metadata hold nothing else.",
                                       "Leave the field out, or write it as text.")  # fmt: skip
        metadata[str(name)] = plain
    return metadata, fields.get(TEXT), fields.get(URI)


def optional(name: str, column: list[str | None]) -> dict[str, list[str | None]]:
    return {name: column} if any(value is not None for value in column) else {}
