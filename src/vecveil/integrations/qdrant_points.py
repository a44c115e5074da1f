"""Points of Qdrant: which id a row gets there, and how its answers get theirs back.

Qdrant takes whole numbers and UUIDs. Any other id becomes a UUID derived from it, and lies in the payload: as in
`vecveil.databases.qdrant`, so that such a collection is scanned and migrated with its ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError, message

__all__ = [
    "ORIGINAL_ID",
    "point_ids",
    "restore_ids",
    "rows_of",
    "strings",
    "with_original",
]

ORIGINAL_ID = "vecveil_id"
_NUMBERS = 2**64


def point_ids(ids: Sequence[Any], *, owner: str) -> list[tuple[int | str, str | None]]:
    """Return for each id that of the point, and what the payload must keep of it.

    Raises:
        InvalidInputError: no whole number from 0, UUID or text, or two ids of one point.
    """
    placed = [_placed(one, owner) for one in ids]
    different = len({place for place, _ in placed})
    if different != len(placed):
        got = f"{different} different ones for {len(placed)} items"
        raise InvalidInputError.of(owner, "ids", "one for each item", got)
    return placed


def rows_of(
    points: Any, name: str, text_field: str, *, owner: str
) -> tuple[list[Any], Any, list[Mapping[str, Any] | None]]:
    """Return the ids, the clean vectors or texts, and the payloads of Qdrant's points.

    Args:
        points: points, mappings with the same names, or a ``Batch``.
        name: of the vectors, empty if they have none.
        text_field: where payloads of points without a vector have the text.

    Raises:
        InvalidInputError: something else, vectors of other names, or neither vectors nor texts for all.
    """
    if hasattr(points, "ids") and hasattr(points, "vectors"):
        vectors = points.vectors
        named = isinstance(vectors, Mapping)
        if named and set(vectors) != {name}:
            raise _other_vectors(owner, name)
        given = list(vectors[name] if named else vectors)
        payloads = list(points.payloads or [None] * len(given))
        if not len(points.ids) == len(given) == len(payloads):
            raise InvalidInputError.of(
                owner, "points", "as many ids as vectors and payloads", "others"
            )
        return list(points.ids), _vectors(given, owner), payloads
    listed = [points] if isinstance(points, Mapping) else list(points)
    ids = [_part(point, "id", owner) for point in listed]
    payloads = [_part(point, "payload", owner) for point in listed]
    given = [_vector(_part(point, "vector", owner), name, owner) for point in listed]
    missing = [vector is None for vector in given]
    if not any(missing):
        return ids, _vectors(given, owner) if given else [], payloads
    texts = [(payload or {}).get(text_field) for payload in payloads]
    if not all(missing) or not all(isinstance(text, str) for text in texts):
        wanted = f"points that all have a vector, or all a text under {text_field!r} of the payload"
        raise InvalidInputError.of(owner, "points", wanted, "others")
    return ids, texts, payloads


def strings(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return every text inside of a payload, however deep, by its place."""
    return {str(at): text for at, text in enumerate(_strings(payload))}


def with_original(with_payload: Any) -> Any:
    """Return what to ask of payloads so that answers have what `restore_ids` needs."""
    if with_payload is False or with_payload is None:
        return [ORIGINAL_ID]
    return [*with_payload, ORIGINAL_ID] if isinstance(with_payload, list | tuple) else with_payload


def restore_ids(points: Sequence[Any], *, payload: bool) -> None:
    """Give points the ids that were given to `point_ids`, a number where that was the text of one.

    Args:
        payload: whether the caller wants payloads.
    """
    for point in points:
        beside = dict(point.payload or {})
        point.id = beside.pop(ORIGINAL_ID, point.id)
        point.payload = beside if payload else None


def _placed(one: Any, owner: str) -> tuple[int | str, str | None]:
    if isinstance(one, uuid.UUID):
        return str(one), None
    if isinstance(one, int | np.integer) and not isinstance(one, bool) and 0 <= one < _NUMBERS:
        return int(one), None
    if not isinstance(one, str):
        wanted = "whole numbers from 0, UUIDs or texts"
        got = "another number" if isinstance(one, int | np.integer) else type(one).__name__
        raise InvalidInputError.of(owner, "ids", wanted, got)
    decimal = one.isascii() and one.isdecimal() and len(one) <= 20
    if decimal and str(int(one)) == one and int(one) < _NUMBERS:
        return int(one), None
    try:
        if str(uuid.UUID(one)) == one:
            return one, None
    except ValueError:
        pass
    return str(uuid.uuid5(uuid.NAMESPACE_OID, one)), one


def _part(point: Any, name: str, owner: str) -> Any:
    if isinstance(point, Mapping):
        return point.get(name)
    if not hasattr(point, name):
        raise InvalidInputError.of(
            owner, "points", "PointStructs, or mappings with the same names", "others"
        )
    return getattr(point, name)


def _vector(vector: Any, name: str, owner: str) -> Any:
    if not isinstance(vector, Mapping):
        return vector
    if set(vector) != {name}:
        raise _other_vectors(owner, name)
    return vector[name]


def _vectors(given: Any, owner: str) -> Any:
    try:
        return np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        raise InvalidInputError.of(
            owner, "points", "vectors of numbers, all of one dimension", "others"
        ) from None


def _other_vectors(owner: str, name: str) -> InvalidInputError:
    wanted = f"points with the vectors {name!r} alone" if name else "points with unnamed vectors"
    return InvalidInputError(
        message(owner, "points", wanted, "others", "Other vectors would not be protected.")
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
