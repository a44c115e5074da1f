"""Qdrant's clients and collections: how they are opened, and which collections fit a protector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    message,
)

__all__ = ["config_of", "name_of_vectors", "opened"]

_DISTANCES = ("Cosine", "Dot", "Euclid", "Manhattan")


def opened(where: str, api_key: str | None, *, owner: str) -> Any:
    """Return a client of ``:memory:``, a folder, or a server's URL.

    Raises:
        MissingDependencyError: qdrant-client is not installed.
        StoreError: neither a folder that can be had nor a URL.
    """
    try:
        from qdrant_client import QdrantClient
    except ImportError:
        raise MissingDependencyError("A Qdrant client", "qdrant-client", "qdrant") from None
    try:
        if "://" in where:
            return QdrantClient(url=where, api_key=api_key, check_compatibility=False)
        return QdrantClient(where) if where == ":memory:" else QdrantClient(path=where)
    except Exception as error:
        raise StoreError(
            message(owner, "client", "a folder or a server's URL", type(error).__name__,
                    fix="See that the folder can be written and no other process has it.")
        ) from None  # fmt: skip


def config_of(dimension: int, distance: str, name: str | None, *, owner: str) -> Any:
    """Return the ``vectors_config`` of a collection; with a name its vectors are named.

    Raises:
        InvalidInputError: an unknown distance.
    """
    from qdrant_client import models

    if distance not in _DISTANCES:
        wanted = "one of " + ", ".join(_DISTANCES)
        raise InvalidInputError.of(owner, "distance", wanted, repr(distance)[:40])
    params = models.VectorParams(size=dimension, distance=models.Distance(distance))
    return {name: params} if name else params


def name_of_vectors(config: Any, wanted: str | None, dimension: int, *, owner: str) -> str:
    """Return the name of a collection's vectors, empty if they have none.

    Args:
        config: its ``vectors_config``.
        wanted: their name; None takes the only ones.
        dimension: of what the protector releases.

    Raises:
        IncompatibleError: no vectors of that name or dimension.
    """
    named = config if isinstance(config, Mapping) else {"": config}
    name = next(iter(named)) if wanted is None and len(named) == 1 else wanted
    if name is None or name not in named:
        got = ", ".join(repr(str(one)) for one in named)[:80] or "no vectors"
        raise IncompatibleError.of(owner, "vector_name", "that of the collection's vectors", repr(wanted)[:40],
                                   f"The collection has {got}.", "Pass vector_name.")  # fmt: skip
    size = getattr(named[name], "size", None)
    if size != dimension:
        raise IncompatibleError.of(owner, "collection", f"one with vectors of dimension {dimension}",
                                   f"dimension {size}", "The protector releases others.",
                                   "Make another collection for it.")  # fmt: skip
    return name
