"""Rewriters: replace a concept in a text before it is encoded.

Texts without a match stay unchanged: rewriting misses what the detector misses.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import re
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np

from vecveil.errors import ConceptError, InvalidInputError, KeyFileError, ReleaseError, optional_import
from vecveil.keys import KeyFile, NoiseKey, placed_source
from vecveil.privacy.concepts.concept import AnnotatedSpans, Concept, concept_record
from vecveil.privacy.concepts.matching import Span, detect_all, merge_spans, redact, remove, replace
from vecveil.privacy.concepts.pairs import ConceptMatches
from vecveil.texts.folding import canonical, plain
from vecveil.types import Texts
from vecveil.validation import check_count, check_texts

ROUNDS = 4  # further rounds mean a pattern that matches asterisks


@dataclass(frozen=True, eq=False, repr=False)
class Rewriter(ABC):
    """Rewrites texts deterministically: equal texts and ``seed`` give equal results.

    Except for surrogates, the replacement depends on the length or number of the replaced words only: an attacker with
    the seed and candidate texts that differ in the concept alone gets the same text from all of them.
    """

    concept: Concept
    seed: int = 0

    kind: ClassVar[str]
    leaves_members: ClassVar[bool] = False
    """True if the output contains members of the concept, so that detectors still match it."""
    becomes: ClassVar[str]
    alike: ClassVar[str]
    shows: ClassVar[tuple[str, ...]]
    """For the guarantee: what replaces a span, what equally rewritten spans share, what remains visible."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.concept.name!r})"

    @property
    def needs_spans(self) -> bool:
        """True if the concept's spans belong to certain texts, so that other texts need their own spans."""
        return any(getattr(detector, "positional", False) for detector in self.concept.detectors)

    @final
    def rewrite(
        self, texts: Texts, *, spans: Sequence[Sequence[Span]] | None = None, show_progress: bool | None = None
    ) -> list[str]:
        """Return the rewritten texts; raise `ReleaseError` if the concept still matches. None detects spans."""
        owner = "Rewriter.rewrite"
        texts = check_texts(texts, owner=owner, min_rows=0)
        if spans is not None:
            given = AnnotatedSpans(spans, owner=owner).detect(texts)
            rows = [merge_spans(text, row) for text, row in zip(texts, given, strict=True)]
        elif self.needs_spans:
            raise InvalidInputError(
                "The rewriter's concept has given spans, which belong to other texts by position. Pass `spans` "
                "of these texts.",
                param="spans",
            )
        else:
            self.concept.require_spans(owner)
            rows = self.concept.detect(texts, show_progress=show_progress)
        written = [self._rewritten(text, row) if row else text for text, row in zip(texts, rows, strict=True)]
        return written if self.leaves_members else self._without_rest(written, rows)

    def _without_rest(self, written: list[str], rows: Sequence[Sequence[Span]]) -> list[str]:
        """Redact matches that the replacement joined; raise if some cannot be removed."""
        detectors = [d for d in self.concept.detectors if getattr(d, "rescans", False)]
        todo = [i for i, row in enumerate(rows) if row] if detectors else []
        # Redaction can create a new match; for a pattern that matches asterisks it never ends.
        for _ in range(ROUNDS):
            again = detect_all("", detectors, [written[i] for i in todo], show_progress=False)
            left = [(i, row) for i, row in zip(todo, again, strict=True) if row]
            for i, row in left:
                written[i] = self._cleared(written[i], row)
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

    def _cleared(self, text: str, spans: Sequence[Span]) -> str:
        """Return a rewritten ``text`` without spans that the replacement joined."""
        return redact(text, spans)

    def draws(self, text: str, spans: Sequence[Span]) -> np.random.Generator:
        """Return the random generator of one text, from the seed and the text around the concept."""
        # If the draws depended on the concept's words, an attacker with the seed could test guesses.
        around = replace(text, spans, lambda span: f"\0{span.label}\0")
        key = f"vecveil.rewriting/1 {self.kind} {self.seed}".encode()
        digest = hmac.new(key, around.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def with_key(self, source: Any) -> Rewriter:
        """Return the rewriter with the key of its surrogates; see `ReplacingBySurrogates.of`."""
        raise InvalidInputError(
            f"The method {self.kind!r} has no surrogates: leave out `surrogate_key`.", param="surrogate_key"
        )

    def settings(self) -> dict[str, Any]:
        """Return the JSON-ready settings that determine the output; they may contain words of the texts."""
        return {}

    def counts(self) -> dict[str, Any]:
        """Return counts of the settings for a report, without any word."""
        return {}

    def to_record(self) -> dict[str, Any]:
        """Return all needed to rewrite again, in plain text; raise `ConceptError` if the concept cannot be saved."""
        concept = concept_record(self.concept, owner="Protector.save")
        return {"kind": self.kind, "seed": self.seed, "concept": concept, **self.settings()}

    def identity(self) -> dict[str, Any]:
        """Return the record, or a random value if there is none: rewriters with equal values rewrite equally."""
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
    becomes: ClassVar[str] = "asterisks"
    alike: ClassVar[str] = "lengths"
    shows: ClassVar[tuple[str, ...]] = ("That the text contains the concept, where, and how many characters long.",)

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
    becomes: ClassVar[str] = "random words of other texts"
    alike: ClassVar[str] = "numbers of words"
    shows: ClassVar[tuple[str, ...]] = ("That words were replaced, where and how many: they fit the sentence badly.",)

    @classmethod
    def of(
        cls, matches: ConceptMatches, concept: Concept, *, seed: int = 0, count: int = 2000, min_texts: int = 5
    ) -> Self:
        """Return the rewriter with the most frequent words of the texts outside the concept, at least 20.

        Args:
            matches: of ``concept`` in the texts.
            count: maximum number of words. More words disguise the replacement better, and put more of the texts' words
                into a saved protector.
            min_texts: minimum number of texts with the word outside the concept; rare words may be names.
        """
        held: Counter[str] = Counter()
        own: set[str] = set()
        for text, spans in zip(matches.texts, matches.spans, strict=True):
            # Each text counts a word once: a word repeated in one private text must not look common.
            held.update(set(_WORD.findall(canonical(replace(text, spans, lambda _: " ")))))
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
            raise ConceptError(
                f"Only {len(known)} words outside the concept are in {min_texts} texts or more; replacements are "
                f"drawn from at least {FEWEST_WORDS}. Give more texts, or lower `min_word_texts`.",
                param="texts",
            )
        return cls(concept, seed, tuple(sorted(known[:count])))

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        rng = self.draws(text, spans)

        def fill(span: Span) -> str:
            # one word even for a span of symbols
            count = len(_WORD.findall(span.term))
            return " ".join(self.words[i] for i in rng.integers(len(self.words), size=max(count, 1)))

        return replace(text, spans, fill)

    def settings(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    def counts(self) -> dict[str, Any]:
        return {"words": len(self.words)}


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingByMembers(Rewriter):
    """Replaces each span by one of the ``members`` of its type; equal terms of a text get equal members.

    The draw ignores the replaced term, so with k members it draws the term itself in 1/k of the texts: a draw among the
    others alone would reveal which term it was not. A span whose type has no member is redacted.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    kind: ClassVar[str] = "replace-semantic"
    leaves_members: ClassVar[bool] = True
    becomes: ClassVar[str] = "a member of the same type, drawn at random"
    alike: ClassVar[str] = "types and repetitions"
    shows: ClassVar[tuple[str, ...]] = (
        "That the text contains the concept, where, and of which type.",
        "The members themselves, if they come from your texts: they now occur in other texts.",
    )

    @classmethod
    def of(cls, matches: ConceptMatches, concept: Concept, *, seed: int = 0) -> Self:
        """Return the rewriter with the members in ``matches``; each type needs at least two."""
        members = members_of(matches.texts, matches.spans)
        fewest = min(map(len, members.values()), default=0)
        if fewest < FEWEST_MEMBERS:
            raise ConceptError(
                f"A type of the concept has {fewest} members in the texts; replacing each mention by a member of "
                f"its type needs {FEWEST_MEMBERS}. Give more texts, or take members='faker' or method 'redact'.",
                param="texts",
            )
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
                # Draw without replacement within a text: two people stay two people until the members run out.
                rest = left.get(span.label) or [own[i] for i in rng.permutation(len(own))]
                chosen[span.label, span.term] = rest[-1]
                left[span.label] = rest[:-1]
            return chosen[span.label, span.term]

        return replace(text, spans, fill)

    def settings(self) -> dict[str, Any]:
        return {"members": {label: list(own) for label, own in self.members.items()}}

    def counts(self) -> dict[str, Any]:
        sizes = [len(own) for own in self.members.values()]
        return {"types": len(sizes), "fewest_members": min(sizes, default=0), "members": sum(sizes)}


def members_of(texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> dict[str, tuple[str, ...]]:
    terms_of: dict[str, dict[str, str]] = defaultdict(dict)
    for text, row in zip(texts, spans, strict=True):
        for span in row:
            # Several spellings of a term count as one member, the first one.
            written = plain(text[span.start : span.end]).replace("\n", " ")
            terms_of[span.label].setdefault(span.term, written)
    return {label: tuple(sorted(terms.values())) for label, terms in sorted(terms_of.items())}


@dataclass(frozen=True, eq=False, repr=False)
class Deleting(Rewriter):
    """Removes each span as `vecveil.fit` does for its pairs; a text without other words becomes a dash."""

    kind: ClassVar[str] = "delete"
    becomes: ClassVar[str] = "nothing"
    alike: ClassVar[str] = "places"
    shows: ClassVar[tuple[str, ...]] = ("That words are missing, where the sentence shows it.",)

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        # Some services refuse to embed an empty text.
        return remove(text, spans) or "-"

    _cleared = _rewritten


NOUNS = {
    "a person": "PERSON PER PATIENT NAME STAFF",
    "a group": "NORP NRP",
    "a place": "LOCATION LOC GPE FAC",
    "an organization": "ORG ORGANIZATION COMPANY",
    "a date": "DATE DATE_TIME",
    "a time": "TIME",
    "a number": "CARDINAL ORDINAL QUANTITY PERCENT",
    "an amount of money": "MONEY",
    "an email address": "EMAIL EMAIL_ADDRESS",
    "a phone number": "PHONE PHONE_NUMBER",
    "a card number": "CREDIT_CARD",
    "an account number": "IBAN IBAN_CODE US_BANK_NUMBER CRYPTO",
    "an identity number": "ID US_SSN US_PASSPORT US_ITIN US_DRIVER_LICENSE UK_NHS MEDICAL_LICENSE",
    "a network address": "IP_ADDRESS MAC_ADDRESS",
    "a web page": "URL",
    "a product": "PRODUCT",
    "an event": "EVENT",
    "a work": "WORK_OF_ART",
    "a law": "LAW",
    "a language": "LANGUAGE",
    "a drug": "DRUG MEDICATION",
    "a chemical": "CHEMICAL",
    "a disease": "DISEASE PROBLEM",
    "a gene": "GENE PROTEIN",
    "something": "MISC",
}
"""Maps labels of Presidio, spaCy and common models to the nouns that replace their entities."""
_DETERMINER = re.compile(
    r"\b(?:an?|the|this|that|these|those|my|your|his|her|its|our|their|no|each|every|any|some)\s+$", re.IGNORECASE
)


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingByHypernyms(Rewriter):
    """Replaces each span by the noun (hypernym) of its label: "ibuprofen" becomes "a drug".

    Attributes:
        nouns: by label; "" is the noun of all other labels.
    """

    nouns: Mapping[str, str] = field(default_factory=dict)

    kind: ClassVar[str] = "hypernym"
    becomes: ClassVar[str] = "the noun of their type"
    alike: ClassVar[str] = "types"
    shows: ClassVar[tuple[str, ...]] = ("That the text contains the concept, where, and of which type.",)

    @classmethod
    def of(cls, concept: Concept, nouns: Mapping[str, str], *, name: str, seed: int = 0) -> Self:
        """Return the rewriter with `NOUNS` and the caller's ``nouns``; the concept's ``name`` is the last resort."""
        known = {label: noun for noun, labels in NOUNS.items() for label in labels.split()}
        words = re.sub(r"[\W_]+", " ", name).strip().lower() or "thing"
        own = known.get(name.upper(), f"{'an' if words[0] in 'aeiou' else 'a'} {words}")
        rewriter = cls(concept, seed, {**known, "": own, **nouns})
        # Otherwise the second pass, which looks for joined matches, would redact every noun.
        every = list(dict.fromkeys(rewriter.nouns.values()))
        rescanning = [d for d in concept.detectors if getattr(d, "rescans", False)]
        matches = detect_all("", rescanning, every, show_progress=False)
        if count := sum(map(bool, matches)):
            raise ConceptError(
                f"The detector matches {count} of the nouns that replace it. Give nouns by label, '' for others: "
                "hypernyms={'': 'one'}.",
                param="hypernyms",
            )
        return rewriter

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        def noun(span: Span) -> str:
            named = self.nouns.get(span.label) or self.nouns.get(span.label.upper()) or self.nouns[""]
            # "the ibuprofen" becomes "the drug", not "the a drug".
            determined = _DETERMINER.search(text[max(0, span.start - 12) : span.start])
            return re.sub(r"^an? ", "", named) if determined else named

        return replace(text, spans, noun)

    def settings(self) -> dict[str, Any]:
        return {"nouns": dict(self.nouns)}


def _key_of(source: Any, key_id: str | None = None) -> NoiseKey:
    keys = source if isinstance(source, KeyFile | NoiseKey) else KeyFile.of(source)
    return keys.key(key_id) if isinstance(keys, KeyFile) else keys


_POSSESSIVES = ("'s", "’s")


def _written_like(member: str, original: str) -> str:
    """Return ``member`` with the capitals and possessive form of ``original``; names keep their initial capital."""
    ending = next((end for end in _POSSESSIVES if original.endswith(end)), "")
    if ending and not member.endswith(_POSSESSIVES):
        original = original[: -len(ending)]
    else:
        ending = ""  # the member brings its own possessive, or none was there
    letters = [char for char in original if char.isalpha()]
    # One capital letter alone ("I", "A") does not make a word in capitals.
    if len(letters) > 1 and all(char.isupper() for char in letters):
        member = member.upper()
    elif letters and original[0].isupper():
        member = member[:1].upper() + member[1:]
    return member + ending


@dataclass(frozen=True, eq=False, repr=False)
class ReplacingBySurrogates(Rewriter):
    """Replaces each span by another member of its type, chosen by a secret key: the same for the same term.

    HMACs under the key order the members of a type, and the next member replaces each term: never the term itself, and
    different members for different terms. A span whose type has fewer than two members is redacted.

    Attributes:
        members: for each type its members, as first written.
        key_id, key_check: id and check value of the key.
        source: ``env:NAME`` or the path of the key file, or None.
        key: the key, if it is available. It is never saved.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key_id: str = ""
    key_check: str = ""
    source: str | None = None
    key: NoiseKey | None = None

    kind: ClassVar[str] = "surrogate"
    leaves_members: ClassVar[bool] = True
    becomes: ClassVar[str] = "another member of the same type, which a secret key chooses"
    alike: ClassVar[str] = "surrogates"
    shows: ClassVar[tuple[str, ...]] = (
        "That the text contains the concept, where, of which type, and which texts name the same member.",
        "The member behind a surrogate, to whoever has the key or knows texts in clear: it is the same everywhere.",
    )

    @classmethod
    def of(cls, concept: Concept, members: Mapping[str, tuple[str, ...]], source: Any, *, seed: int = 0) -> Self:
        """Return the rewriter; ``source`` is a noise key, keys, a key file's path, or ``env:NAME``."""
        key = _key_of(source)
        if max(map(len, members.values()), default=0) < FEWEST_MEMBERS:
            raise ConceptError(
                "No type of the concept has two members in the texts. Give more texts, or surrogates='faker'.",
                param="texts",
            )
        named = None if isinstance(source, KeyFile | NoiseKey) else placed_source(source)
        return cls(concept, seed, members, key.key_id, key.check_value, named, key)

    def with_key(self, source: Any) -> ReplacingBySurrogates:
        return replace_fields(self, key=_key_of(source, self.key_id))

    @cached_property
    def _rings(self) -> dict[str, tuple[list[bytes], list[str]]]:
        """Sorted HMACs of the members of each type, and the members in that order."""
        rings = {}
        for label, own in self.members.items():
            different = {canonical(member): member for member in own}
            order = sorted((self._place(label, term), member) for term, member in different.items())
            rings[label] = ([place for place, _ in order], [member for _, member in order])
        return rings

    @cached_property
    def _secret(self) -> NoiseKey:
        key = self.key
        if key is None and self.source is not None:
            key = _key_of(self.source, self.key_id)
        if key is None or key.check_value != self.key_check:
            got = "no key" if key is None else "another key"
            raise KeyFileError(
                f"Rewriting needs the surrogate key {self.key_id!r} of the fit, and {got} was given. Name it with "
                "vecveil.load(path, surrogate_key=...).",
                param="surrogate_key",
            )
        return key

    def _place(self, label: str, term: str) -> bytes:
        return self._secret.surrogate_digest(label, term)

    def _rewritten(self, text: str, spans: Sequence[Span]) -> str:
        def surrogate(span: Span) -> str:
            written = text[span.start : span.end]
            places, ring = self._rings.get(span.label, ([], []))
            if len(ring) < FEWEST_MEMBERS:
                return "*" * len(written)
            after = bisect_right(places, self._place(span.label, span.term))
            return _written_like(ring[after % len(ring)], written)

        return replace(text, spans, surrogate)

    def settings(self) -> dict[str, Any]:
        members = {label: list(own) for label, own in self.members.items()}
        return {"members": members, "key_id": self.key_id, "key_check": self.key_check, "source": self.source}

    def counts(self) -> dict[str, Any]:
        return {"types": len(self.members), "members": sum(map(len, self.members.values()))}


PROVIDERS = {
    "PERSON": "name",
    "PER": "name",
    "LOCATION": "city",
    "LOC": "city",
    "GPE": "city",
    "ORG": "company",
    "ORGANIZATION": "company",
    "EMAIL_ADDRESS": "email",
    "EMAIL": "email",
    "PHONE_NUMBER": "phone_number",
    "PHONE": "phone_number",
    "CREDIT_CARD": "credit_card_number",
    "IBAN_CODE": "iban",
    "IBAN": "iban",
    "IP_ADDRESS": "ipv4",
    "URL": "url",
    "US_SSN": "ssn",
    "US_BANK_NUMBER": "bban",
    "DATE_TIME": "date",
    "DATE": "date",
}
"""Faker's provider for each entity type of Presidio, spaCy and common models."""


def made_up_members(
    types: Iterable[str], *, locales: Sequence[str] = ("en_US",), count: int = 500, seed: int = 0
) -> dict[str, tuple[str, ...]]:
    """Return at most ``count`` distinct values per type; raise `ConceptError` for a type without a Faker provider."""
    labels = sorted(set(types))
    unknown = sum(label.upper() not in PROVIDERS for label in labels)
    if unknown:
        raise ConceptError(
            f"Faker has no provider for {unknown} types of the concept. Use members='own' or lists of members; "
            f"Faker has {', '.join(sorted(PROVIDERS))}.",
            code="E-CONCEPT-TYPES",
            param="members",
        )
    locales = (locales,) if isinstance(locales, str) else tuple(locales)
    count = check_count(count, owner="fit", param="count")
    with optional_import("Making members up", "faker", "faker"):
        import faker
    # Faker reads and advances Python's global generator; the caller's state must not change.
    state = random.getstate()
    try:
        maker: Any = faker.Faker(list(locales))
    except (AttributeError, ValueError, ImportError) as error:
        got = ", ".join(map(repr, locales))
        raise InvalidInputError(f"Faker does not have all of the `locales` {got}.", param="locales") from error
    finally:
        random.setstate(state)
    maker.seed_instance(seed)
    return {label: _made_up(getattr(maker, PROVIDERS[label.upper()]), count) for label in labels}


def _made_up(make: Callable[[], Any], count: int) -> tuple[str, ...]:
    values: set[str] = set()
    # A provider with few values repeats them, so limit the number of draws.
    for _ in range(5 * count):
        values.add(str(make()).replace("\n", ", "))  # addresses span lines
        if len(values) == count:
            break
    return tuple(sorted(values))
