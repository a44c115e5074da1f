"""Made-up members of entity types, from Faker: nobody's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vecveil.errors import ConceptError

__all__ = ["PROVIDERS", "made_up_members"]

PROVIDERS = {
    "PERSON": "name", "PER": "name", "LOCATION": "city", "LOC": "city", "GPE": "city",
    "ORG": "company", "ORGANIZATION": "company", "EMAIL_ADDRESS": "email", "EMAIL": "email",
    "PHONE_NUMBER": "phone_number", "PHONE": "phone_number", "CREDIT_CARD": "credit_card_number",
    "IBAN_CODE": "iban", "IBAN": "iban", "IP_ADDRESS": "ipv4", "URL": "url", "US_SSN": "ssn",
    "US_BANK_NUMBER": "bban", "DATE_TIME": "date", "DATE": "date",
}  # fmt: skip
"""Faker's provider for the entity types of Presidio, spaCy and common models."""


def made_up_members(
    types: Iterable[str], *, locales: Sequence[str] = ("en_US",), count: int = 500, seed: int = 0
) -> dict[str, tuple[str, ...]]:
    """Return ``count`` different values at most for each type, the same for the same seed.

    Raises:
        ConceptError: a type that Faker has no provider for here.
        MissingDependencyError: faker is not installed.
    """
    from vecveil.concepts.expansion import ExpansionContext, FakerSource

    wanted = sorted(set(types))
    unknown = sum(label.upper() not in PROVIDERS for label in wanted)
    if unknown:
        raise ConceptError.of("fit", "members",
                              "'own', or lists of your own, for types that Faker knows nothing of",
                              f"{unknown} such", f"It makes up {', '.join(sorted(PROVIDERS))}.")  # fmt: skip
    source = FakerSource(
        {label: [PROVIDERS[label.upper()]] for label in wanted}, locales=locales, count=count
    )
    context = ExpansionContext((), (), np.zeros(0, dtype=np.intp), seed=seed)
    return {label: tuple(sorted(values)) for label, values in source.members(context).items()}
