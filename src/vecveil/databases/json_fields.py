"""Fields as JSON, for databases that know nothing else: times, decimals and UUIDs become texts."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Mapping
from typing import Any

from vecveil.errors import StoreError

__all__ = ["as_json", "plain"]


def as_json(fields: Mapping[str, Any], *, owner: str) -> str:
    """Return the fields on one line of JSON, those that are None left out.

    Raises:
        StoreError: a value of a type that JSON has not; its type alone is told.
    """
    return json.dumps(plain(fields, owner=owner), ensure_ascii=False)


def plain(fields: Mapping[str, Any], *, owner: str) -> dict[str, Any]:
    """Return the fields with values that JSON has, those that are None left out; raises as `as_json` does."""
    return {str(k): _plain(value, owner) for k, value in fields.items() if value is not None}


def _plain(value: Any, owner: str) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, owner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, owner) for inner in value]
    raise StoreError.of(owner, "fields", "numbers, texts, times, lists or objects", type(value).__name__,
                        fix="Leave the field out.")  # fmt: skip
