"""The expansion of a concept: texts with members that the user did not list, beside the same without."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.concepts.expansion.grouping import centroids_of, cluster_terms
from vecveil.concepts.expansion.pool import gather
from vecveil.concepts.expansion.rows import Row, occurrences_of, substitutions_of
from vecveil.concepts.expansion.sources import ExpansionContext, MemberSource, unit_vectors
from vecveil.concepts.matches import ConceptMatches, TokenVocabulary
from vecveil.errors import ConceptError, InvalidInputError, message
from vecveil.validation import check_count

__all__ = ["Expansion", "expand"]

LEAST_SUBSTITUTIONS = 2000
MOST_SUBSTITUTIONS = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class Expansion:
    """Substituted texts of a concept. It holds texts: keep it in memory, never save it.

    Attributes:
        concept: the name of the concept.
        rows: the texts, each with its original, the same without the concept, and its members.
    """

    concept: str
    rows: tuple[Row, ...]
    _report: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The texts with members."""
        return [row.text for row in self.rows]

    @property
    def negatives(self) -> list[str]:
        """The same texts without the concept, listed or not."""
        return [row.negative for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        count = len({member for row in self.rows for member in row.members})
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
            counts = Counter(word for row in self.rows for word in row.tokens)
            kept = [word for word, count in counts.items() if count >= least]
            vocabulary = TokenVocabulary(tuple(sorted(kept, key=lambda w: (-counts[w], w))))
        labels = np.zeros((len(self), len(vocabulary)), dtype=np.uint8)
        for i, row in enumerate(self.rows):
            for word in row.tokens:
                if word in vocabulary:
                    labels[i, vocabulary.index(word)] = 1
        return labels, vocabulary

    def report(self) -> dict[str, Any]:
        """Return counts and cost, JSON-able, without any text.

        ``listed``, ``members`` and ``groups``; ``texts``, of which ``found`` are the user's as they are;
        ``sources``, for each how many members it proposed and how many of them were new; ``seconds``; and
        ``encodings``: texts encoded to find and place members, and texts that a fit encodes on top.
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
    """Return the expansion of what a concept found; `Concept.expand` says what the arguments are.

    Raises:
        ConceptError: the sources propose nothing that is not listed, or no text holds a member and none is made.
        InvalidInputError: a wrong argument, or neither substitutions nor occurrences.
    """
    owner = "Concept.expand"
    started = time.perf_counter()
    chosen = _checked_sources(sources, owner)
    if isinstance(encoder, str) or not (encoder is None or hasattr(encoder, "encode")):
        raise InvalidInputError.of(owner, "encoder", "an object with a method encode(texts)",
                                   type(encoder).__name__, fix="vecveil.load_encoder gives one.")  # fmt: skip
    most = check_count(members, owner=owner, param="members")
    own = min(MOST_SUBSTITUTIONS, max(LEAST_SUBSTITUTIONS, len(matches.with_concept)))
    count = own if substitutions is None else substitutions
    count = check_count(count, owner=owner, param="substitutions", minimum=0)
    if not (count or occurrences):
        raise InvalidInputError.of(owner, "substitutions", "at least 1 without occurrences", "0",
                                   "Neither the user's texts nor made-up ones would be left.")  # fmt: skip
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    counter = None if encoder is None else _Counting(encoder, show_progress)
    context = _context(matches, counter, seed, show_progress)
    pool = gather(chosen, context, most=most)
    if not pool.groups:
        raise ConceptError(
            message(owner, "sources", "proposing members that are not listed", "none",
                    fix="Give a longer list, a larger corpus, or lower min_count and min_cosine.")
        )  # fmt: skip
    rows = occurrences_of(matches, pool, count or own, seed) if occurrences else []
    found = len(rows)
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
        "found": found,
        "substituted": len(rows) - found,
        "seconds": time.perf_counter() - started,
        "encodings": {"members": 0 if counter is None else counter.texts, "texts": len(rows)},
    }
    return Expansion(matches.name, tuple(rows), report)


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
