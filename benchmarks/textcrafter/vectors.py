"""Vectors of the sets and what follows from them: pairs of the concept, token labels, the PII problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.concepts import ConceptMatches, TokenVocabulary
from vecveil.textcrafter import contains_pii

from .sets import TaskSet, read_pii, read_set

__all__ = ["MIN_COUNT", "Material", "Pii", "Task", "load_pii", "load_task"]

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

    positive: np.ndarray
    negative: np.ndarray
    labels: np.ndarray | None
    background: np.ndarray
    groups: np.ndarray
    further: np.ndarray | None = None


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
    X: np.ndarray
    negative: np.ndarray
    matches: ConceptMatches

    @cached_property
    def vocabulary(self) -> TokenVocabulary:
        """The tokens of the concept that at least `MIN_COUNT` training texts hold."""
        every, tokens = self.matches.token_labels(min_count=1)
        counts = every[self._pairs(self.rows.train)].sum(axis=0)
        often = [t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT]
        return TokenVocabulary(tuple(often))

    @cached_property
    def _labels(self) -> np.ndarray:
        return self.matches.token_labels(self.vocabulary)[0]

    def _pairs(self, rows: np.ndarray) -> np.ndarray:
        """Return which pairs are of the given rows."""
        return np.flatnonzero(np.isin(self.matches.with_concept, rows))

    def tokens(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of ``rows`` that hold a token of the vocabulary, and their labels (N, V)."""
        pairs = self._pairs(rows)
        pairs = pairs[self._labels[pairs].any(axis=1)]
        return self.matches.with_concept[pairs], self._labels[pairs]

    def negative_of(self, rows: np.ndarray) -> np.ndarray:
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
            "title": self.rows.title,
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
    train: tuple[np.ndarray, np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray, np.ndarray]

    def to_record(self) -> dict[str, Any]:
        """Return the sizes."""
        return {
            "train": len(self.train[0]),
            "train_positive": int(self.train[1].sum()),
            "test": len(self.test[0]),
            "test_positive": int(self.test[1].sum()),
        }


def load_task(name: str, data: Path, rows: tuple[int, int], encoder: Any) -> Task:
    """Return a set with its vectors."""
    found = read_set(name, data, rows)
    matches = found.concept.find(found.texts, min_texts=1, show_progress=False)
    return Task(found, encoder.encode(found.texts), encoder.encode(matches.negatives()), matches)


def load_pii(data: Path, rows: int | None, encoder: Any) -> Pii:
    """Return the PII problem with its vectors."""
    corpus = read_pii(data, rows)
    matches = corpus.concept.find(corpus.texts, min_texts=1, show_progress=False)
    positive = encoder.encode(matches.positives())
    negative = encoder.encode(matches.negatives())
    groups = corpus.groups[matches.with_concept]
    parts, first = [], int(corpus.groups.max()) + 1
    for rows_of, plain in ((corpus.train, corpus.plain_train), (corpus.test, corpus.plain_test)):
        own = np.flatnonzero(np.isin(matches.with_concept, rows_of))
        none = [corpus.texts[i] for i in np.intersect1d(matches.without_concept, rows_of)]
        sentences = encoder.encode([*none, *plain])
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
