"""Text-level methods, which rewrite texts before encoding (SPARSE, Table 9 and appendix F.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from vecveil.accounting import Guarantee, rewriting_guarantee
from vecveil.concepts import Concept, ConceptMatches
from vecveil.concepts.concept import concept_from_record
from vecveil.concepts.rewriting import (
    Redacting,
    ReplacingAtRandom,
    ReplacingByMembers,
    Rewriter,
    made_up_members,
)
from vecveil.errors import InvalidInputError, wrong_type
from vecveil.mechanisms import Mechanism
from vecveil.mechanisms.base import Arrays
from vecveil.randomness import WordStream
from vecveil.types import Embeddings, Matrix
from vecveil.validation import check_count

__all__ = ["TEXT_METHODS", "TextPlaceholder", "released_rows", "rewriter_from_record"]

REPLACEMENTS = {
    "redact": (
        "asterisks",
        "lengths",
        ("That the text holds the concept, where, and how many characters long.",),
    ),
    "replace-random": (
        "random words of other texts",
        "numbers of words",
        ("That words were replaced, where and how many: they fit the sentence badly.",),
    ),
    "replace-semantic": (
        "a member of the same type, drawn at random",
        "types and repetitions",
        (
            "That the text holds the concept, where, and of which type.",
            "The members themselves, where they are those of your texts: they now stand in other texts.",
        ),
    ),
}
"""By method: the replacement of the concept, the features it keeps, and the facts it does not hide."""


@dataclass(frozen=True)
class TextMethod:
    """A text-level method's name, summary and builder; fields as in `vecveil.protector.METHODS`."""

    name: str
    summary: str
    build: Callable[[ConceptMatches, Concept, int, dict[str, Any]], Rewriter]
    options: tuple[str, ...] = ()

    kind: ClassVar[str] = "empirical"
    metric: ClassVar[str] = "none"
    scales: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[bool] = False
    postprocess: ClassVar[str] = "none"


def _redact(matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]) -> Rewriter:
    return Redacting(concept, seed)


def _replace_random(
    matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]
) -> Rewriter:
    count, least = (
        check_count(options.get(name, default), owner="fit", param=name)
        for name, default in (("words", 2000), ("min_word_texts", 5))
    )
    return ReplacingAtRandom.of(matches, concept, seed=seed, count=count, min_texts=least)


def _replace_semantic(
    matches: ConceptMatches, concept: Concept, seed: int, options: dict[str, Any]
) -> Rewriter:
    members = options.get("members", "own")
    if members == "own":
        return ReplacingByMembers.of(matches, concept, seed=seed)
    # Only types that occur in the texts need members.
    labels = {span.label for spans in matches.spans for span in spans}
    if members == "faker":
        locales = options.get("locales", ("en_US",))
        locales = tuple(locales.split(",")) if isinstance(locales, str) else tuple(locales)
        count = check_count(options.get("count", 500), owner="fit", param="count", minimum=2)
        made = made_up_members(labels, locales=locales, count=count, seed=seed)
        return ReplacingByMembers(concept, seed, made)
    return ReplacingByMembers(concept, seed, _member_lists(members, labels))


def _member_lists(members: Any, labels: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the caller's lists of members: at least two for each type in the texts."""
    expected = "'own', 'faker', or a mapping of each type to two strings or more"
    valid = isinstance(members, Mapping) and all(
        isinstance(names, Sequence)
        and not isinstance(names, str)
        and len(set(names)) > 1
        and all(isinstance(name, str) and name.strip() for name in names)
        for names in members.values()
    )
    if not valid:
        raise wrong_type("fit", "members", expected, members)
    if missing := len(labels - set(members)):
        got = f"a mapping that lacks {missing} types of the texts"
        raise InvalidInputError.of("fit", "members", expected, got)
    return {str(label): tuple(names) for label, names in members.items()}


TEXT_METHODS: dict[str, TextMethod] = {
    "redact": TextMethod(
        "redact", "every character of the concept becomes *, before the text is encoded", _redact
    ),
    "replace-random": TextMethod(
        "replace-random",
        "each word of the concept becomes a random word of the texts, before the text is encoded",
        _replace_random,
        options=("words", "min_word_texts"),
    ),
    "replace-semantic": TextMethod(
        "replace-semantic",
        "each mention becomes a random member of the same type, before the text is encoded",
        _replace_semantic,
        options=("members", "locales", "count"),
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class TextPlaceholder(Mechanism):
    """Placeholder mechanism of text-level protectors, which rewrite texts and reject vectors."""

    size: int
    kind: str = "redact"

    name: ClassVar[str] = "texts-only"
    is_random: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"TextPlaceholder(n={self.size})"

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def step(self) -> float:
        return 0.0

    def _refuse(self, X: Embeddings) -> NoReturn:
        why = "It rewrites texts before they are encoded; vectors already hold the concept."
        raise InvalidInputError.of("Protector.protect", "X", f"left out for method {self.kind!r}", "vectors",
                                   why, "Call encode or rewrite with texts.")  # fmt: skip

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        self._refuse(X)

    def without_noise(self, X: Embeddings) -> Embeddings:
        self._refuse(X)

    def check_rows(self, X: Embeddings) -> None:
        self._refuse(X)

    def noise_covariance(self) -> Matrix:
        return np.zeros((self.size, self.size))

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        what, same, shows = REPLACEMENTS[self.kind]
        return rewriting_guarantee(dimension=self.size, what=what, same=same, shows=shows)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {}

    def parameters(self) -> dict[str, float]:
        return {}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        # The caller knows the rewriter and sets the kind.
        return cls(dimension)


def rewriter_from_record(record: Mapping[str, Any]) -> Rewriter:
    """Return the rewriter of a protector file; ValueError, LookupError or TypeError for a wrong record."""
    concept, seed, kind = concept_from_record(record["concept"]), record["seed"], record["kind"]
    # type, not isinstance: True is an int.
    if type(seed) is not int or seed < 0:
        raise ValueError("seed")
    if kind == Redacting.kind:
        return Redacting(concept, seed)
    if kind == ReplacingAtRandom.kind:
        words = _strings(record["words"])
        if not words:
            raise ValueError("words")
        return ReplacingAtRandom(concept, seed, words)
    if kind == ReplacingByMembers.kind:
        members = {str(label): _strings(names) for label, names in record["members"].items()}
        return ReplacingByMembers(concept, seed, members)
    raise ValueError("kind")


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError("words")
    return tuple(value)


def released_rows(
    clean: Embeddings, released: Embeddings, *, owner: str
) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
    """Return a release for utility tasks: the row of ``released`` of the same text as each row of ``clean``."""
    # Tasks pass vectors, not row numbers; equal vectors have equal releases, as nothing is random.
    place = {np.asarray(row, dtype=np.float32).tobytes(): i for i, row in enumerate(clean)}

    def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
        if rng is None:
            return X
        try:
            rows = [place[np.asarray(row, dtype=np.float32).tobytes()] for row in X]
        except KeyError:
            why = "A task holds vectors, and the method can rewrite only known texts."
            constraint = "tasks on these texts for a method that rewrites texts"
            raise InvalidInputError.of(owner, "tasks", constraint, "one on other texts", why) from None
        return np.ascontiguousarray(released[rows])

    return release
