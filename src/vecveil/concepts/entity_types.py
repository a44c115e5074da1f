"""The names of entity types that a recogniser is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from vecveil.errors import InvalidInputError, message

__all__ = ["check_entities", "unsupported"]


def check_entities(entities: Iterable[str], *, owner: str) -> tuple[str, ...]:
    """Return the asked entity types, each once; refuses none, a bare string and non-strings."""
    if isinstance(entities, str | bytes) or not hasattr(entities, "__iter__"):
        raise InvalidInputError.of(
            owner, "entities", "a sequence of entity types", type(entities).__name__
        )
    types = list(entities)
    for i, entity in enumerate(types):
        if not isinstance(entity, str) or not entity:
            got = "an empty string" if entity == "" else type(entity).__name__
            got += f" at position {i}"
            raise InvalidInputError.of(owner, "entities", "non-empty strings", got)
    if not types:
        raise InvalidInputError.of(owner, "entities", "at least one entity type", "none")
    return tuple(dict.fromkeys(types))


def unsupported(missing: Iterable[str], known: Iterable[str], *, owner: str) -> InvalidInputError:
    """Return the error for entity types that the recogniser does not know."""
    return InvalidInputError(
        message(owner, "entities", f"among {', '.join(sorted(known))}", ", ".join(sorted(missing)))
    )
