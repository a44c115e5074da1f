"""Members from Faker's providers, by locale."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from vecveil.concepts.expansion.sources import ExpansionContext
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.validation import check_count

__all__ = ["FakerSource"]

DRAWS_PER_MEMBER = 5
"""A provider of few values repeats them; after so many draws for each member asked, it has no more."""


class FakerSource:
    """Proposes what Faker's providers make up: names, cities, companies, addresses.

    Args:
        providers: names of Faker's methods without arguments, for example ``["first_name", "city"]``; or group
            names mapped to such lists.
        locales: Faker's locales, for example ``["en_US", "de_DE"]``.
        count: members of each provider, at most.

    Raises:
        MissingDependencyError: faker is not installed (extra ``faker``).
        InvalidInputError: a locale or provider that Faker does not have.
    """

    name = "faker"

    def __init__(
        self,
        providers: Sequence[str] | Mapping[str, Sequence[str]],
        *,
        locales: Sequence[str] = ("en_US",),
        count: int = 500,
    ) -> None:
        owner = "FakerSource"
        self.count = check_count(count, owner=owner, param="count")
        named = (
            providers if isinstance(providers, Mapping) else {name: [name] for name in providers}
        )
        self.groups = {group: tuple(names) for group, names in named.items()}
        if isinstance(providers, str) or not any(self.groups.values()):
            raise InvalidInputError.of(
                owner, "providers", "a sequence of at least one name", repr(providers)
            )
        self.locales = (locales,) if isinstance(locales, str) else tuple(locales)
        self._faker = _faker(self.locales, owner)
        for name in (name for names in self.groups.values() for name in names):
            try:
                known = callable(getattr(self._faker, name)) and not name.startswith("_")
            except (AttributeError, TypeError):
                known = False
            if not known:
                raise InvalidInputError.of(
                    owner, "providers", "names of Faker's methods", repr(name)
                )

    def __repr__(self) -> str:
        return f"FakerSource({len(self.groups)} groups, locales={list(self.locales)})"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return different values of each provider, drawn from the context's seed."""
        self._faker.seed_instance(context.seed)
        return {
            group: [value for name in names for value in self._draw(name)]
            for group, names in self.groups.items()
        }

    def _draw(self, name: str) -> list[str]:
        make = getattr(self._faker, name)
        values: dict[str, None] = {}
        for _ in range(DRAWS_PER_MEMBER * self.count):
            values.setdefault(str(make()).replace("\n", ", "))
            if len(values) == self.count:
                break
        return list(values)


def _faker(locales: Sequence[str], owner: str) -> Any:
    try:
        import faker
    except ImportError:
        raise MissingDependencyError("Making members up", "faker", "faker") from None
    # Making a generator reads and advances Python's global generator; the caller's must stay as it was.
    state = random.getstate()
    try:
        return faker.Faker(list(locales))
    except (AttributeError, ValueError, ImportError):
        raise InvalidInputError.of(
            owner, "locales", "locales that Faker has", ", ".join(map(repr, locales))
        ) from None
    finally:
        random.setstate(state)
