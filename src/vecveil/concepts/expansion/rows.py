"""The texts of an expansion: the user's own that hold a member, and those that are given one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from vecveil.concepts.expansion.pool import MemberPool
from vecveil.concepts.expansion.sources import ExpansionContext
from vecveil.concepts.expansion.substitution import is_plural, substituted, written_like
from vecveil.concepts.folding import canonical, words
from vecveil.concepts.matches import ConceptMatches
from vecveil.concepts.rewriting import remove
from vecveil.concepts.spans import Span, merge_spans
from vecveil.concepts.terms import TermDetector

__all__ = ["Row", "occurrences_of", "substitutions_of"]


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """One text of an expansion.

    Attributes:
        text: with a member.
        original: the user's text that it was made of; the same where the text holds the member as it is.
        negative: the text without the concept.
        members: canonical, those that are not listed.
        tokens: words of the concept in the text, listed ones and members.
    """

    text: str
    original: str
    negative: str
    members: tuple[str, ...]
    tokens: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Row({len(self.members)} members)"


def occurrences_of(matches: ConceptMatches, pool: MemberPool, most: int, seed: int) -> list[Row]:
    """Return the user's texts that hold members as they are, at most ``most``, drawn at random.

    A member with a capital counts only with it (*Mark*, not *mark*).
    """
    flat = [member for group in pool.groups for member in group]
    capital = [member for member in flat if member != member.lower()]
    small = [member for member in flat if member == member.lower()]
    detectors = [
        TermDetector(members, case_sensitive=sensitive, label="member")
        for members, sensitive in ((capital, True), (small, False))
        if members
    ]
    rows: list[Row] = []
    order = np.random.default_rng([seed, 3]).permutation(len(matches.texts))
    for i in order:
        text = matches.texts[i]
        listed = matches.spans[i]
        found = [
            span
            for detector in detectors
            for span in detector.detect([text])[0]
            if not any(span.start < own.end and own.start < span.end for own in listed)
        ]
        if not found:
            continue
        spans = merge_spans(text, [*listed, *found])
        rest = remove(text, spans)
        if any(map(str.isalnum, rest)):
            members = {canonical(text[span.start : span.end]): None for span in found}
            rows.append(Row(text, text, rest, tuple(members), _tokens(spans)))
        if len(rows) == most:
            break
    return rows


def substitutions_of(
    matches: ConceptMatches, context: ExpansionContext, pool: MemberPool, count: int, seed: int
) -> list[Row]:
    """Return texts in which a member stands in the place of a listed term.

    A group is drawn as often as the root of its size says: a long list of names does not outweigh a short
    one of numbers by as much as it is longer, and its members still come. Within a group members come in
    turn, and so do places: every member is seen before any is seen twice.
    """
    rng = np.random.default_rng([seed, 2])
    places = _places(matches, context, rng)
    known = frozenset(context.listed)
    orders = [rng.permutation(len(group)) for group in pool.groups]
    negatives = matches.negatives()
    rows: list[Row] = []
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
        if made in seen:
            continue
        seen.add(made)
        put = Span(0, 1, span.label, canonical(new))
        tokens = _tokens([put, *(s for k, s in enumerate(spans) if k != position)])
        rows.append(Row(made, text, negatives[holding], (canonical(member),), tokens))
    return rows


def _tokens(spans: list[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for span in spans for word in words(span.term)))


def _shares(sizes: list[int], count: int, rng: np.random.Generator) -> list[int]:
    """Return ``count`` groups, shuffled, each as often as the root of its size says."""
    weights = np.sqrt(np.asarray(sizes, dtype=np.float64))
    upto = np.round(np.cumsum(weights) / weights.sum() * count).astype(int)
    drawn = np.repeat(np.arange(len(sizes)), np.diff(upto, prepend=0))
    return [int(g) for g in rng.permutation(drawn)]


def _places(
    matches: ConceptMatches, context: ExpansionContext, rng: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Return for each group of listed terms where they stand: (text with the concept, span), shuffled."""
    group_of = dict(zip(context.listed, context.clusters.tolist(), strict=True))
    places: list[list[tuple[int, int]]] = [[] for _ in range(int(context.clusters.max()) + 1)]
    for row, i in enumerate(matches.with_concept):
        for position, span in enumerate(matches.spans[i]):
            places[group_of[span.term]].append((row, position))
    return [[own[k] for k in rng.permutation(len(own))] for own in places]
