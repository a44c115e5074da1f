"""Rewriters: replace a concept in a text before the text is encoded.

Texts without a match are returned unchanged: what a detector misses stays.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np

from vecveil.concepts.annotated import AnnotatedSpans
from vecveil.concepts.concept import Concept, concept_record
from vecveil.concepts.matching import Span, detect_all, merge_spans, redact, replace
from vecveil.concepts.member_sources import ExpansionContext, FakerSource
from vecveil.concepts.pairs import ConceptMatches
from vecveil.errors import ConceptError, InvalidInputError, ReleaseError
from vecveil.types import Texts
from vecveil.validation import check_texts

__all__ = [
    "Redacting",
    "ReplacingAtRandom",
    "ReplacingByMembers",
    "Rewriter",
    "made_up_members",
]

ROUNDS = 4  # further rounds mean a pattern that matches asterisks


@dataclass(frozen=True, eq=False, repr=False)
class Rewriter(ABC):
    """Rewrites texts; equal texts give equal results.

    The replacement never depends on the replaced words, except on their length or number: whoever has the seed and
    candidate texts that differ in the concept alone gets the same text from all of them.

    Attributes:
        concept: the concept to find and replace.
        seed: of the random draws.
    """

    concept: Concept
    seed: int = 0

    kind: ClassVar[str]
    leaves_members: ClassVar[bool] = False
    """True if the output holds members of the concept, so that detectors still match it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.concept.name!r})"

    @property
    def needs_spans(self) -> bool:
        """True if the concept's spans belong to certain texts, so that other texts need spans too."""
        return any(getattr(detector, "positional", False) for detector in self.concept.detectors)

    @final
    def rewrite(
        self,
        texts: Texts,
        *,
        spans: Sequence[Sequence[Span]] | None = None,
        show_progress: bool | None = None,
    ) -> list[str]:
        """Return ``texts`` rewritten, one for each.

        Args:
            spans: of the concept in each text; None detects them.

        Raises:
            ReleaseError: the concept still matches the output; nothing is returned.
        """
        owner = "Rewriter.rewrite"
        texts = check_texts(texts, owner=owner, min_rows=0)
        if spans is not None:
            given = AnnotatedSpans(spans, owner=owner).detect(texts)
            rows = [merge_spans(text, row) for text, row in zip(texts, given, strict=True)]
        elif self.needs_spans:
            raise InvalidInputError.of(owner, "spans", "given for a concept of given spans", None,
                                       "Its own spans belong to other texts by position.")  # fmt: skip
        else:
            self.concept.require_spans(owner)
            rows = self.concept.detect(texts, show_progress=show_progress)
        written = [
            self._rewritten(text, row) if row else text
            for text, row in zip(texts, rows, strict=True)
        ]
        return written if self.leaves_members else self._without_rest(written, rows)

    def _without_rest(self, written: list[str], rows: Sequence[Sequence[Span]]) -> list[str]:
        """Redact matches that the replacement has joined; raise if some cannot be removed."""
        detectors = [d for d in self.concept.detectors if getattr(d, "rescans", False)]
        todo = [i for i, row in enumerate(rows) if row] if detectors else []
        # Redaction can create a new match; for a pattern that matches asterisks it never ends.
        for _ in range(ROUNDS):
            again = detect_all("", detectors, [written[i] for i in todo], show_progress=False)
            left = [(i, row) for i, row in zip(todo, again, strict=True) if row]
            for i, row in left:
                written[i] = redact(written[i], row)
            todo = [i for i, _ in left]
            if not todo:
                return written
        raise ReleaseError(
            f"Rewriter.rewrite: the concept still matches {len(todo)} of {len(written)} texts after redaction, so "
            "nothing was returned. Change its patterns so that they match no asterisks."
        )

    @abstractmethod
    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        """Return ``text`` with its spans replaced."""

    def draws(self, text: str, spans: Sequence[Span]) -> np.random.Generator:
        """Return the random generator of one text, from the seed and the text around the concept."""
        # A generator that depended on the concept's words would let a holder of the seed test guesses.
        around = replace(text, spans, lambda span: f"\0{span.label}\0")
        key = f"vecveil.rewriting/1 {self.kind} {self.seed}".encode()
        digest = hmac.new(key, around.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the output, JSON-ready; they may hold words of the texts."""
        return {}

    def counts(self) -> dict[str, Any]:
        """Return counts of the settings for a report, without any word."""
        return {}

    def to_record(self) -> dict[str, Any]:
        """Return everything needed to rewrite again: terms, patterns and word lists in clear.

        A concept that cannot be saved raises `ConceptError`.
        """
        concept = concept_record(self.concept, owner="Protector.save")
        return {"kind": self.kind, "seed": self.seed, "concept": concept, **self.settings()}

    def identity(self) -> dict[str, Any]:
        """Return a value that differs between rewriters: the record, or a random one without it."""
        try:
            return self.to_record()
        except ConceptError:  # an unknown detector: equal only to this very object
            return {"kind": self.kind, "seed": self.seed, "own": self._own, **self.settings()}

    @cached_property
    def _own(self) -> str:
        return secrets.token_hex(16)


@dataclass(frozen=True, eq=False, repr=False)
class Redacting(Rewriter):
    """Replaces every character of a span by ``*`` (RemovePII of SPARSE, appendix F.3); lengths stay."""

    kind: ClassVar[str] = "redact"

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        return redact(text, spans)


_WORD = re.compile(r"\w+")
FEWEST_WORDS = 20  # fewer would mark the replacement as one
# a single member would be the same replacement everywhere
FEWEST_MEMBERS = 2


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingAtRandom(Rewriter):
    """Replaces each word of a span by a random one of ``words``, with single spaces between."""

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
        """Return the rewriter with the most frequent words of the texts outside the concept, at least 20.

        Args:
            matches: of ``concept`` in the texts.
            count: largest number of words. More of them disguise the replacement better and put more of the
                texts' words into a saved protector.
            min_texts: least number of texts with the word outside the concept; rare words may be names.
        """
        held: Counter[str] = Counter()
        own: set[str] = set()
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            # Each text counts a word once: a word repeated in one private text must not look common.
            held.update(set(_WORD.findall(replace(text, spans, lambda _: " ").casefold())))
            own.update(word for span in spans for word in _WORD.findall(span.term))
        known = sorted(
            (word for word, texts in held.items() if texts >= min_texts and word not in own),
            key=lambda word: (-held[word], word),
        )
        # Drop words that the concept's detectors match; given spans cannot match a word list.
        if not any(getattr(detector, "positional", False) for detector in concept.detectors):
            rows = concept.detect(known, show_progress=False)
            known = [word for word, spans in zip(known, rows, strict=True) if not spans]
        if len(known) < FEWEST_WORDS:
            raise ConceptError.of("fit", "texts",
                                  f"with {FEWEST_WORDS} words that {min_texts} texts hold beside the concept",
                                  len(known), "The replacements are drawn from them.",
                                  "Give more texts, or lower min_word_texts.")  # fmt: skip
        return cls(concept, seed, tuple(sorted(known[:count])))

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        rng = self.draws(text, spans)

        def fill(span: Span) -> str:
            # one word even for a span of symbols
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
    """Replaces each span by a member of the same type; equal terms of a text get equal members.

    The draw ignores the replaced term, so with k members the term itself is drawn in 1/k of the texts: a
    draw of the others alone would reveal which term it was not. A span whose type has no member is redacted.

    Attributes:
        members: for each type (label of the spans) its members, as first written.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    kind: ClassVar[str] = "replace-semantic"
    leaves_members: ClassVar[bool] = True

    @classmethod
    def of(cls, matches: ConceptMatches, concept: Concept, *, seed: int = 0) -> Self:
        """Return the rewriter with the members in ``matches``; a type needs two, so that one can replace another."""
        terms_of: dict[str, dict[str, str]] = defaultdict(dict)
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            for span in spans:
                # A dictionary by term: several spellings of a term count as one member, the first one.
                terms_of[span.label].setdefault(span.term, text[span.start : span.end])
        fewest = min((len(terms) for terms in terms_of.values()), default=0)
        if fewest < FEWEST_MEMBERS:
            raise ConceptError.of("fit", "texts", "with two members or more of every type of the concept",
                                  f"a type with {fewest}", "Each mention is replaced by a member of its type.",
                                  "Give more texts, or take members='faker' or method 'redact'.")  # fmt: skip
        members = {
            label: tuple(sorted(terms.values())) for label, terms in sorted(terms_of.items())
        }
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
                # Without replacement within a text: two people stay two people until the members run out.
                rest = left.get(span.label) or [own[i] for i in rng.permutation(len(own))]
                chosen[span.label, span.term] = rest[-1]
                left[span.label] = rest[:-1]
            return chosen[span.label, span.term]

        return replace(text, spans, fill)

    def settings(self) -> dict[str, Any]:
        """Return the members."""
        return {"members": {label: list(own) for label, own in self.members.items()}}

    def counts(self) -> dict[str, Any]:
        """Return the numbers of types and members."""
        sizes = [len(own) for own in self.members.values()]
        return {"types": len(sizes), "fewest_members": min(sizes, default=0), "members": sum(sizes)}


PROVIDERS = {
    "PERSON": "name", "PER": "name", "LOCATION": "city", "LOC": "city", "GPE": "city",
    "ORG": "company", "ORGANIZATION": "company", "EMAIL_ADDRESS": "email", "EMAIL": "email",
    "PHONE_NUMBER": "phone_number", "PHONE": "phone_number", "CREDIT_CARD": "credit_card_number",
    "IBAN_CODE": "iban", "IBAN": "iban", "IP_ADDRESS": "ipv4", "URL": "url", "US_SSN": "ssn",
    "US_BANK_NUMBER": "bban", "DATE_TIME": "date", "DATE": "date",
}  # fmt: skip
"""Faker's provider for each entity type of Presidio, spaCy and common models."""


def made_up_members(
    types: Iterable[str], *, locales: Sequence[str] = ("en_US",), count: int = 500, seed: int = 0
) -> dict[str, tuple[str, ...]]:
    """Return at most ``count`` distinct values for each type; equal seeds give equal values.

    A type without a Faker provider raises `ConceptError`.
    """
    labels = sorted(set(types))
    unknown = sum(label.upper() not in PROVIDERS for label in labels)
    if unknown:
        raise ConceptError.of("fit", "members",
                              "'own' or lists of members for types without a Faker provider",
                              f"{unknown} such types", f"Faker has {', '.join(sorted(PROVIDERS))}.",
                              code="E-CONCEPT-TYPES")  # fmt: skip
    source = FakerSource(
        {label: [PROVIDERS[label.upper()]] for label in labels}, locales=locales, count=count
    )
    # FakerSource reads only the seed: neither listed terms nor an encoder are needed.
    context = ExpansionContext((), (), np.zeros(0, dtype=np.intp), seed=seed)
    return {label: tuple(sorted(values)) for label, values in source.members(context).items()}
