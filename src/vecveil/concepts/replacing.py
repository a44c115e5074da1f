"""Rewriters that put other words in place of a concept: random ones, or other members of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from vecveil.concepts.concept import Concept
from vecveil.concepts.matches import ConceptMatches
from vecveil.concepts.rewriter import Rewriter
from vecveil.concepts.rewriting import replace
from vecveil.concepts.spans import Span
from vecveil.errors import ConceptError
from vecveil.validation import check_count

__all__ = ["ReplacingAtRandom", "ReplacingByMembers"]

_WORD = re.compile(r"\w+")
FEWEST_WORDS = 20
FEWEST_MEMBERS = 2


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingAtRandom(Rewriter):
    """Each word of a span becomes a random one of ``words``, with one space between."""

    words: tuple[str, ...] = ()

    kind: ClassVar[str] = "replace-random"

    @classmethod
    def of(
        cls,
        matches: ConceptMatches,
        concept: Concept,
        *,
        seed: int = 0,
        count: int = 2000,
        min_texts: int = 5,
    ) -> Self:
        """Return the rewriter with the most frequent words of the texts beside the concept.

        Args:
            matches: what ``concept`` found in the texts.
            count: words at most. More hides better which replacement is one, and puts more of the texts' words into
                a saved protector.
            min_texts: a word counts if so many texts hold it outside the concept; rare ones may be names.

        Raises:
            ConceptError: fewer than 20 words.
        """
        owner = "ReplacingAtRandom.of"
        count = check_count(count, owner=owner, param="words")
        least = check_count(min_texts, owner=owner, param="min_word_texts")
        held: Counter[str] = Counter()
        own: set[str] = set()
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            held.update(set(_WORD.findall(replace(text, spans, lambda _: " ").casefold())))
            own.update(word for span in spans for word in _WORD.findall(span.term))
        known = sorted(
            (word for word, texts in held.items() if texts >= least and word not in own),
            key=lambda word: (-held[word], word),
        )
        if not any(getattr(detector, "positional", False) for detector in concept.detectors):
            found = concept.detect(known, show_progress=False)
            known = [word for word, spans in zip(known, found, strict=True) if not spans]
        if len(known) < FEWEST_WORDS:
            raise ConceptError.of("fit", "texts",
                                  f"with {FEWEST_WORDS} words that {least} texts hold beside the concept",
                                  len(known), "Words in place of the concept are drawn from them.",
                                  "Give more texts, or lower min_word_texts.")  # fmt: skip
        return cls(concept, seed, tuple(sorted(known[:count])))

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        rng = self.draws(text, spans)

        def fill(span: Span) -> str:
            count = len(_WORD.findall(text[span.start : span.end]))
            return " ".join(
                self.words[i] for i in rng.integers(len(self.words), size=max(count, 1))
            )

        return replace(text, spans, fill)

    def settings(self) -> dict[str, Any]:
        """Return the words."""
        return {"words": list(self.words)}

    def counts(self) -> dict[str, Any]:
        """Return their number."""
        return {"words": len(self.words)}


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingByMembers(Rewriter):
    """Each span becomes a member of the same type, the same term the same one within a text.

    It is drawn without regard to what stood there, so that of k members it is by chance the same one in 1/k of texts:
    a draw of the others alone would tell which it was not. A span whose type has no member is blackened.

    Attributes:
        members: for each type (label of the spans) its members, as they were first written.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    kind: ClassVar[str] = "replace-semantic"
    leaves_members: ClassVar[bool] = True

    @classmethod
    def of(cls, matches: ConceptMatches, concept: Concept, *, seed: int = 0) -> Self:
        """Return the rewriter with the members that ``matches`` found in the texts.

        Raises:
            ConceptError: a type has one member alone, so that nothing can take its place.
        """
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            for span in spans:
                found[span.label].setdefault(span.term, text[span.start : span.end])
        fewest = min((len(terms) for terms in found.values()), default=0)
        if fewest < FEWEST_MEMBERS:
            raise ConceptError.of("fit", "texts", "with two members or more of every type of the concept",
                                  f"a type with {fewest}", "A member of its type takes the place of each.",
                                  "Give more texts, or take members='faker' or method 'redact'.")  # fmt: skip
        members = {label: tuple(sorted(terms.values())) for label, terms in sorted(found.items())}
        return cls(concept, seed, members)

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        rng = self.draws(text, spans)
        chosen: dict[tuple[str, str], str] = {}
        left: dict[str, list[str]] = {}

        def fill(span: Span) -> str:
            own = self.members.get(span.label, ())
            if not own:
                return "*" * (span.end - span.start)
            if (span.label, span.term) not in chosen:
                rest = left.get(span.label) or [own[i] for i in rng.permutation(len(own))]
                chosen[span.label, span.term] = rest[-1]
                left[span.label] = rest[:-1]
            return chosen[span.label, span.term]

        return replace(text, spans, fill)

    def settings(self) -> dict[str, Any]:
        """Return the members."""
        return {"members": {label: list(own) for label, own in self.members.items()}}

    def counts(self) -> dict[str, Any]:
        """Return how many members the types have."""
        sizes = [len(own) for own in self.members.values()]
        return {"types": len(sizes), "fewest_members": min(sizes, default=0), "members": sum(sizes)}
