"""Concept expansion: put members that the user did not list into the user's own sentences.

A fit hides only what it has seen. Sources propose further members of a concept (`WordListSource`, `FakerSource`,
`CorpusNeighbourSource`, `DetectorSource`, or any object with ``members(context)``); `Concept.expand` substitutes
them for listed terms, so that `vecveil.fit` sees thousands of pairs with words that the texts lack.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.concepts.folding import canonical, words
from vecveil.concepts.matching import Span, merge_spans, remove
from vecveil.concepts.member_sources import (
    CorpusNeighbourSource,
    DetectorSource,
    ExpansionContext,
    FakerSource,
    MemberSource,
    WordListSource,
    centroids_of,
    checked_members,
    cluster_terms,
    nearest,
    unit_vectors,
)
from vecveil.concepts.pairs import ConceptMatches
from vecveil.concepts.terms import TermDetector
from vecveil.errors import ConceptError, InvalidInputError, wrong_type
from vecveil.validation import check_count

__all__ = [
    "CorpusNeighbourSource",
    "DetectorSource",
    "Expansion",
    "ExpansionContext",
    "FakerSource",
    "MemberSource",
    "WordListSource",
    "expand",
]

_VOWEL_SOUND = re.compile(r"[aeiou]", re.IGNORECASE)
# the article at the end of what precedes a term
_ARTICLE = re.compile(r"(?<![^\W_])(an?|An?|AN)(\s+)\Z")
_SIBILANT = ("s", "x", "z", "ch", "sh")
_POSSESSIVES = ("'s", "’s")


def is_plural(term: str, known: frozenset[str]) -> bool:
    """Return whether ``term`` is the English plural of another known term: *Americans* beside *American*.

    Without the known singular a final s may belong to the word (*Paris*).
    """
    folded = term.casefold()
    singulars = []
    if folded.endswith("ies"):
        singulars.append(folded[:-3] + "y")
    if folded.endswith("es"):
        singulars.append(folded[:-2])
    if folded.endswith("s") and not folded.endswith("ss"):
        singulars.append(folded[:-1])
    return any(singular in known for singular in singulars)


def written_like(member: str, original: str, *, plural: bool) -> str:
    """Return ``member`` with the case, plural and possessive form of ``original``.

    All capitals and an initial capital are copied; an initial small letter is not, since names keep
    their capital. ``plural`` adds an English plural to a member of one word that has none.
    """
    ending = next((end for end in _POSSESSIVES if original.endswith(end)), "")
    if ending and not member.endswith(_POSSESSIVES):
        original = original[: -len(ending)]
    else:
        ending = ""  # the member brings its own possessive, or none was there
    # Only single plain words take an English plural safely.
    if plural and " " not in member and member.isalpha() and not member.endswith("s"):
        member = _plural(member)
    letters = [char for char in original if char.isalpha()]
    # One capital letter alone ("I", "A") does not make a word in capitals.
    if len(letters) > 1 and all(char.isupper() for char in letters):
        member = member.upper()
    elif letters and original[0].isupper():
        member = member[:1].upper() + member[1:]
    return member + ending


def substituted(text: str, start: int, end: int, member: str) -> str:
    """Return ``text`` with ``member`` for ``text[start:end]``; *a* or *an* before it is adapted."""
    head = text[:start]
    article = _ARTICLE.search(head)
    if article is not None and text[start:end][:1].isascii() and member[:1].isalpha():
        old, new = (bool(_VOWEL_SOUND.match(word)) for word in (text[start:end], member))
        # Adapt only an article that fitted before: "an hour" breaks the vowel rule and stays.
        if old == (article[1].lower() == "an") and old != new:
            letter = article[1][0]
            n = "N" if article[1] == "AN" else "n"
            head = head[: article.start()] + letter + (n if new else "") + article[2]
    return head + member + text[end:]


def _plural(word: str) -> str:
    folded = word.casefold()
    if folded.endswith(_SIBILANT):
        return word + "es"
    if folded.endswith("y") and not folded.endswith(("ay", "ey", "oy", "uy")):
        return word[:-1] + "ies"
    return word + "s"


@dataclass(frozen=True, eq=False, repr=False)
class MemberPool:
    """Members by group. It holds text: keep it in memory.

    Attributes:
        places: for each member of each group the group of listed terms that it replaces.
        by_source: name of each source, and the numbers of members it proposed and kept.
    """

    groups: tuple[tuple[str, ...], ...]
    places: tuple[tuple[int, ...], ...]
    by_source: tuple[dict[str, int | str], ...]

    def __repr__(self) -> str:
        return f"MemberPool({sum(map(len, self.groups))} members, {len(self.groups)} groups)"


def gather(sources: Sequence[MemberSource], context: ExpansionContext, *, most: int) -> MemberPool:
    """Return at most ``most`` members that are neither listed nor known from an earlier source.

    Groups are cut to one size first, so that a long list of names does not crowd out a short one of numbers.
    """
    seen: set[str] = set()
    groups: list[list[str]] = []
    owners: list[int] = []
    named: list[bool] = []
    proposed: list[int] = []
    rng = np.random.default_rng([context.seed, 1])  # its own stream: other draws do not shift it
    for s, source in enumerate(sources):
        proposals = checked_members(source, source.members(context))
        proposed.append(sum(map(len, proposals.values())))
        for group, members in proposals.items():
            fresh = []
            for member in members:
                key = canonical(member)
                if key not in seen and not context.is_listed(member):
                    seen.add(key)
                    fresh.append(member)
            if fresh:
                groups.append(fresh)
                owners.append(s)
                named.append(bool(group))
    # Cut the largest groups first, so that small ones keep all members.
    size = _fair_size([len(group) for group in groups], most)
    groups = [_drawn(group, size, rng) for group in groups]
    flat = [member for group in groups for member in group]
    places = np.zeros(len(flat), dtype=np.intp)
    if context.centroids is not None and flat:
        # One encoding call for all members of all sources.
        vectors = unit_vectors(context.encoder, flat)
        places = nearest(vectors, context.centroids)[0]
    split: list[tuple[str, ...]] = []
    beside: list[tuple[int, ...]] = []
    counts: Counter[int] = Counter()
    start = 0
    for drawn, owner, has_name in zip(groups, owners, named, strict=True):
        own = places[start : start + len(drawn)].tolist()
        start += len(drawn)
        counts[owner] += len(drawn)
        # A group without a name is split by the listed terms that its members are nearest to.
        parts = [set(own)] if has_name else [{place} for place in sorted(set(own))]
        for part in parts:
            rows = [i for i, place in enumerate(own) if place in part]
            split.append(tuple(drawn[i] for i in rows))
            beside.append(tuple(own[i] for i in rows))
    by_source: list[dict[str, int | str]] = [
        {"source": source.name, "proposed": proposed[s], "members": counts[s]}
        for s, source in enumerate(sources)
    ]
    return MemberPool(tuple(split), tuple(beside), tuple(by_source))


def _fair_size(sizes: Sequence[int], most: int) -> int:
    """Return the largest group size at which all groups together hold at most ``most`` members."""
    low, high = 1, max([*sizes, 1])
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def _drawn(group: list[str], size: int, rng: np.random.Generator) -> list[str]:
    if len(group) <= size:
        return group
    # Sorted rows keep the source's order within the sample.
    rows = np.sort(rng.choice(len(group), size=size, replace=False))
    return [group[i] for i in rows]


@dataclass(frozen=True, slots=True, repr=False)
class ExpandedText:
    """One text of an expansion.

    Attributes:
        text: with a member.
        original: the user's text that it was made of; equal to ``text`` for an occurrence.
        negative: the text without the concept.
        members: canonical, not listed.
        tokens: words of the concept in the text, listed ones and members.
    """

    text: str
    original: str
    negative: str
    members: tuple[str, ...]
    tokens: tuple[str, ...]

    def __repr__(self) -> str:
        return f"ExpandedText({len(self.members)} members)"


def occurrences_of(
    matches: ConceptMatches, pool: MemberPool, most: int, seed: int
) -> list[ExpandedText]:
    """Return at most ``most`` of the user's texts that already hold members, drawn at random.

    A member with a capital matches only with it (*Mark*, not *mark*).
    """
    flat = [member for group in pool.groups for member in group]
    # A name in lower case is often another word, so case decides for capitalised members.
    capital = [member for member in flat if member != member.lower()]
    small = [member for member in flat if member == member.lower()]
    detectors = [
        TermDetector(members, case_sensitive=sensitive, label="member")
        for members, sensitive in ((capital, True), (small, False))
        if members
    ]
    rows: list[ExpandedText] = []
    # A random order, since the loop ends at `most`: the first texts of a corpus are often alike.
    order = np.random.default_rng([seed, 3]).permutation(len(matches.texts))
    for i in order:
        text = matches.texts[i]
        listed = matches.spans[i]
        member_spans = [
            span
            for detector in detectors
            for span in detector.detect([text])[0]
            # Listed terms take precedence where both match.
            if not any(span.start < own.end and own.start < span.end for own in listed)
        ]
        if not member_spans:
            continue
        spans = merge_spans(text, [*listed, *member_spans])
        rest = remove(text, spans)
        if any(map(str.isalnum, rest)):
            members = {canonical(text[span.start : span.end]): None for span in member_spans}
            rows.append(ExpandedText(text, text, rest, tuple(members), _tokens(spans)))
        if len(rows) == most:
            break
    return rows


def substitutions_of(
    matches: ConceptMatches, context: ExpansionContext, pool: MemberPool, count: int, seed: int
) -> list[ExpandedText]:
    """Return texts in which a member replaces a listed term.

    Each group is drawn in proportion to the square root of its size, so that a long list of names does not
    drown a short one of numbers. Within a group members take turns, and so do places: every member is used
    before any is used twice.
    """
    rng = np.random.default_rng([seed, 2])
    places = _places(matches, context, rng)
    known = frozenset(context.listed)
    orders = [rng.permutation(len(group)) for group in pool.groups]
    negatives = matches.negatives()
    rows: list[ExpandedText] = []
    used: Counter[int] = Counter()
    turns: Counter[int] = Counter()
    seen: set[str] = set()
    for g in _shares([len(group) for group in pool.groups], count, rng):
        j = int(orders[g][turns[g] % len(orders[g])])
        turns[g] += 1
        member, place = pool.groups[g][j], pool.places[g][j]
        holding, position = places[place][used[place] % len(places[place])]
        used[place] += 1
        spans = matches.spans[matches.with_concept[holding]]
        span = spans[position]
        text = matches.texts[matches.with_concept[holding]]
        plural = is_plural(span.term, known)
        new = written_like(member, text[span.start : span.end], plural=plural)
        made = substituted(text, span.start, span.end, new)
        # Two substitutions can give the same text; copies would weigh it twice.
        if made in seen:
            continue
        seen.add(made)
        # _tokens reads only the term of this span, so its offsets are arbitrary.
        put = Span(0, 1, span.label, canonical(new))
        tokens = _tokens([put, *(s for k, s in enumerate(spans) if k != position)])
        rows.append(ExpandedText(made, text, negatives[holding], (canonical(member),), tokens))
    return rows


def _tokens(spans: list[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for span in spans for word in words(span.term)))


def _shares(sizes: list[int], count: int, rng: np.random.Generator) -> list[int]:
    """Return ``count`` group numbers, shuffled, in proportion to the roots of the sizes."""
    weights = np.sqrt(np.asarray(sizes, dtype=np.float64))
    # rounding the sums, not the shares: exactly `count`
    upto = np.round(np.cumsum(weights) / weights.sum() * count).astype(int)
    drawn = np.repeat(np.arange(len(sizes)), np.diff(upto, prepend=0))
    return [int(g) for g in rng.permutation(drawn)]


def _places(
    matches: ConceptMatches, context: ExpansionContext, rng: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Return the places of each group of listed terms, shuffled: (row of D+, span)."""
    group_of = dict(zip(context.listed, context.clusters.tolist(), strict=True))
    places: list[list[tuple[int, int]]] = [[] for _ in range(int(context.clusters.max()) + 1)]
    for row, i in enumerate(matches.with_concept):
        for position, span in enumerate(matches.spans[i]):
            places[group_of[span.term]].append((row, position))
    return [[own[k] for k in rng.permutation(len(own))] for own in places]


LEAST_SUBSTITUTIONS = 2000
MOST_SUBSTITUTIONS = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class Expansion:
    """Substituted texts of a concept. It holds texts: keep it in memory, never save it."""

    concept: str
    rows: tuple[ExpandedText, ...]
    _report: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The texts with members."""
        return [row.text for row in self.rows]

    @property
    def negatives(self) -> list[str]:
        """The same texts without the concept, listed terms and members removed."""
        return [row.negative for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        count = len({member for row in self.rows for member in row.members})
        return f"Expansion({self.concept!r}, {len(self)} texts, {count} members)"

    def report(self) -> dict[str, Any]:
        """Return counts and cost as JSON-ready values, without any text.

        ``listed``, ``members`` and ``groups``; ``texts``, of which ``found`` are the user's own; ``sources``
        with the numbers of members proposed and kept; ``seconds``; and ``encodings``: texts encoded to place
        members, and texts that a fit encodes in addition.
        """
        return {**self._report, "sources": [dict(row) for row in self._report.get("sources", [])]}


def expand(
    matches: ConceptMatches,
    sources: Sequence[MemberSource],
    *,
    encoder: Any = None,
    members: int = 2000,
    substitutions: int | None = None,
    occurrences: bool = True,
    seed: int = 0,
    show_progress: bool | None = None,
) -> Expansion:
    """Return the expansion of a concept's matches; see `Concept.expand`."""
    owner = "Concept.expand"
    started = time.perf_counter()
    chosen = _checked_sources(sources, owner)
    if isinstance(encoder, str) or not (encoder is None or hasattr(encoder, "encode")):
        raise wrong_type(owner, "encoder", "an object with a method encode(texts)", encoder,
                         fix="Load one with vecveil.load_encoder.")  # fmt: skip
    most = check_count(members, owner=owner, param="members")
    own = min(MOST_SUBSTITUTIONS, max(LEAST_SUBSTITUTIONS, len(matches.with_concept)))
    count = own if substitutions is None else substitutions
    count = check_count(count, owner=owner, param="substitutions", minimum=0)
    if not (count or occurrences):
        raise InvalidInputError.of(owner, "substitutions", "at least 1 without occurrences", "0",
                                   "Neither the user's texts nor made-up ones would be left.")  # fmt: skip
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    counter = None if encoder is None else _CountingEncoder(encoder, show_progress)
    context = _context(matches, counter, seed, show_progress)
    pool = gather(chosen, context, most=most)
    if not pool.groups:
        raise ConceptError.of(owner, "sources", "proposing members that are not listed", "none",
                    fix="Give a longer list, a larger corpus, or lower min_count and min_cosine.")  # fmt: skip
    rows = occurrences_of(matches, pool, count or own, seed) if occurrences else []
    occurring = len(rows)
    if count:
        rows += substitutions_of(matches, context, pool, count, seed)
    elif not rows:
        raise ConceptError.of(owner, "texts", "some that hold a member, without substitutions", "none",
                              fix="Allow substitutions, or give sources that know words of these texts.")  # fmt: skip
    report = {
        "concept": matches.name,
        "listed": len(context.listed),
        "members": len({member for row in rows for member in row.members}),
        "groups": len(pool.groups),
        "sources": list(pool.by_source),
        "texts": len(rows),
        "found": occurring,
        "substituted": len(rows) - occurring,
        "seconds": time.perf_counter() - started,
        "encodings": {"members": 0 if counter is None else counter.texts, "texts": len(rows)},
    }
    return Expansion(matches.name, tuple(rows), report)


class _CountingEncoder:
    """Count the texts that an encoder encodes."""

    def __init__(self, encoder: Any, show_progress: bool | None) -> None:
        self._encoder = encoder
        # The package's encoders have a progress bar; others may not accept the argument.
        own = hasattr(encoder, "model_fingerprint")
        self._options = {"show_progress": show_progress} if own else {}
        self.texts = 0

    def encode(self, texts: Sequence[str]) -> Any:
        self.texts += len(texts)
        return self._encoder.encode(texts, **self._options)


def _checked_sources(sources: Any, owner: str) -> list[MemberSource]:
    rows: list[Any] = [sources] if isinstance(sources, MemberSource) else [None]
    if isinstance(sources, Sequence) and not isinstance(sources, str | bytes):
        rows = list(sources)
    wrong = [row for row in rows if not isinstance(row, MemberSource)]
    if not rows or wrong:
        given = sources if wrong == [None] else wrong[0] if wrong else None
        got = "none" if given is None else type(given).__name__
        raise InvalidInputError.of(
            owner, "sources", "objects with a name and a method members(context)", got
        )
    return rows


def _context(
    matches: ConceptMatches, encoder: Any, seed: int, show_progress: bool | None
) -> ExpansionContext:
    counts: Counter[str] = Counter()
    labels: dict[str, str] = {}
    for i in matches.with_concept:
        for span in matches.spans[i]:
            counts[span.term] += 1
            labels.setdefault(span.term, span.label)
    # Most frequent first; ties alphabetical, so that one seed gives one result.
    listed = tuple(sorted(counts, key=lambda term: (-counts[term], term)))
    names = tuple(labels[term] for term in listed)
    clusters = np.zeros(len(listed), dtype=np.intp)
    centroids = None
    if encoder is not None:
        vectors = unit_vectors(encoder, listed)
        clusters = cluster_terms(vectors, names, seed=seed)
        centroids = centroids_of(vectors, clusters)
    return ExpansionContext(
        listed, names, clusters, centroids, encoder, seed=seed, show_progress=show_progress
    )
