"""The text-level methods: they rewrite texts before they are encoded (SPARSE, Table 9 and appendix F.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vecveil.errors import InvalidInputError
from vecveil.validation import check_count

if TYPE_CHECKING:
    from vecveil.concepts import Concept, ConceptMatches
    from vecveil.concepts.rewriting import Rewriter

__all__ = ["TEXT_METHODS", "TextMethod"]


@dataclass(frozen=True)
class TextMethod:
    """A text-level method's name, what it is, and what makes its rewriter; fields as in `vecveil.protector.METHODS`."""

    name: str
    summary: str
    build: Callable[[ConceptMatches, Concept, int, dict[str, Any]], Rewriter]
    options: tuple[str, ...] = ()

    kind: ClassVar[str] = "empirical"
    metric: ClassVar[str] = "none"
    scales: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[bool] = False
    postprocess: ClassVar[str] = "none"


def _redact(
    matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]
) -> Rewriter:
    from vecveil.concepts.rewriting import Redacting

    return Redacting(concept, seed)


def _at_random(
    matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]
) -> Rewriter:
    from vecveil.concepts.rewriting import ReplacingAtRandom

    count, least = options.get("words", 2000), options.get("min_word_texts", 5)
    return ReplacingAtRandom.of(matches, concept, seed=seed, count=count, min_texts=least)


def _by_members(
    matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]
) -> Rewriter:
    from vecveil.concepts.rewriting import ReplacingByMembers, made_up_members

    members = options.get("members", "own")
    if members == "own":
        return ReplacingByMembers.of(matches, concept, seed=seed)
    labels = {span.label for spans in matches.spans for span in spans}
    if members == "faker":
        locales = options.get("locales", ("en_US",))
        locales = tuple(locales.split(",")) if isinstance(locales, str) else tuple(locales)
        count = check_count(options.get("count", 500), owner="fit", param="count", minimum=2)
        made = made_up_members(labels, locales=locales, count=count, seed=seed)
        return ReplacingByMembers(concept, seed, made)
    return ReplacingByMembers(concept, seed, _lists(members, labels))


def _lists(members: Any, labels: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the caller's own lists, checked: one of two members or more for each type that was found."""
    wanted = "'own', 'faker', or a mapping of each type to two strings or more"
    good = isinstance(members, Mapping) and all(
        isinstance(own, Sequence)
        and not isinstance(own, str)
        and len(set(own)) > 1
        and all(isinstance(one, str) and one.strip() for one in own)
        for own in members.values()
    )
    if not good:
        raise InvalidInputError.of("fit", "members", wanted, type(members).__name__)
    if missing := len(labels - set(members)):
        raise InvalidInputError.of(
            "fit", "members", wanted, f"one without {missing} of the types that are in the texts"
        )
    return {str(label): tuple(own) for label, own in members.items()}


TEXT_METHODS: dict[str, TextMethod] = {
    method.name: method
    for method in (
        TextMethod(
            "redact",
            "every character of the concept becomes *, before the text is encoded",
            _redact,
        ),
        TextMethod(
            "replace-random",
            "each word of the concept becomes a random word of the texts, before the text is encoded",
            _at_random,
            options=("words", "min_word_texts"),
        ),
        TextMethod(
            "replace-semantic",
            "each mention becomes a random member of the same type, before the text is encoded",
            _by_members,
            options=("members", "locales", "count"),
        ),
    )
}
