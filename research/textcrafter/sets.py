"""The labelled sets of the table and the PII corpus, as rows that are learnt from and rows that are judged.

A row to learn from that agrees with a judged row in letters and digits, or is of the same group (an abstract, a
template), is left out, and then at most so many rows of each part are drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from research.datasets import TextSet, open_dataset
from research.datasets.annotated import joined
from research.problem_concepts import make_concept
from research.specification import ProblemSpec, digest
from vecveil.attacks import text_groups
from vecveil.attacks.evidence import split_groups
from vecveil.concepts import Concept, ConceptMatches
from vecveil.errors import DataFileError, InvalidInputError

if TYPE_CHECKING:
    from research.textcrafter.specification import PiiSpec

__all__ = ["PiiTexts", "TaskSet", "plain_texts", "read_pii", "read_set"]

SAMPLE_SEED = 7  # of which rows are drawn where there are more: the same whatever the run's seed
SHARES = (0.8, 0.2)  # to learn from and to judge, of a set that has no split

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class TaskSet:
    """One labelled set.

    Attributes:
        name: in the specification.
        texts: all texts that are used.
        classes: (N,) integer class of each.
        groups: (N,) texts that belong together.
        train, test: row numbers of the splits.
        concept: what token inference looks for and the default protector hides.
        dropped: training rows left out because a test row agrees with them.
    """

    name: str
    texts: list[str]
    classes: npt.NDArray[np.intp]
    groups: Rows
    train: Rows
    test: Rows
    concept: Concept
    dropped: int

    @cached_property
    def matches(self) -> ConceptMatches:
        """What the concept finds in the texts."""
        return self.concept.find(self.texts, min_texts=1, show_progress=False)

    @cached_property
    def digest(self) -> str:
        """A hash of texts, classes, groups, splits, and of what the concept finds."""
        numbers = (self.classes, self.groups, self.train, self.test)
        return _digest(self.texts, self.matches, *numbers)


@dataclass(frozen=True, eq=False, repr=False)
class PiiTexts:
    """Texts with PII, marked as spans, and plain sentences.

    Attributes:
        texts: of the PII corpus.
        groups: (N,) group of each: the template it was made from.
        train, test: row numbers; no template is in both.
        concept: the marked spans.
        plain_train, plain_test: plain sentences.
    """

    texts: list[str]
    groups: Rows
    train: Rows
    test: Rows
    concept: Concept
    plain_train: list[str]
    plain_test: list[str]

    @cached_property
    def matches(self) -> ConceptMatches:
        """What the concept finds in the texts."""
        return self.concept.find(self.texts, min_texts=1, show_progress=False)

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


def read_set(name: str, problem: ProblemSpec, data: Path, rows: Sequence[int]) -> TaskSet:
    """Return a set with at most ``rows`` training and test rows.

    The splits ``train`` and ``test`` are used, ``dev`` in place of a test split that is not there; a set without
    splits is divided by group.

    Raises:
        DataFileError: a data set is missing or damaged.
        InvalidInputError: one of them has no classes.
    """
    found = _texts(problem.data, data)
    if found.labels is None:
        what = "data sets of texts with classes"
        raise InvalidInputError.of(f"set {name!r}", "data", what, "one without")
    groups = text_groups(found.texts, found.groups.tolist())
    train, test = _sides(found, groups, dev_learns=False)
    shared = np.isin(groups[train], groups[test])
    kept = [_draw(part, most) for part, most in zip((train[~shared], test), rows, strict=True)]
    chosen = np.concatenate(kept)
    _, classes = np.unique(np.array(found.labels), return_inverse=True)
    spans = None if found.spans is None else [found.spans[i] for i in chosen]
    count = len(kept[0])
    return TaskSet(
        name=name,
        texts=[found.texts[i] for i in chosen],
        classes=classes[chosen],
        groups=groups[chosen],
        train=np.arange(count),
        test=np.arange(count, len(chosen)),
        concept=make_concept(name, problem.concept, spans, data),
        dropped=int(shared.sum()),
    )


def read_pii(spec: PiiSpec, data: Path) -> PiiTexts:
    """Return the PII corpus, and plain sentences.

    Raises:
        DataFileError: a data set is missing or damaged.
    """
    found = _texts(spec.data, data)
    groups = text_groups(found.texts, found.groups.tolist())
    train, test = _sides(found, groups, dev_learns=True)
    shared = np.isin(groups[train], groups[test])
    kept = [_draw(part, spec.texts) for part in (train[~shared], test)]
    chosen = np.concatenate(kept)
    count = len(kept[0])
    plain = _texts((spec.plain,), data)
    spans = None if found.spans is None else [found.spans[i] for i in chosen]
    return PiiTexts(
        texts=[found.texts[i] for i in chosen],
        groups=groups[chosen],
        train=np.arange(count),
        test=np.arange(count, len(chosen)),
        concept=make_concept("pii", spec.concept, spans, data),
        plain_train=plain_texts(plain, spec.plain_train)[: spec.texts],
        plain_test=plain_texts(plain, spec.plain_test)[: spec.texts],
    )


def plain_texts(found: TextSet, names: Sequence[str]) -> list[str]:
    """Return the texts with one of these labels, or of these splits where there are no labels."""
    of = found.labels or found.split or ()
    chosen = [text for text, name in zip(found.texts, of, strict=False) if name in names]
    if not chosen:
        raise DataFileError.of(f"data set {found.name!r}", "plain", "a set with the labels or splits asked for",
                               "one without")  # fmt: skip
    return chosen


def _texts(names: Sequence[str], data: Path) -> TextSet:
    parts = []
    for name in names:
        found = open_dataset(name, data)
        if not isinstance(found, TextSet):
            raise InvalidInputError.of(
                "textcrafter", "data", "data sets of single texts", repr(name)[:60]
            )
        parts.append(found)
    return parts[0] if len(parts) == 1 else joined("+".join(names), parts)


def _sides(found: TextSet, groups: Rows, *, dev_learns: bool) -> tuple[Rows, Rows]:
    """Return the rows to learn from and those that are judged."""
    if found.split is None:
        learn, judge = split_groups(groups, SHARES, seed=SAMPLE_SEED)
        return learn, judge
    splits = np.array(found.split)
    judged = "test" if "test" in found.split else "dev"
    learns = splits != judged if dev_learns else splits == "train"
    return np.flatnonzero(learns), np.flatnonzero(splits == judged)


def _draw(rows: Rows, most: int | None) -> Rows:
    """Return ``rows``, or ``most`` of them drawn at random, in their order."""
    if most is None or len(rows) <= most:
        return rows
    drawn = np.random.default_rng(SAMPLE_SEED).choice(rows, most, replace=False)
    return np.sort(drawn)
