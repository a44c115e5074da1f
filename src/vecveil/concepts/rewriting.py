"""Rewriters: replace a concept in a text before the text is encoded.

Texts in which the detectors find nothing are returned as they are: what a detector misses stays.
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
from vecveil.validation import check_count, check_texts

__all__ = [
    "PROVIDERS",
    "Redacting",
    "ReplacingAtRandom",
    "ReplacingByMembers",
    "Rewriter",
    "made_up_members",
]

ROUNDS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Rewriter(ABC):
    """Rewrites texts; the same text always comes out the same.

    What takes the concept's place never depends on what stood there, but for its length or number of words: whoever
    has the seed and candidate texts that differ in the concept alone gets the same text from all of them.

    Attributes:
        concept: what is found and replaced.
        seed: of what is drawn.
    """

    concept: Concept
    seed: int = 0

    kind: ClassVar[str]
    leaves_members: ClassVar[bool] = False
    """Whether members of the concept are put in place of others, so that it is found in what comes out."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.concept.name!r})"

    @property
    def needs_spans(self) -> bool:
        """Whether the concept's spans were given for certain texts, so that others need spans of their own."""
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
            spans: where the concept is, for each text; None finds it.

        Raises:
            InvalidInputError: spans outside their text, or none given for a concept of given spans.
            ReleaseError: the concept is still found in what came out; nothing is returned.
        """
        owner = "Rewriter.rewrite"
        texts = check_texts(texts, owner=owner, min_rows=0)
        if spans is not None:
            given = AnnotatedSpans(spans, owner=owner).detect(texts)
            rows = [merge_spans(text, row) for text, row in zip(texts, given, strict=True)]
        elif self.needs_spans:
            raise InvalidInputError.of(owner, "spans", "given for a concept of given spans", None,
                                       "Those that it has belong to other texts by position.")  # fmt: skip
        else:
            self.concept.require_spans(owner)
            rows = self.concept.detect(texts, show_progress=show_progress)
        written = [
            self._rewritten(text, row) if row else text
            for text, row in zip(texts, rows, strict=True)
        ]
        return written if self.leaves_members else self._without_rest(written, rows)

    def _without_rest(self, written: list[str], rows: Sequence[Sequence[Span]]) -> list[str]:
        """Blacken what the replacement has joined into a new match; refuse what cannot be."""
        detectors = [d for d in self.concept.detectors if getattr(d, "rescans", False)]
        todo = [i for i, row in enumerate(rows) if row] if detectors else []
        # Blackening can create a new match; a pattern that matches asterisks never ends.
        for _ in range(ROUNDS):
            again = detect_all("", detectors, [written[i] for i in todo], show_progress=False)
            left = [(i, row) for i, row in zip(todo, again, strict=True) if row]
            for i, row in left:
                written[i] = redact(written[i], row)
            todo = [i for i, _ in left]
            if not todo:
                return written
        raise ReleaseError(
            f"Rewriter.rewrite: the concept is still found in {len(todo)} of {len(written)} texts after it was "
            "blackened, so nothing was returned. Make its patterns match no asterisks."
        )

    @abstractmethod
    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        """Return ``text`` with its spans replaced."""

    def draws(self, text: str, spans: Sequence[Span]) -> np.random.Generator:
        """Return the generator of one text, from the seed and what stands around the concept."""
        # The generator must not depend on the concept's own words, or it would reveal them.
        around = replace(text, spans, lambda span: f"\0{span.label}\0")
        key = f"vecveil.rewriting/1 {self.kind} {self.seed}".encode()
        digest = hmac.new(key, around.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def settings(self) -> dict[str, Any]:
        """Return what else decides the outcome, JSON-ready; it may hold words of the texts."""
        return {}

    def counts(self) -> dict[str, Any]:
        """Return numbers about the settings, for a report; no word is in it."""
        return {}

    def to_record(self) -> dict[str, Any]:
        """Return everything that is needed to rewrite again: terms, patterns and lists of words in clear.

        Raises:
            ConceptError: the concept cannot be saved (`vecveil.concepts.concept`).
        """
        concept = concept_record(self.concept, owner="Protector.save")
        return {"kind": self.kind, "seed": self.seed, "concept": concept, **self.settings()}

    def identity(self) -> dict[str, Any]:
        """Return what tells rewriters apart: the record, or where there is none, this object alone."""
        try:
            return self.to_record()
        except ConceptError:  # a detector that nothing is known of: equal to none
            return {"kind": self.kind, "seed": self.seed, "own": self._own, **self.settings()}

    @cached_property
    def _own(self) -> str:
        return secrets.token_hex(16)


@dataclass(frozen=True, eq=False, repr=False)
class Redacting(Rewriter):
    """Every character of a span becomes ``*`` (the RemovePII of SPARSE, appendix F.3); lengths stay."""

    kind: ClassVar[str] = "redact"

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        return redact(text, spans)


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
        # Drop words that the concept itself would find.
        if not any(getattr(detector, "positional", False) for detector in concept.detectors):
            rows = concept.detect(known, show_progress=False)
            known = [word for word, spans in zip(known, rows, strict=True) if not spans]
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
        terms_of: dict[str, dict[str, str]] = defaultdict(dict)
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            for span in spans:
                terms_of[span.label].setdefault(span.term, text[span.start : span.end])
        fewest = min((len(terms) for terms in terms_of.values()), default=0)
        if fewest < FEWEST_MEMBERS:
            raise ConceptError.of("fit", "texts", "with two members or more of every type of the concept",
                                  f"a type with {fewest}", "A member of its type takes the place of each.",
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
    labels = sorted(set(types))
    unknown = sum(label.upper() not in PROVIDERS for label in labels)
    if unknown:
        raise ConceptError.of("fit", "members",
                              "'own', or lists of your own, for types that Faker knows nothing of",
                              f"{unknown} such", f"It makes up {', '.join(sorted(PROVIDERS))}.")  # fmt: skip
    source = FakerSource(
        {label: [PROVIDERS[label.upper()]] for label in labels}, locales=locales, count=count
    )
    context = ExpansionContext((), (), np.zeros(0, dtype=np.intp), seed=seed)
    return {label: tuple(sorted(values)) for label, values in source.members(context).items()}
