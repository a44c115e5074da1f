"""The labelled sets of TextCrafter's table and its PII corpus, split, and as vectors.

Training rows that equal a judged row in letters and digits, or share its group (abstract, template), are left out
before the rows of each part are sampled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.datasets import TextSet, open_dataset
from research.datasets.reading import joined
from research.problems import make_concept
from research.specification import ConceptSpec, ProblemSpec, Settings, Whole, digest
from research.tasks import drawn
from vecveil.auditing.attacks import text_groups
from vecveil.auditing.attacks.attack import split_groups
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.privacy.concepts import Concept, ConceptMatches, TokenVocabulary
from vecveil.privacy.textcrafter import contains_pii

SAMPLE_SEED = 7  # for sampling rows, equal for all seeds of a run
SHARES = (0.8, 0.2)  # training and test, for a set without a split

Rows = npt.NDArray[np.intp]


class PiiSpec(Settings, frozen=True, kw_only=True):
    """The corpus that policies learn from.

    Attributes:
        data: data sets with annotated spans, pooled; every split but ``test`` is training data.
        concept: its PII.
        plain: a data set of sentences without PII.
        plain_train, plain_test: labels of that set, or splits where it has no labels.
        texts: maximum number of texts of each part.
    """

    data: tuple[str, ...] = ("pii-synth", "pii-large")
    concept: ConceptSpec = ConceptSpec(spans=("*",))
    plain: str = "sentences"
    plain_train: tuple[str, ...] = ("wikitext2_valid",)
    plain_test: tuple[str, ...] = ("wikitext2_test",)
    texts: Whole | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SplitTexts:
    """Texts with a concept, split by group.

    Attributes:
        groups: (N,) group (abstract, template) of each text; none is in both splits.
        train, test: row numbers of the splits.
        concept: target of token inference, and hidden by the default protector.
    """

    texts: list[str]
    groups: Rows
    train: Rows
    test: Rows
    concept: Concept

    @cached_property
    def matches(self) -> ConceptMatches:
        return self.concept.find(self.texts, min_texts=1, show_progress=False)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TaskSet(SplitTexts):
    """One labelled set.

    Attributes:
        name: in the specification.
        classes: (N,) integer class of each text.
        dropped: number of training rows left out because they equal a test row.
    """

    name: str
    classes: npt.NDArray[np.intp]
    dropped: int

    @cached_property
    def digest(self) -> str:
        """A hash of texts, classes, groups, splits and spans."""
        numbers = (self.classes, self.groups, self.train, self.test)
        return _digest(self.texts, self.matches, *numbers)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PiiTexts(SplitTexts):
    """Texts with marked PII, and plain sentences."""

    plain_train: list[str]
    plain_test: list[str]

    @cached_property
    def digest(self) -> str:
        """A hash of texts, groups, splits, spans and plain sentences."""
        own = _digest(self.texts, self.matches, self.groups, self.train, self.test)
        return digest([own, self.plain_train, self.plain_test])


def _digest(texts: Sequence[str], matches: ConceptMatches, *numbers: npt.NDArray[Any]) -> str:
    found = hashlib.sha256()
    for text, row in zip(texts, matches.spans, strict=True):
        spans = [(span.start, span.end, span.label) for span in row]
        found.update(json.dumps([text, spans]).encode())
    for array in numbers:
        found.update(json.dumps(array.tolist()).encode())
    return found.hexdigest()[:16]


def _split_rows(
    found: TextSet, most: Sequence[int | None], name: str, concept: ConceptSpec, data: Path, *, dev_learns: bool
) -> tuple[dict[str, Any], Rows, int]:
    """Return the fields of `SplitTexts`, the rows of ``found`` in them, and how many training rows were left out."""
    groups = text_groups(found.texts, found.groups.tolist())
    train, test = _sides(found, groups, dev_learns=dev_learns)
    shared = np.isin(groups[train], groups[test])
    parts = [drawn(part, cap, SAMPLE_SEED) for part, cap in zip((train[~shared], test), most, strict=True)]
    rows, numbers = np.concatenate(parts), np.arange(sum(map(len, parts)))
    spans = None if found.spans is None else [found.spans[i] for i in rows]
    fields = {
        "texts": [found.texts[i] for i in rows],
        "groups": groups[rows],
        "train": numbers[: len(parts[0])],
        "test": numbers[len(parts[0]) :],
        "concept": make_concept(name, concept, spans, data),
    }
    return fields, rows, int(shared.sum())


def read_set(name: str, problem: ProblemSpec, data: Path, rows: Sequence[int]) -> TaskSet:
    """Return a set with at most ``rows`` training and test rows.

    The test part is ``test``, or ``dev`` without one; a set without splits is divided by group.

    Raises:
        DataFileError: a data set is missing or damaged.
        InvalidInputError: one of them has no classes.
    """
    found = _texts(problem.data, data)
    if found.labels is None:
        raise InvalidInputError(f"set {name!r}: a data set of `data` has no classes.", param="data")
    split, taken, dropped = _split_rows(found, rows, name, problem.concept, data, dev_learns=False)
    _, classes = np.unique(np.array(found.labels), return_inverse=True)
    return TaskSet(name=name, classes=classes[taken], dropped=dropped, **split)


def read_pii(spec: PiiSpec, data: Path) -> PiiTexts:
    """Return the PII corpus and plain sentences."""
    corpus, caps = _texts(spec.data, data), (spec.texts, spec.texts)
    split, _, _ = _split_rows(corpus, caps, "pii", spec.concept, data, dev_learns=True)
    plain = _texts((spec.plain,), data)
    train, test = (plain_texts(plain, names)[: spec.texts] for names in (spec.plain_train, spec.plain_test))
    return PiiTexts(plain_train=train, plain_test=test, **split)


def plain_texts(found: TextSet, names: Sequence[str]) -> list[str]:
    """Return the texts with one of these labels, or of these splits where there are no labels."""
    of = found.labels or found.split or ()
    chosen = [text for text, name in zip(found.texts, of, strict=False) if name in names]
    if not chosen:
        raise DataFileError(
            f"data set {found.name!r}: no text has a label or split of {', '.join(names)} (`plain`).", param="plain"
        )
    return chosen


def _texts(names: Sequence[str], data: Path) -> TextSet:
    parts = []
    for name in names:
        found = open_dataset(name, data)
        if not isinstance(found, TextSet):
            raise InvalidInputError(
                f"textcrafter: `data` {repr(name)[:60]} is no data set of single texts.", param="data"
            )
        parts.append(found)
    return parts[0] if len(parts) == 1 else joined("+".join(names), parts)


def _sides(found: TextSet, groups: Rows, *, dev_learns: bool) -> tuple[Rows, Rows]:
    """Return the training rows and the judged rows."""
    if found.split is None:
        learn, judge = split_groups(groups, SHARES, seed=SAMPLE_SEED)
        return learn, judge
    splits = np.array(found.split)
    judged = "test" if "test" in found.split else "dev"
    learns = splits != judged if dev_learns else splits == "train"
    return np.flatnonzero(learns), np.flatnonzero(splits == judged)


Array = npt.NDArray[Any]

MIN_COUNT = 15  # training texts that hold a token whose leakage is measured


@dataclass(frozen=True, eq=False, repr=False)
class PairedTexts:
    """Vectors that a protector is fitted on, without test rows.

    Attributes:
        positive, negative: (N, n) training texts with the concept, and the same texts without it.
        labels: (N, V) 0/1 tokens, or None.
        background: (K, n) training texts without the concept.
        further: (M, n) plain sentences in which Presidio finds PII, or None.
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
        X: (N, n) clean vectors.
        negative: clean vectors of the texts with the concept removed, aligned with ``matches.with_concept``.
    """

    rows: TaskSet
    X: Array
    negative: Array

    @cached_property
    def vocabulary(self) -> TokenVocabulary:
        """The concept's tokens that at least `MIN_COUNT` training texts hold."""
        every, tokens = self.rows.matches.token_labels(min_count=1)
        counts = every[self._pairs(self.rows.train)].sum(axis=0)
        often = [t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT]
        return TokenVocabulary(tuple(often))

    @cached_property
    def _labels(self) -> Array:
        return self.rows.matches.token_labels(self.vocabulary)[0]

    def _pairs(self, rows: Array) -> Array:
        return np.flatnonzero(np.isin(self.rows.matches.with_concept, rows))

    def tokens(self, rows: Array) -> tuple[Array, Array]:
        """Return those of ``rows`` that hold a token of the vocabulary, and their labels (N, V)."""
        pairs = self._pairs(rows)
        pairs = pairs[self._labels[pairs].any(axis=1)]
        return self.rows.matches.with_concept[pairs], self._labels[pairs]

    def negative_of(self, rows: Array) -> Array:
        """Return the vectors of ``rows``, which hold the concept, with it removed."""
        return self.negative[np.searchsorted(self.rows.matches.with_concept, rows)]

    @cached_property
    def material(self) -> PairedTexts:
        """The training rows as pairs."""
        pairs = self._pairs(self.rows.train)
        own = self.rows.matches.with_concept[pairs]
        other = np.intersect1d(self.rows.matches.without_concept, self.rows.train)
        return PairedTexts(self.X[own], self.negative[pairs], self._labels[pairs], self.X[other], self.rows.groups[own])

    def to_record(self) -> dict[str, Any]:
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
    """PII detection, with vectors.

    Attributes:
        material: pairs of training texts with PII, and plain sentences as background.
        train, test: (X, labels (N, 1), groups) of texts with PII, of the same without it, and of plain sentences.
    """

    material: PairedTexts
    train: tuple[Array, Array, Array]
    test: tuple[Array, Array, Array]


def task_vectors(rows: TaskSet, encode: Callable[[Sequence[str]], Array]) -> Task:
    return Task(rows, encode(rows.texts), encode(rows.matches.negatives()))


def pii_vectors(corpus: PiiTexts, encode: Callable[[Sequence[str]], Array]) -> Pii:
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
    material = PairedTexts(positive[own], negative[own], None, sentences[~moved], groups[own], sentences[moved])
    return Pii(material, parts[0][2], parts[1][2])
