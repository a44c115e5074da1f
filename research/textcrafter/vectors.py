"""Vectors of the sets and what follows from them: pairs of the concept, token labels, the PII problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from research.textcrafter.sets import PiiTexts, TaskSet
from vecveil.concepts import ConceptMatches, TokenVocabulary
from vecveil.textcrafter import contains_pii

__all__ = ["MIN_COUNT", "Array", "Material", "Pii", "Task", "pii_vectors", "task_vectors"]

Array = npt.NDArray[Any]

MIN_COUNT = 15  # training texts that hold a token whose leakage is measured


@dataclass(frozen=True, eq=False, repr=False)
class Material:
    """What a protector is fitted on; no test row is in it.

    Attributes:
        positive, negative: (N, n) vectors of training texts with the concept, and of the same texts without it.
        labels: (N, V) 0/1 tokens, or None.
        background: (K, n) vectors of training texts without the concept.
        groups: (N,) texts that belong together.
        further: (M, n) vectors of plain sentences in which Presidio finds PII, or None.
    """

    positive: Array
    negative: Array
    labels: Array | None
    background: Array
    groups: Array
    further: Array | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """A set with its vectors.

    Attributes:
        rows: the set.
        X: (N, n) clean vectors of its texts.
        negative: clean vectors of the texts with the concept removed, aligned with ``matches.with_concept``.
        matches: what the concept found.
    """

    rows: TaskSet
    X: Array
    negative: Array
    matches: ConceptMatches

    @cached_property
    def vocabulary(self) -> TokenVocabulary:
        """The tokens of the concept that at least `MIN_COUNT` training texts hold."""
        every, tokens = self.matches.token_labels(min_count=1)
        counts = every[self._pairs(self.rows.train)].sum(axis=0)
        often = [t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT]
        return TokenVocabulary(tuple(often))

    @cached_property
    def _labels(self) -> Array:
        return self.matches.token_labels(self.vocabulary)[0]

    def _pairs(self, rows: Array) -> Array:
        """Return which pairs are of the given rows."""
        return np.flatnonzero(np.isin(self.matches.with_concept, rows))

    def tokens(self, rows: Array) -> tuple[Array, Array]:
        """Return those of ``rows`` that hold a token of the vocabulary, and their labels (N, V)."""
        pairs = self._pairs(rows)
        pairs = pairs[self._labels[pairs].any(axis=1)]
        return self.matches.with_concept[pairs], self._labels[pairs]

    def negative_of(self, rows: Array) -> Array:
        """Return the vectors of ``rows``, which hold the concept, with it removed."""
        return self.negative[np.searchsorted(self.matches.with_concept, rows)]

    @cached_property
    def material(self) -> Material:
        """The training rows as pairs."""
        pairs = self._pairs(self.rows.train)
        own = self.matches.with_concept[pairs]
        other = np.intersect1d(self.matches.without_concept, self.rows.train)
        return Material(
            self.X[own], self.negative[pairs], self._labels[pairs], self.X[other],
            self.rows.groups[own],
        )  # fmt: skip

    def to_record(self) -> dict[str, Any]:
        """Return the sizes."""
        train, test = (len(self.tokens(rows)[0]) for rows in (self.rows.train, self.rows.test))
        return {
            "train": len(self.rows.train),
            "test": len(self.rows.test),
            "dropped": self.rows.dropped,
            "classes": len(np.unique(self.rows.classes)),
            "tokens": len(self.vocabulary),
            "token_train": train,
            "token_test": test,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Pii:
    """The question whether a text holds PII, with vectors.

    Attributes:
        material: pairs of training texts with PII, and plain sentences as background.
        train, test: (X, labels (N, 1), groups) of texts with PII, of the same without it, and of plain sentences.
    """

    material: Material
    train: tuple[Array, Array, Array]
    test: tuple[Array, Array, Array]

    def to_record(self) -> dict[str, Any]:
        """Return the sizes."""
        return {
            "train": len(self.train[0]),
            "train_positive": int(self.train[1].sum()),
            "test": len(self.test[0]),
            "test_positive": int(self.test[1].sum()),
        }


def task_vectors(rows: TaskSet, encode: Callable[[Sequence[str]], Array]) -> Task:
    """Return a set with its vectors."""
    matches = rows.matches
    return Task(rows, encode(rows.texts), encode(matches.negatives()), matches)


def pii_vectors(corpus: PiiTexts, encode: Callable[[Sequence[str]], Array]) -> Pii:
    """Return the PII problem with its vectors."""
    matches = corpus.matches
    positive = encode(matches.positives())
    negative = encode(matches.negatives())
    groups = corpus.groups[matches.with_concept]
    parts, first = [], int(corpus.groups.max()) + 1
    for rows_of, plain in ((corpus.train, corpus.plain_train), (corpus.test, corpus.plain_test)):
        own = np.flatnonzero(np.isin(matches.with_concept, rows_of))
        none = [corpus.texts[i] for i in np.intersect1d(matches.without_concept, rows_of)]
        sentences = encode([*none, *plain])
        X = np.concatenate([positive[own], negative[own], sentences])
        labels = np.zeros((len(X), 1), dtype=np.uint8)
        labels[: len(own)] = 1
        alone = first + np.arange(len(sentences))
        first += len(sentences)
        parts.append((own, sentences, (X, labels, np.concatenate([groups[own]] * 2 + [alone]))))
    own, sentences, _ = parts[0]
    plain = corpus.plain_train  # the last of the sentences
    first_plain = len(sentences) - len(plain)
    moved = np.zeros(len(sentences), dtype=bool)
    moved[first_plain:] = contains_pii(plain, show_progress=False)
    material = Material(
        positive[own], negative[own], None, sentences[~moved], groups[own], sentences[moved]
    )
    return Pii(material, parts[0][2], parts[1][2])
