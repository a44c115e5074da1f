"""`Data`: the checked arrays that a protector is fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import IncompatibleError, InvalidInputError, wrong_type
from vecveil.privacy.concepts.concept import checked_labels
from vecveil.privacy.concepts.pairs import LEAST_TEXTS, SPLIT, WordMarks
from vecveil.privacy.mechanisms import Before
from vecveil.privacy.sensitivity.concept_subspace import Moments
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_embeddings, check_groups, connected_groups, number_groups

MIN_PAIRS = LEAST_TEXTS
MIN_CLASS = 10
"""Minimum number of rows per label."""
EQUAL_PAIR = 1e-5
"""Maximum distance of equal vectors, as a share of their norm."""


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Training data of a protector, as arrays. It contains no texts.

    Attributes:
        positive: (N, n) of texts with the concept.
        negative: (N, n) of the same texts without it, or None for a concept given by labels.
        token_labels: (N, V) 0/1, or None.
        background: (K, n) of ordinary texts, or None.
        groups: (N,) ids of rows that belong together, or None.
        words: word marks of the positives and, after them, of the background; None without texts.
        rewritten: True for vectors of rewritten texts.
        originals: vectors of the original texts, for a utility that is measured on them.
    """

    positive: Embeddings
    negative: Embeddings | None = None
    token_labels: TokenLabels | None = None
    background: Embeddings | None = None
    groups: Groups | None = None
    words: WordMarks | None = None
    rewritten: bool = False
    originals: Data | None = None

    @classmethod
    def of_pairs(
        cls, positive: Any, negative: Any, token_labels: Any, background: Any, groups: Any, words: Any = None
    ) -> Data:
        """Return the checked arrays of pairs, without a background of fewer than 20 rows."""
        owner = "fit_pairs"
        positive = check_embeddings(positive, owner=owner, param="positive", min_rows=MIN_PAIRS)
        rows, n = positive.shape
        negative = _same_space(negative, "negative", n)
        if len(negative) != rows:
            raise _wrong_rows("negative", f"{len(negative)} rows", f"{rows} rows of `positive`")
        if background is not None:
            background = _enough(_same_space(background, "background", n))
        labels = None if token_labels is None else _zeros_and_ones(token_labels, rows, "token_labels")
        groups = None if groups is None else _check_groups(groups, rows)
        if words is not None:
            words = _check_words(words, rows, token_labels, background)
        if labels is not None:
            labels = np.ascontiguousarray(labels[:, varied(labels)])
            labels = labels if labels.shape[1] > 1 else None
        return cls(positive, negative, labels, background, groups, words)

    @classmethod
    def of_labels(cls, X: Any, labels: Any, background: Any, groups: Any) -> Data:
        """Return the checked rows that contain a label; the other rows join the background."""
        X = check_embeddings(X, owner="fit_labels", param="X", min_rows=MIN_PAIRS)
        marks = classes_of(labels, len(X))
        if background is not None:
            background = _same_space(background, "background", X.shape[1])
        ids = None if groups is None else _check_groups(groups, len(X))
        held = marks.any(axis=1)
        rows, marks, ordinary = _with_classes(X, marks, background)
        if ids is not None:
            # With a single class the other rows form a second one; background rows have no id.
            ids = np.concatenate([ids[held], ids[~held]])[: len(rows)]
            ids = ids if len(ids) == len(rows) else None
        return cls(rows, None, marks, _enough(ordinary), ids)

    @property
    def dimension(self) -> int:
        return int(self.positive.shape[1])

    @property
    def arrays(self) -> list[Embeddings]:
        return [X for X in (self.positive, self.negative, self.background) if X is not None]

    @property
    def norms(self) -> tuple[float, float]:
        norms = np.concatenate([np.linalg.norm(X, axis=1) for X in self.arrays])
        return float(norms.min()), float(norms.max())

    @property
    def ordinary(self) -> Embeddings | None:
        return self.negative if self.background is None else self.background

    @cached_property
    def moments(self) -> Moments:
        return Moments.of(
            self.positive, self.negative, token_labels=self.token_labels, background=self.background, words=self.words
        )

    def with_moments(self, moments: Moments) -> Data:
        """Return the same data with ``moments``, which the arrays alone do not give."""
        data = replace(self)
        data.__dict__["moments"] = moments
        return data

    def sides(self, param: str, value: object) -> tuple[Embeddings, Embeddings]:
        """Return positives and negatives; for a concept given by labels, raise an error that names ``param``."""
        if self.negative is None:
            raise InvalidInputError(
                f"`{param}` {repr(value)[:40]} compares texts with the same texts without the concept: a concept given "
                "by labels has no such pairs.",
                param=param,
            )
        return self.positive, self.negative

    def preprocessed(self, before: Before, owner: str) -> Data:
        positive, negative, background = (
            None if X is None else before.apply(X, owner=owner) for X in (self.positive, self.negative, self.background)
        )
        assert positive is not None
        return replace(self, positive=positive, negative=negative, background=background)

    def different_pairs(self, owner: str) -> tuple[Data, npt.NDArray[np.intp] | None]:
        """Return the data without the pairs of equal vectors, and the rows kept: None for all.

        An encoder returns equal vectors if it does not read, or does not know, the removed words.
        """
        X, other = self.positive, self.negative
        if other is None or self.rewritten:
            return self, None
        kept = np.flatnonzero(~equal_vectors(X, other))
        equal = len(X) - len(kept)
        if not equal:
            return self, None
        if len(kept) < MIN_PAIRS:
            raise InvalidInputError(
                f"{owner}: {equal} of {len(X)} pairs have equal vectors with and without the concept; at least "
                f"{MIN_PAIRS} must differ. The encoder does not read the concept's words, or does not know them. "
                f"{SPLIT}",
                code="E-INPUT-EQUAL-PAIRS",
                param="negative",
            )
        labels, words = self.token_labels, self.words
        if labels is not None:
            labels = labels[kept]
            columns = varied(labels)
            if words is not None:
                words = replace(words, labels=words.labels[columns])
            labels = np.ascontiguousarray(labels[:, columns]) if columns.sum() > 1 else None
        if words is not None:
            behind = 0 if self.background is None else len(self.background)
            words = words.of(np.concatenate([kept, np.arange(len(X), len(X) + behind)]))
        groups = None if self.groups is None else self.groups[kept]
        return replace(
            self, positive=X[kept], negative=other[kept], token_labels=labels, groups=groups, words=words
        ), kept


def equal_vectors(X: Embeddings, other: Embeddings) -> npt.NDArray[np.bool_]:
    """Return (N,) True where the rows are equal but for rounding in float32."""
    return np.asarray(np.linalg.norm(X - other, axis=1) <= EQUAL_PAIR * np.linalg.norm(X, axis=1))


def varied(labels: TokenLabels) -> npt.NDArray[np.bool_]:
    """Return (V,) False for a label that all texts contain, or none: it distinguishes no texts."""
    held = labels.sum(axis=0, dtype=np.intp)
    return np.asarray((held > 0) & (held < len(labels)))


def joined_groups(near: Groups, ids: Sequence[Any]) -> Groups:
    """Return groups that join the rows with an equal number in ``near`` or an equal id; None joins nothing."""
    (own,) = number_groups([None if each is None else str(each) for each in ids])
    joined: Groups = connected_groups(near, len(own) + own, 2 * len(own))[near]
    return joined


def sample(rows: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return at most ``most`` of the indices 0 .. rows - 1, drawn at random, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, size=most, replace=False))


def classes_of(labels: Any, rows: int, *, param: str = "labels") -> TokenLabels:
    """Return (rows, V) 0/1 labels; a row without a label is zero.

    Args:
        labels: one string, integer or None per row, whose V values become columns in sorted order; or a 0/1 array
            (rows, V).

    Raises:
        InvalidInputError: no labels, a wrong number, or a class of fewer than ten rows.
    """
    if getattr(labels, "ndim", 1) == 2:
        marks = _zeros_and_ones(labels, rows, param)
    else:
        values = checked_labels(labels, owner="fit", param=param)
        if len(values) != rows:
            raise _wrong_rows(param, f"{len(values)} labels", f"{rows} rows")
        classes = np.array(sorted({value for value in values if value is not None}), dtype=object)
        marks = np.asarray(np.array(values, dtype=object)[:, None] == classes, dtype=np.uint8)
    held = marks.sum(axis=0)
    if not held.size or held.min() < MIN_CLASS:
        fewest = f"one has {int(held.min())}" if held.size else "there is no label"
        raise InvalidInputError(
            f"Each label in `{param}` needs at least {MIN_CLASS} rows; {fewest}.", code="E-INPUT-FEW", param=param
        )
    return marks


def _enough(background: Embeddings | None) -> Embeddings | None:
    return None if background is None or len(background) < MIN_PAIRS else background


def _same_space(value: Any, param: str, n: int) -> Embeddings:
    checked = check_embeddings(value, owner="fit_pairs", param=param)
    if checked.shape[1] != n:
        raise IncompatibleError(
            f"`{param}` has dimension {checked.shape[1]}, and the vectors with the concept have dimension {n}.",
            param=param,
        )
    return checked


def _wrong_rows(param: str, given: str, expected: str) -> InvalidInputError:
    return InvalidInputError(f"`{param}` has {given} for {expected}.", code="E-INPUT-SHAPE", param=param)


def _zeros_and_ones(value: Any, rows: int, param: str) -> TokenLabels:
    labels = np.asarray(value)
    numbers = labels.dtype.kind in "biuf"
    if labels.ndim != 2 or len(labels) != rows or not numbers or not np.isin(labels, (0, 1)).all():
        raise InvalidInputError(
            f"`{param}` is a 0/1 array of shape ({rows}, V): row i marks the labels of row i. This one has dtype "
            f"{labels.dtype} and shape {labels.shape}.",
            code="E-INPUT-TYPE",
            param=param,
        )
    return labels.astype(np.uint8)


def _check_words(value: Any, rows: int, labels: Any, background: Embeddings | None) -> WordMarks:
    """Return the marks of the rows in use, with the words of the labels in use."""
    if not isinstance(value, WordMarks):
        raise wrong_type("fit_pairs", "words", "None or a WordMarks, from vecveil.privacy.concepts.mark_words", value)
    columns = 0 if labels is None else np.asarray(labels).shape[1]
    if len(value.labels) != columns:
        raise _wrong_rows("words", f"{len(value.labels)} labels", f"{columns} columns of `token_labels`")
    texts, marked = rows if background is None else rows + len(background), value.marks.shape[0]
    if marked < texts or (background is not None and marked != texts):
        raise _wrong_rows("words", f"marks of {marked} texts", f"{texts} rows, positives then background")
    used = value.labels if labels is None else value.labels[varied(np.asarray(labels))]
    return replace(value, marks=value.marks[:texts], labels=used)


def _check_groups(value: Any, rows: int) -> Groups:
    return number_groups(check_groups(value, rows, owner="fit_pairs"))[0]


def _with_classes(
    X: Embeddings, labels: TokenLabels, background: Embeddings | None
) -> tuple[Embeddings, TokenLabels, Embeddings | None]:
    """Return the rows with a label, their labels (two classes at least), and the background with the other rows."""
    held = labels.any(axis=1)
    others = X[~held]
    if background is not None:
        others = np.concatenate([others, background])
    if labels.shape[1] > 1:
        if count := int(labels[held].all(axis=0).sum()):
            raise InvalidInputError(
                f"{count} of the labels hold for every row with a label, so they distinguish nothing.", param="labels"
            )
        return X[held], labels[held], others if len(others) else None
    if len(others) < MIN_CLASS:
        raise InvalidInputError(
            f"`labels` has one label, and fewer than {MIN_CLASS} rows are without it. Give a second label, or rows "
            "without one.",
            param="labels",
        )
    both = np.concatenate([X[held], others])
    marks = np.zeros((len(both), 2), dtype=np.uint8)
    marks[: held.sum(), 0] = marks[held.sum() :, 1] = 1
    return both, marks, None
