"""Pairs and labels: turn texts, embeddings or class labels into the arrays of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vecveil.concepts import ConceptMatches, TokenVocabulary
from vecveil.concepts.annotated import checked_labels
from vecveil.concepts.folding import canonical
from vecveil.concepts.pairs import LEAST_TEXTS, LISTED_TEXTS, WordMarks, mark_words
from vecveil.errors import IncompatibleError, InvalidInputError, wrong_type
from vecveil.sensitivity.kernel_reader import near_duplicate_groups
from vecveil.types import Embeddings, Groups, Texts, TokenLabels
from vecveil.validation import check_embeddings

MIN_PAIRS = LEAST_TEXTS
MIN_CLASS = 10
"""Fewest rows of a label."""
# Fewest texts for a word to be a label: the next count where one covers too few occurrences.
TOKEN_COUNTS = (10, 5, 3)
MAX_PAIRS = 20_000
EQUAL_PAIR = 1e-5
"""Largest distance of equal vectors, as a share of their norm."""
MAX_BACKGROUND = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class FitVectors:
    """The checked arrays of a fit; fields as in `vecveil.protector.FitData`.

    Attributes:
        rewritten: True for vectors of rewritten texts.
        originals: the vectors of the original texts, for a utility that is measured on them.
        words: marks of the words in the texts of the positives and, after them, of the background; None without texts.
    """

    positive: Embeddings
    negative: Embeddings | None
    labels: TokenLabels | None
    background: Embeddings | None
    groups: Groups | None
    rewritten: bool = False
    originals: FitVectors | None = None
    words: WordMarks | None = None

    @classmethod
    def of_pairs(
        cls, positive: Any, negative: Any, token_labels: Any, background: Any, groups: Any, words: Any = None
    ) -> FitVectors:
        """Return the checked arrays of pairs, without a background of fewer than 20 rows."""
        owner = "fit_pairs"
        positive = check_embeddings(positive, owner=owner, param="positive", min_rows=MIN_PAIRS)
        rows, n = positive.shape
        negative = _same_space(negative, "negative", n)
        if len(negative) != rows:
            raise InvalidInputError.of(
                owner,
                "negative",
                f"of {rows} rows, one for each positive",
                f"{len(negative)} rows",
                code="E-INPUT-SHAPE",
            )
        if background is not None:
            background = _same_space(background, "background", n)
        labels = None if token_labels is None else _check_labels(token_labels, rows)
        groups = None if groups is None else _check_groups(groups, rows)
        background = _enough(background)
        if words is not None:
            words = _check_words(words, rows, token_labels, background)
        if labels is not None:
            labels = np.ascontiguousarray(labels[:, varied(labels)])
            labels = labels if labels.shape[1] > 1 else None
        return cls(positive, negative, labels, background, groups, words=words)

    @classmethod
    def of_labels(cls, X: Any, labels: Any, background: Any, groups: Any) -> FitVectors:
        """Return the checked rows that hold a label; the other rows join the background."""
        owner = "fit_labels"
        X = check_embeddings(X, owner=owner, param="X", min_rows=MIN_PAIRS)
        marks = classes_of(labels, len(X), owner=owner)
        if background is not None:
            background = _same_space(background, "background", X.shape[1])
        ids = None if groups is None else _check_groups(groups, len(X))
        held = marks.any(axis=1)
        rows, marks, ordinary = _with_classes(X, marks, background, owner=owner)
        if ids is not None:
            # With a single class the other rows form a second one; background rows have no id.
            ids = np.concatenate([ids[held], ids[~held]])[: len(rows)]
            ids = ids if len(ids) == len(rows) else None
        return cls(rows, None, marks, _enough(ordinary), ids)


def equal_vectors(X: Embeddings, other: Embeddings) -> npt.NDArray[np.bool_]:
    """Return (N,) True where the rows are equal but for rounding in float32."""
    return np.asarray(np.linalg.norm(X - other, axis=1) <= EQUAL_PAIR * np.linalg.norm(X, axis=1))


def _enough(background: Embeddings | None) -> Embeddings | None:
    return None if background is None or len(background) < MIN_PAIRS else background


def _same_space(value: Any, param: str, n: int) -> Embeddings:
    checked = check_embeddings(value, owner="fit_pairs", param=param)
    if checked.shape[1] != n:
        got = f"dimension {checked.shape[1]}"
        raise IncompatibleError.of("fit_pairs", param, f"of dimension {n}, like `positive`", got)
    return checked


def _check_labels(value: Any, rows: int) -> TokenLabels:
    """Return 0/1 labels (rows, V) as uint8."""
    labels = np.asarray(value)
    numbers = labels.dtype.kind in "biuf"
    if labels.ndim != 2 or len(labels) != rows or not numbers or not np.isin(labels, (0, 1)).all():
        raise InvalidInputError.of(
            "fit_pairs",
            "token_labels",
            f"a 0/1 array of shape ({rows}, V)",
            f"dtype {labels.dtype}, shape {labels.shape}",
            "Row i marks the concept terms in the text of positive row i.",
        )
    return labels.astype(np.uint8)


def _check_words(value: Any, rows: int, labels: Any, background: Embeddings | None) -> WordMarks:
    """Return the marks of the rows in use, with the words of the labels in use."""
    if not isinstance(value, WordMarks):
        raise wrong_type("fit_pairs", "words", "None or a WordMarks, from vecveil.concepts.mark_words", value)
    columns = 0 if labels is None else np.asarray(labels).shape[1]
    if len(value.labels) != columns:
        raise InvalidInputError.of(
            "fit_pairs",
            "words",
            f"of {columns} token labels, as `token_labels` has",
            len(value.labels),
            code="E-INPUT-SHAPE",
        )
    texts, marked = rows if background is None else rows + len(background), value.marks.shape[0]
    if marked < texts or (background is not None and marked != texts):
        raise InvalidInputError.of(
            "fit_pairs", "words", f"marks of {texts} texts, positives then background", marked, code="E-INPUT-SHAPE"
        )
    used = value.labels if labels is None else value.labels[varied(np.asarray(labels))]
    return replace(value, marks=value.marks[:texts], labels=used)


def varied(labels: TokenLabels) -> npt.NDArray[np.bool_]:
    """Return (V,) False for a label that all texts hold, or none: it distinguishes no texts."""
    held = labels.sum(axis=0, dtype=np.intp)
    return np.asarray((held > 0) & (held < len(labels)))


def _check_groups(value: Any, rows: int) -> Groups:
    groups = np.asarray(value)
    if groups.shape != (rows,) or groups.dtype.kind not in "iuUS":
        raise InvalidInputError.of(
            "fit_pairs",
            "groups",
            f"{rows} integers or strings, one for each positive",
            f"dtype {groups.dtype}, shape {groups.shape}",
        )
    return groups


# -- class labels


def classes_of(labels: Any, rows: int, *, owner: str, param: str = "labels") -> TokenLabels:
    """Return (rows, V) 0/1 labels; a row without a label is zero.

    Args:
        labels: one string, integer or None per row, whose V different values become columns in sorted order; or
            a 0/1 array (rows, V).

    Raises:
        InvalidInputError: no labels, a wrong number, or a class of fewer than ten rows.
    """
    if getattr(labels, "ndim", 1) == 2:
        marks = np.asarray(labels)
        if marks.dtype.kind not in "biuf" or len(marks) != rows or not np.isin(marks, (0, 1)).all():
            raise InvalidInputError.of(
                owner,
                param,
                f"a 0/1 array ({rows}, V)",
                f"dtype {marks.dtype}, shape {marks.shape}",
                code="E-INPUT-TYPE",
            )
        marks = marks.astype(np.uint8)
    else:
        values = checked_labels(labels, owner=owner, param=param)
        if len(values) != rows:
            raise InvalidInputError.of(
                owner, param, f"{rows} strings, integers or None", len(values), code="E-INPUT-SHAPE"
            )
        classes = np.array(sorted({value for value in values if value is not None}), dtype=object)
        marks = np.asarray(np.array(values, dtype=object)[:, None] == classes, dtype=np.uint8)
    held = marks.sum(axis=0)
    if not held.size or held.min() < MIN_CLASS:
        got = "no label" if not held.size else f"one of {int(held.min())}"
        raise InvalidInputError.of(owner, param, f"labels of at least {MIN_CLASS} rows each", got, code="E-INPUT-FEW")
    return marks


def _with_classes(
    X: Embeddings, labels: TokenLabels, background: Embeddings | None, *, owner: str
) -> tuple[Embeddings, TokenLabels, Embeddings | None]:
    """Return the rows that hold a label, their labels, and the other rows followed by the background.

    With a single class the others count as a second one.
    """
    held = labels.any(axis=1)
    others = X[~held]
    if background is not None:
        others = np.concatenate([others, background])
    if labels.shape[1] > 1:
        constant = labels[held].all(axis=0)
        if constant.any():
            raise InvalidInputError.of(
                owner,
                "labels",
                "columns that differ between rows with a label",
                f"{int(constant.sum())} that hold in each",
            )
        return X[held], labels[held], others if len(others) else None
    if len(others) < MIN_CLASS:
        raise InvalidInputError.of(
            owner, "labels", "two labels or more, or one and texts without it", "one label that all texts hold"
        )
    both = np.concatenate([X[held], others])
    marks = np.zeros((len(both), 2), dtype=np.uint8)
    marks[: held.sum(), 0] = marks[held.sum() :, 1] = 1
    return both, marks, None


# -- texts


@dataclass(frozen=True, eq=False, repr=False)
class PairTexts:
    """The texts of pairs, the user's own first, and ordinary ones. Keep it in memory: it holds texts.

    Attributes:
        labels: (N, V) the concept words in each positive.
        vocabulary: the word of each label.
        listed: the concept's words, except the rarest.
    """

    positive: list[str]
    negative: list[str]
    ordinary: list[str]
    labels: TokenLabels
    vocabulary: tuple[str, ...]
    listed: frozenset[str]

    @classmethod
    def of(cls, matches: ConceptMatches, texts: Texts, *, min_token_count: int | None, seed: int) -> PairTexts:
        """Return pairs of the matched texts; at most 20,000 per kind, at random."""
        rng = np.random.default_rng(seed)
        # Label all texts before sampling, so that a word's count does not depend on the sample.
        negatives, tokens = matches.negatives(), matches.tokens()
        counts = TOKEN_COUNTS if min_token_count is None else (min_token_count,)
        labels, vocabulary = matches.token_labels(matches.frequent_tokens(counts))
        rows = sample(len(matches.with_concept), MAX_PAIRS, rng)
        ordinary = sample(len(matches.without_concept), MAX_BACKGROUND, rng)
        return cls(
            [texts[matches.with_concept[i]] for i in rows],
            [negatives[i] for i in rows],
            [texts[matches.without_concept[i]] for i in ordinary],
            labels[rows],
            tuple(vocabulary),
            frozenset(TokenVocabulary.most_frequent(tokens, LISTED_TEXTS)),
        )

    def words(self, encode: Any) -> WordMarks:
        """Return the marks of the words in the positives and, after them, in the ordinary texts."""
        return mark_words(self.positive + self.ordinary, self.listed, encode, labels=self.vocabulary)

    def groups(self, X: Embeddings, group_of: Mapping[str, Any] | None) -> Groups | None:
        """Return ids of near-duplicates and of texts of one group; None if the vectors alone show them."""
        if group_of is None:
            folded = [canonical(text) for text in self.positive]
            # An encoder may place copies in different composition far apart.
            copies = len(set(folded)) < len(set(self.positive))
            return joined_groups(near_duplicate_groups(X), folded) if copies else None
        return joined_groups(near_duplicate_groups(X), [group_of[text] for text in self.positive])


def joined_groups(near: Groups, ids: Sequence[Any]) -> Groups:
    """Return groups that join the rows with an equal number in ``near`` or an equal id."""
    own = np.unique([str(each) for each in ids], return_inverse=True)[1].reshape(-1)
    rows = len(own)
    graph = coo_array((np.ones(rows), (near, rows + own)), shape=(2 * rows, 2 * rows))
    joined: Groups = connected_components(graph, directed=False)[1][near]
    return joined


def sample(rows: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return at most ``most`` of the indices 0 .. rows - 1, drawn at random, in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(rng.choice(rows, size=most, replace=False))
