"""The expansion of a concept: texts with members that the user did not list, beside the same without."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.checks import check_count
from vecveil.concepts.expansion.grouping import centroids_of, cluster_terms
from vecveil.concepts.expansion.pool import MemberPool, gather
from vecveil.concepts.expansion.sources import ExpansionContext, MemberSource, unit_vectors
from vecveil.concepts.expansion.substitution import is_plural, substituted, written_like
from vecveil.concepts.folding import canonical, words
from vecveil.concepts.matches import ConceptMatches, TokenVocabulary
from vecveil.errors import ConceptError, InvalidInputError, message

__all__ = ["Expansion", "expand"]


@dataclass(frozen=True, eq=False, repr=False)
class Expansion:
    """Substituted texts of a concept. It holds texts: keep it in memory, never save it.

    Attributes:
        concept: the name of the concept.
        texts: the user's sentences, each with one member in the place of a listed term.
        negatives: the same sentences without the concept; those of the originals.
        origins: (N,) for each text the position of its original among the texts with the concept.
        members: for each text the member that was put in, canonical.
        tokens: for each text the words of the concept: of the member, and of the listed terms beside it.
    """

    concept: str
    texts: tuple[str, ...]
    negatives: tuple[str, ...]
    origins: npt.NDArray[np.intp]
    members: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    _report: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        count = len(set(self.members))
        return f"Expansion({self.concept!r}, {len(self)} texts, {count} members)"

    def token_labels(
        self, vocabulary: TokenVocabulary | None = None, min_count: int = 3
    ) -> tuple[npt.NDArray[np.uint8], TokenVocabulary]:
        """Return which words of the concept each text holds, listed ones and those of members.

        Args:
            vocabulary: the columns; None makes one of the words that at least ``min_count`` texts hold.

        Returns:
            A 0/1 array of shape (N, V), dtype uint8, and the vocabulary.
        """
        least = check_count(min_count, owner="Expansion.token_labels", param="min_count")
        if vocabulary is None:
            counts = Counter(word for row in self.tokens for word in row)
            kept = [word for word, count in counts.items() if count >= least]
            vocabulary = TokenVocabulary(tuple(sorted(kept, key=lambda w: (-counts[w], w))))
        labels = np.zeros((len(self), len(vocabulary)), dtype=np.uint8)
        for i, row in enumerate(self.tokens):
            for word in row:
                if word in vocabulary:
                    labels[i, vocabulary.index(word)] = 1
        return labels, vocabulary

    def report(self) -> dict[str, Any]:
        """Return counts and cost, JSON-able, without any text.

        ``members`` and ``texts``; ``sources``, for each how many members it proposed and how many of them were
        new; ``groups``; ``seconds``, and ``encodings``: texts encoded to find and place members, and texts that
        a fit has to encode on top.
        """
        return {**self._report, "sources": [dict(row) for row in self._report.get("sources", [])]}


def expand(
    matches: ConceptMatches,
    sources: Sequence[MemberSource],
    *,
    encoder: Any = None,
    members: int = 2000,
    substitutions: int = 4000,
    seed: int = 0,
    show_progress: bool | None = None,
) -> Expansion:
    """Return the expansion of what a concept found; `Concept.expand` says what the arguments are.

    Raises:
        ConceptError: the sources propose nothing that is not listed.
    """
    owner = "Concept.expand"
    started = time.perf_counter()
    chosen = _checked_sources(sources, owner)
    if isinstance(encoder, str) or not (encoder is None or hasattr(encoder, "encode")):
        raise InvalidInputError(
            message(owner, "encoder", "an object with a method encode(texts)",
                    type(encoder).__name__, fix="vecveil.load_encoder gives one.")
        )  # fmt: skip
    most = check_count(members, owner=owner, param="members")
    count = check_count(substitutions, owner=owner, param="substitutions")
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    counter = None if encoder is None else _Counting(encoder, show_progress)
    context = _context(matches, counter, seed, show_progress)
    pool = gather(chosen, context, most=most)
    if not pool.groups:
        raise ConceptError(
            message(owner, "sources", "proposing members that are not listed", "none",
                    fix="Give a longer list, a larger corpus, or lower min_count and min_cosine.")
        )  # fmt: skip
    texts, negatives, origins, put, tokens = _substitutions(matches, context, pool, count, seed)
    report = {
        "concept": matches.name,
        "listed": len(context.listed),
        "members": len(set(put)),
        "groups": len(pool.groups),
        "sources": list(pool.by_source),
        "texts": len(texts),
        "seconds": time.perf_counter() - started,
        "encodings": {"members": 0 if counter is None else counter.texts, "texts": len(texts)},
    }
    return Expansion(
        matches.name, tuple(texts), tuple(negatives), origins, tuple(put), tuple(tokens), report
    )


class _Counting:
    """An encoder that counts what it is asked for."""

    def __init__(self, encoder: Any, show_progress: bool | None) -> None:
        self._encoder = encoder
        # The package's own have a bar; others need not know of one.
        own = hasattr(encoder, "encode_chunks")
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
        raise InvalidInputError(
            message(owner, "sources", "objects with a name and a method members(context)", got)
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


def _substitutions(
    matches: ConceptMatches, context: ExpansionContext, pool: MemberPool, count: int, seed: int
) -> tuple[list[str], list[str], npt.NDArray[np.intp], list[str], list[tuple[str, ...]]]:
    """Draw groups in turn, in each its members in turn, and for each the next place of its kind.

    In turn and not at random: every member is seen before any is seen twice, and so is every place.
    """
    rng = np.random.default_rng([seed, 2])
    places = _places(matches, context, rng)
    known = frozenset(context.listed)
    orders = [rng.permutation(len(group)) for group in pool.groups]
    negatives = matches.negatives()
    texts: list[str] = []
    rests: list[str] = []
    origins: list[int] = []
    put: list[str] = []
    tokens: list[tuple[str, ...]] = []
    used: Counter[int] = Counter()
    seen: set[str] = set()
    for turn in range(count):
        g, i = turn % len(pool.groups), turn // len(pool.groups)
        order = orders[g]
        j = int(order[i % len(order)])
        member, place = pool.groups[g][j], pool.places[g][j]
        row, position = places[place][used[place] % len(places[place])]
        used[place] += 1
        spans = matches.spans[matches.with_concept[row]]
        span = spans[position]
        text = matches.texts[matches.with_concept[row]]
        new = written_like(member, text[span.start : span.end], plural=is_plural(span.term, known))
        made = substituted(text, span.start, span.end, new)
        if made in seen:
            continue
        seen.add(made)
        others = [word for k, s in enumerate(spans) if k != position for word in words(s.term)]
        texts.append(made)
        rests.append(negatives[row])
        origins.append(row)
        put.append(canonical(member))
        tokens.append(tuple(dict.fromkeys([*words(canonical(new)), *others])))
    return texts, rests, np.asarray(origins, dtype=np.intp), put, tokens


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
