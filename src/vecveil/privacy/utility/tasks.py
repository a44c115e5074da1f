"""Utility of released vectors: similarity, search and classification, and the tasks that targets refer to.

A task contains clean embeddings and calls a *release* to protect them: ``release(X, rng)`` returns protected vectors,
and ``release(X, None)`` the deterministic map alone, for queries that stay on the trusted side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.stats takes a second
from scipy.sparse import csr_array

from vecveil.errors import InvalidInputError, not_finite, optional_import, wrong_shape
from vecveil.privacy.utility.estimates import (
    Estimate,
    bootstrap_interval,
    bootstrap_weights,
    cluster_bootstrap,
    fisher_z,
    group_index,
    other_rows,
    share_estimate,
)
from vecveil.privacy.utility.ranking import top_credit
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

FloatArray = npt.NDArray[np.float64]


def unit_rows(X: Embeddings) -> Embeddings:
    """Return the rows of ``X`` scaled to unit norm; a zero row stays zero (cosine 0 to all)."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    scaled: Embeddings = X / np.where(norms > 0, norms, 1)
    return scaled


def pair_cosines(left: Embeddings, right: Embeddings) -> FloatArray:
    """Return the cosine of row i of ``left`` and row i of ``right``, shape (N,)."""
    owner = "pair_cosines"
    left = check_embeddings(left, owner=owner, param="left")
    right = check_embeddings(right, owner=owner, param="right")
    check_same_length(owner, left=left, right=right)
    if left.shape[1] != right.shape[1]:
        text = f"{owner}: `left` has {left.shape[1]} dimensions and `right` {right.shape[1]}."
        raise InvalidInputError(text, param="right")
    # float64 sums: correlations near 1 depend on the last digits of a float32 cosine.
    cosines: FloatArray = np.einsum("ij,ij->i", unit_rows(left), unit_rows(right), dtype=np.float64)
    return cosines


def embedding_cosine(
    reference_vectors: Embeddings, hypothesis_vectors: Embeddings, groups: Any = None, *, seed: int = 0
) -> Estimate:
    """Return the mean cosine, in [-1, 1], of each text's vector and its reconstruction's, both (N, n); n counts texts.

    An encoder that the attacker did not use makes this independent evidence. Chance pairs each text with the
    reconstruction of another one. A row of zeros has cosine 0.
    """
    owner = "embedding_cosine"
    truth = check_embeddings(reference_vectors, owner=owner, param="reference_vectors", min_rows=1)
    guess = check_embeddings(hypothesis_vectors, owner=owner, param="hypothesis_vectors")
    check_same_length(owner, hypothesis_vectors=guess, reference_vectors=truth)
    index, _ = group_index(groups, len(truth), owner=owner)
    cosines = np.clip(pair_cosines(truth, guess), -1.0, 1.0)
    # The bootstrap is for shares in [0, 1], such as (1 + cosine) / 2.
    low, high = cluster_bootstrap((1 + cosines) / 2, np.ones(len(cosines)), index, seed=seed)
    value = float(cosines.mean())
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    chance = None if swap is None else float(pair_cosines(truth, guess[swap]).mean())
    ends = min(2 * low - 1, value), max(2 * high - 1, value)
    return Estimate("cosine", value, *ends, len(cosines), chance)


def pearson(x: Any, y: Any) -> Estimate:
    """Return Pearson's correlation of ``x`` and ``y``, neither of them constant; n counts the pairs.

    The interval is Fisher's z for independent pairs: pairs that share texts make it a little too narrow.
    """
    a, b = _checked_pairs(x, y, owner="pearson")
    value = _correlation(a, b, owner="pearson")
    return Estimate("Pearson", value, *fisher_z(value, len(a)), len(a), 0.0)


def spearman(x: Any, y: Any) -> Estimate:
    """Return Spearman's rank correlation of ``x`` and ``y`` (ties by mid-ranks); n counts pairs.

    The interval is Fisher's z with the variance of Bonett and Wright (2000).
    """
    a, b = _checked_pairs(x, y, owner="spearman")
    value = _correlation(scipy.stats.rankdata(a), scipy.stats.rankdata(b), owner="spearman")
    # Bonett and Wright's variance is Fisher's times 1 + ρ²/2.
    ends = fisher_z(value, len(a), variance_factor=1 + value**2 / 2)
    return Estimate("Spearman", value, *ends, len(a), 0.0)


def _correlation(a: FloatArray, b: FloatArray, *, owner: str) -> float:
    # Rounding can leave [-1, 1], where Fisher's z is undefined.
    return float(np.clip(_standardised(a, owner) @ _standardised(b, owner), -1.0, 1.0))


def _standardised(values: FloatArray, owner: str) -> FloatArray:
    mean = values.mean()
    deviations: FloatArray = values - mean
    norm = np.linalg.norm(deviations)
    if norm <= _CONSTANT * len(values) * abs(mean):  # the mean is rounded: equal values may differ from it
        text = f"{owner}: `x` or `y` is constant, so the correlation is undefined."
        raise InvalidInputError(text, code="E-INPUT-VALUES", param="x")
    return deviations / norm


def _checked_pairs(x: Any, y: Any, *, owner: str) -> tuple[FloatArray, FloatArray]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise wrong_shape(owner, "x", f"(N,) like `y`, which has {b.shape}, with N of at least 2", a.shape)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise not_finite(owner, "x", "values that are not finite (NaN or infinity) in `x` or `y`")
    return a, b


_CONSTANT = 1e-15  # deviations from the mean below this share of it are rounding errors
_BLOCK = 4_000_000  # similarities held at once
_SAME = 1e-6  # cosines closer than this count as equal


def neighbour_recall(
    clean: Embeddings,
    protected: Embeddings,
    *,
    k: int = 10,
    queries: Embeddings | None = None,
    sample: int | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Estimate:
    """Return the share of each text's ``k`` nearest neighbours that protection keeps (cosine).

    Every text queries all others. A retrieved text counts if it is, on clean vectors, at least as near as the k-th
    neighbour; ties among protected vectors share the credit, so constant vectors score chance. n counts the queries.

    Args:
        k: Neighbours per text, less than N.
        queries: (N, m) protected queries, for example by the map without noise; None queries with ``protected`` itself
            (noise on both sides).
        sample: Number of texts that query, drawn at random; None takes all. Time grows with sample × N; memory stays
            within a few hundred MB unless most texts are equal.
        groups: (N,) text groups for the interval.
    """
    owner = "neighbour_recall"
    protected = check_embeddings(protected, owner=owner, param="protected")
    queries = protected if queries is None else check_embeddings(queries, owner=owner, param="queries")
    check_same_length(owner, clean=clean, protected=protected, queries=queries)
    if queries.shape[1] != protected.shape[1]:
        dimensions = f"{queries.shape[1]} dimensions, the protected rows {protected.shape[1]}"
        raise InvalidInputError(f"{owner}: `queries` have {dimensions}.", param="queries")
    near = NearRows.of(clean, k=k, sample=sample, seed=seed)
    kept = near.shares_kept(protected, queries)
    index, _ = group_index(groups, len(clean), owner=owner)
    chance = k / (len(clean) - 1)
    return share_estimate(f"recall@{k}", kept, groups=index[near.queries], chance=chance, seed=seed)


class NearRows(NamedTuple):
    """The ``k`` nearest clean rows of each of ``queries``, as (query, row) ``pairs``; computed once for a search."""

    k: int
    rows: int
    queries: npt.NDArray[np.intp]
    pairs: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

    @classmethod
    def of(cls, clean: Embeddings, *, k: int, sample: int | None = None, seed: int = 0) -> NearRows:
        """Return the nearest rows by cosine, with those as near as the k-th."""
        owner = "neighbour_recall"
        clean = unit_rows(check_embeddings(clean, owner=owner, param="clean", min_rows=2))
        rows = len(clean)
        k = check_count(k, owner=owner, param="k", maximum=rows - 1)
        chosen = np.arange(rows)
        if sample is not None and check_count(sample, owner=owner, param="sample") < rows:
            chosen = np.sort(np.random.default_rng(seed).choice(rows, size=sample, replace=False))
        pairs = []
        for start, block in _blocks(chosen, rows):
            near = clean[block] @ clean.T
            near[np.arange(len(block)), block] = -np.inf  # a text is not its own neighbour
            kth = np.partition(near, rows - k, axis=1)[:, rows - k, None]
            places, columns = np.nonzero(near >= kth - _SAME)
            pairs.append((start + places, columns))
        first, second = zip(*pairs, strict=True)
        return cls(k, rows, chosen, (np.concatenate(first), np.concatenate(second)))

    def shares_kept(self, protected: Embeddings, queries: Embeddings | None = None) -> FloatArray:
        """Return the share of its near rows that each query keeps; arguments of `neighbour_recall`, unchecked."""
        queries = protected if queries is None else queries
        places, near = self.pairs
        protected, queries = unit_rows(protected), unit_rows(queries[self.queries])
        credit = np.empty(len(near))
        for start, block in _blocks(self.queries, self.rows):
            got = (queries[start : start + len(block)] @ protected.T).astype(np.float64)  # ties are compared exactly
            got[np.arange(len(block)), block] = -np.inf
            part = slice(*np.searchsorted(places, [start, start + len(block)]))
            credit[part] = top_credit(got, np.full(len(block), self.k))[places[part] - start, near[part]]
        return np.bincount(places, weights=credit, minlength=len(self.queries)) / self.k


def _blocks(chosen: npt.NDArray[np.intp], rows: int) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the start and the rows of blocks of ``chosen`` whose similarities with all rows fit in memory."""
    step = max(1, _BLOCK // (2 * rows))
    for start in range(0, len(chosen), step):
        yield start, chosen[start : start + step]


def ndcg_of_scores(scores: Any, relevance: Any, *, k: int = 10) -> FloatArray:
    """Return nDCG@k of each query, shape (Q,); NaN for a query without a relevant document.

    Formula: sum over the k best of gain / log2(rank + 1), over the same for the ideal order; the gain is the relevance
    itself (Järvelin and Kekäläinen 2002, as trec_eval computes it). Equal scores share their ranks' discounts (McSherry
    and Najork 2008).

    Args:
        scores: (Q, D) a score for each document.
        relevance: (Q, D) at least 0; an array or a SciPy sparse array.
    """
    k = check_count(k, owner="ndcg_of_scores", param="k")
    return _ndcg(*_checked_gains(scores, relevance, owner="ndcg_of_scores"), k)


def _ndcg(s: FloatArray, gains: csr_array[Any], k: int) -> FloatArray:
    """Return nDCG@k of each query; documents with the score -inf are not ranked."""
    values = np.full(len(s), np.nan)
    for query, row in enumerate(s):
        part = slice(gains.indptr[query], gains.indptr[query + 1])
        gain, documents = gains.data[part], gains.indices[part]
        # Ideal order: the largest gains first.
        ideal = float(np.sort(gain)[::-1][:k] @ rank_discounts(k)[: min(k, gain.size)])
        if ideal > 0:
            values[query] = _dcg(row, gain, documents, k) / ideal
    return values


def retrieval_ndcg(
    queries: Embeddings, documents: Embeddings, relevance: Any, *, own: Any = None, k: int = 10, seed: int = 0
) -> Estimate:
    """Return mean nDCG@k of ranking ``documents``, (D, n), by cosine to ``queries``, (Q, n).

    n counts the queries with a relevant document, which the interval resamples. ``relevance`` is (Q, D) and at least 0;
    a SciPy sparse array saves memory. ``own``, (Q,), is the row of the document that equals each query, below 0 for
    none; the query's ranking omits it, as BEIR's evaluation does.
    """
    owner = "retrieval_ndcg"
    queries = unit_rows(check_embeddings(queries, owner=owner, param="queries", min_rows=1))
    documents = unit_rows(check_embeddings(documents, owner=owner, param="documents", min_rows=1))
    gains = csr_array(relevance, dtype=np.float64)
    expected = (len(queries), len(documents))
    if queries.shape[1] != documents.shape[1] or gains.shape != expected:
        shapes = f"{gains.shape}, `queries` {queries.shape} and `documents` {documents.shape}"
        text = f"{owner}: the shapes differ: `relevance` {shapes}."
        raise InvalidInputError(text, code="E-INPUT-SHAPE", param="relevance")
    own = check_own(own, len(queries), len(documents), owner=owner)
    k = check_count(k, owner=owner, param="k")
    # Blocks of queries: the Q × D cosines are never held at once.
    step = max(1, _BLOCK // len(documents))
    values = []
    for i in range(0, len(queries), step):
        scores, block = _checked_gains(queries[i : i + step] @ documents.T, gains[i : i + step], owner=owner)
        copies = np.flatnonzero(own[i : i + step] >= 0)
        scores[copies, own[i + copies]] = -np.inf
        values.append(_ndcg(scores, block, k))
    relevant = np.concatenate(values)
    relevant = relevant[np.isfinite(relevant)]
    if relevant.size == 0:
        raise InvalidInputError(f"{owner}: `relevance` names no relevant document.", param="relevance")
    return share_estimate(f"nDCG@{k}", relevant, seed=seed)


def check_own(value: Any, queries: int, documents: int, *, owner: str) -> npt.NDArray[np.intp]:
    """Return the row of each query's own document, below 0 for none."""
    own = np.full(queries, -1) if value is None else np.asarray(value)
    if own.shape != (queries,) or own.dtype.kind not in "iu" or (own >= documents).any():
        text = f"{owner}: `own` takes the row of a document, or -1, for each of {queries} queries."
        raise InvalidInputError(text, param="own")
    return own.astype(np.intp)


def _checked_gains(scores: Any, relevance: Any, *, owner: str) -> tuple[FloatArray, csr_array[Any]]:
    s = np.asarray(scores, dtype=np.float64)
    gains = csr_array(relevance, dtype=np.float64)
    if s.ndim != 2 or s.shape != gains.shape or s.shape[1] == 0:
        expected = f"(Q, D) like `relevance`, which has {gains.shape}, with D of at least 1"
        raise wrong_shape(owner, "scores", expected, s.shape)
    if not np.isfinite(s).all():
        raise not_finite(owner, "scores")
    if not np.isfinite(gains.data).all() or (gains.data < 0).any():
        raise InvalidInputError(f"{owner}: `relevance` takes finite numbers of 0 or more.", param="relevance")
    return s, gains


def _dcg(row: FloatArray, gain: FloatArray, documents: npt.NDArray[Any], k: int) -> float:
    """Return the expected DCG@k under random order of equal scores."""
    k = min(k, row.size)
    kth = np.partition(row, row.size - k)[row.size - k]  # worse documents earn nothing
    total = 0.0
    discounts = rank_discounts(k)
    for g, score in zip(gain, row[documents], strict=True):
        if score >= kth and score > -np.inf and g > 0:
            # Tied documents share the discounts of the ranks that they occupy together.
            first = int((row > score).sum())
            tied = int((row == score).sum())
            total += g * float(discounts[first : first + tied].sum()) / tied
    return total


def rank_discounts(k: int) -> FloatArray:
    discounts: FloatArray = 1.0 / np.log2(np.arange(2, k + 2))
    return discounts


Scenario = Literal["deployment", "development"]

_INVERSE_PENALTY = 10.0


@dataclass(frozen=True, slots=True)
class Classification:
    """Accuracy and macro-F1 of one classifier on test vectors, with their scenario."""

    scenario: Scenario
    accuracy: Estimate
    macro_f1: Estimate

    def to_record(self) -> dict[str, Any]:
        return {"scenario": self.scenario, "accuracy": self.accuracy.to_record(), "macro_f1": self.macro_f1.to_record()}


def classification(
    train: Embeddings,
    train_classes: Any,
    test: Embeddings,
    test_classes: Any,
    *,
    scenario: Scenario = "deployment",
    protected_train: Embeddings | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Classification:
    """Return accuracy and macro-F1 of a logistic regression on unit-norm vectors.

    Chance is the constant answer of the training set's most frequent class.

    Args:
        train: (N, n) clean training vectors.
        test: (M, m) released test vectors.
        scenario: ``"deployment"`` trains on ``train``, ``"development"`` on ``protected_train``.
        protected_train: (N, m) the training vectors as released; needed for development.
        groups: (M,) groups of the test texts, for the interval.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    owner = "classification"
    if scenario not in ("deployment", "development"):
        raise InvalidInputError("`scenario` is 'deployment' or 'development'.", param="scenario")
    if scenario == "development":
        if protected_train is None:
            raise InvalidInputError("The development scenario needs `protected_train`.", param="protected_train")
        train = protected_train
    train = check_embeddings(train, owner=owner, param="train", min_rows=2)
    test = check_embeddings(test, owner=owner, param="test", min_rows=1)
    if train.shape[1] != test.shape[1]:
        raise InvalidInputError(
            f"`train` has {train.shape[1]} dimensions and `test` {test.shape[1]}: a reduced release has no deployment "
            "scenario.",
            param="test",
        )
    y, truth = np.asarray(train_classes), np.asarray(test_classes)
    check_same_length(owner, train_classes=y, train=train)
    check_same_length(owner, test_classes=truth, test=test)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InvalidInputError("`train_classes` has one class only.", param="train_classes")
    with optional_import("The classification metric", "scikit-learn", "attacks"):
        from sklearn.linear_model import LogisticRegression
    # Unit norm: search and classification see directions, and the penalty one scale.
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=2000)
    model.fit(unit_rows(train), y)
    answer = model.predict(unit_rows(test))
    guess = np.full(len(truth), classes[counts.argmax()])
    index, _ = group_index(groups, len(truth), owner=owner)
    right, chance = (answer == truth).astype(np.float64), float((guess == truth).mean())
    accuracy = share_estimate("accuracy", right, groups=index, chance=chance, seed=seed)
    f1 = macro_f1(truth, answer, groups=index, guess=guess, seed=seed)
    return Classification(scenario, accuracy, f1)


def macro_f1(truth: Any, answer: Any, *, groups: Any = None, guess: Any = None, seed: int = 0) -> Estimate:
    """Return the mean F1 over the classes that occur in ``truth`` or ``answer``, both (N,).

    ``guess``, (N,), is an answer made without the vectors; its macro-F1 is the chance level.
    """
    truth, answer = np.asarray(truth), np.asarray(answer)
    rows = check_same_length("macro_f1", truth=truth, answer=answer)
    if rows == 0:
        raise InvalidInputError("macro_f1: `truth` has no row.", param="truth")
    index, count = group_index(groups, rows, owner="macro_f1")
    # Count by group, so that a bootstrap sample is a weighted sum of counts.
    hits, sizes = _class_counts(truth, answer, index, count)
    present = sizes.sum(axis=0) > 0  # fixed over the bootstrap, or classes would come and go
    value = float(_mean_f1(hits.sum(axis=0), sizes.sum(axis=0), present))
    chance = None
    if guess is not None:
        h, s = _class_counts(truth, np.asarray(guess), np.zeros(rows, dtype=np.intp), 1)
        # Classes that only the answers hold do not count against the guess.
        chance = float(_mean_f1(h[0], s[0], s[0] > 0))
    values = [_mean_f1(weights @ hits, weights @ sizes, present) for weights in bootstrap_weights(count, seed=seed)]
    ends = bootstrap_interval(np.concatenate(values), value, count)
    return Estimate("macro-F1", value, *ends, rows, chance)


def _class_counts(
    truth: npt.NDArray[Any], answer: npt.NDArray[Any], index: npt.NDArray[np.intp], count: int
) -> tuple[FloatArray, FloatArray]:
    """Return, by group and class, the true positives and the size of the class in truth plus answers."""
    classes = np.unique(np.concatenate([truth, answer]))
    hits = np.zeros((count, len(classes)))
    sizes = np.zeros((count, len(classes)))
    np.add.at(sizes, (index, np.searchsorted(classes, truth)), 1.0)
    np.add.at(sizes, (index, np.searchsorted(classes, answer)), 1.0)
    same = truth == answer
    np.add.at(hits, (index[same], np.searchsorted(classes, truth[same])), 1.0)
    return hits, sizes


def _mean_f1(hits: FloatArray, sizes: FloatArray, present: npt.NDArray[np.bool_]) -> FloatArray:
    # F1 = 2 TP / (size in truth + size in answers), class by class.
    f1 = np.divide(2 * hits, sizes, out=np.zeros_like(hits), where=sizes > 0)
    mean: FloatArray = f1[..., present].mean(axis=-1)
    return mean


Array = npt.NDArray[Any]
UtilityRelease = Callable[[Embeddings, "np.random.Generator | None"], Embeddings]
Sides = Literal["both", "documents"]

_NEAREST = 5  # neighbours that a pair of near rows is drawn from


class UtilityTask(ABC):
    """One measure of usefulness.

    Attributes:
        sides: Sides that a release can protect; ``documents`` sends queries through the deterministic map.
        same_space: Whether protected vectors must have the dimension of clean ones.
    """

    key: str
    label: str
    sides: ClassVar[tuple[Sides, ...]] = ("both",)
    same_space: bool = False

    @abstractmethod
    def clean(self) -> Estimate:
        """Return the figure on clean vectors."""

    @abstractmethod
    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return the figure on protected vectors."""

    # Computed once: a search for a noise scale calls `relative` many times.
    @cached_property
    def clean_value(self) -> float:
        """Return the clean figure as a bare number."""
        return self.clean().value

    def relative(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        """Return protected / clean with noise on both sides, the quantity that a target refers to."""
        clean = self.clean_value
        # A share of a figure at or below 0 has no meaning.
        if clean <= 0:
            raise InvalidInputError(
                f"{type(self).__name__}: clean vectors score {clean:.3g}; a target needs a score above 0. Check the "
                "labels, or use another utility.",
                param="utility",
            )
        return self._figure(release, rng) / clean

    def _figure(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        return self.protected(release, rng).value

    def to_record(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> dict[str, Any]:
        """Return one entry of a record's ``utility``: clean, protected, relative, with an interval."""
        return self._entry(self.protected(release, rng, sides=sides), sides)

    def _entry(self, estimate: Estimate, sides: Sides) -> dict[str, Any]:
        clean = self.clean_value
        return {
            "label": self.label,
            "metric": estimate.metric,
            "clean": clean,
            "value": estimate.value,
            "relative": estimate.value / clean if clean > 0 else None,
            "low": estimate.low,
            "high": estimate.high,
            "n": estimate.n,
            "sides": sides,
        }


def mixed_pairs(X: Embeddings, count: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Return ``count`` pairs of rows: half at random, half a row with one of its five nearest neighbours.

    Cosines of random pairs hardly vary, so noise alone would dominate them.
    """
    rng = np.random.default_rng(seed)
    rows = len(X)
    half = count // 2
    left = rng.integers(0, rows, size=count - half)
    # A step of 1 to N − 1 rows never pairs a row with itself.
    right = (left + rng.integers(1, rows, size=left.size)) % rows
    anchors = rng.permutation(rows)[:half]
    unit = unit_rows(np.asarray(X, dtype=np.float32))  # precise enough to find neighbours
    near = np.empty(len(anchors), dtype=np.intp)
    k = min(_NEAREST, rows - 1)
    for start in range(0, len(anchors), 1024):
        block = anchors[start : start + 1024]
        each = np.arange(len(block))
        cosines = unit[block] @ unit.T
        # Neither the row itself nor an exact duplicate is a neighbour.
        cosines[cosines > 1 - 1e-5] = -2.0
        cosines[each, block] = -2.0
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        near[start : start + len(block)] = best[each, rng.integers(0, k, size=len(block))]
    return np.concatenate([left, anchors]), np.concatenate([right, near])


class _PairTask(UtilityTask):
    def __init__(self, left: Embeddings, right: Embeddings) -> None:
        owner = type(self).__name__
        self.left = check_embeddings(left, owner=owner, param="left", min_rows=3)
        dimension = self.left.shape[1]
        self.right = check_embeddings(right, owner=owner, param="right", dimension=dimension, min_rows=3)
        check_same_length(owner, left=self.left, right=self.right)

    def _cosines(self, release: UtilityRelease, rng: np.random.Generator) -> Array:
        return pair_cosines(release(self.left, rng), release(self.right, rng))


class SimilarityTask(_PairTask):
    """Pearson correlation of the pairs' cosines before and after protection; clean vectors have 1.

    Row i of ``left`` and of ``right``, (N, n) clean embeddings, form a pair; ``rank`` correlates ranks (Spearman).
    """

    key = "similarity"
    label = "Similarity of pairs (Pearson of cosines)"

    def __init__(self, left: Embeddings, right: Embeddings, *, rank: bool = False) -> None:
        super().__init__(left, right)
        self.rank = rank
        if rank:
            self.key = "similarity_rank"
            self.label = "Similarity of pairs (Spearman of cosines)"
        self._clean = pair_cosines(self.left, self.right)

    @classmethod
    def of(cls, X: Embeddings, *, pairs: int = 3000, seed: int = 0, rank: bool = False) -> SimilarityTask:
        """Return the task over `mixed_pairs` of ``X``."""
        X = check_embeddings(X, owner="SimilarityTask.of", param="X", min_rows=3)
        count = check_count(pairs, owner="SimilarityTask.of", param="pairs", minimum=4)
        i, j = mixed_pairs(X, count, seed=seed)
        return cls(X[i], X[j], rank=rank)

    def clean(self) -> Estimate:
        return Estimate("Spearman" if self.rank else "Pearson", 1.0, 1.0, 1.0, len(self.left))

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        measure = spearman if self.rank else pearson
        return measure(self._clean, self._cosines(release, rng))


class StsTask(_PairTask):
    """Pearson correlation of cosines with human similarity ``scores``, (N,), of two sentences (STS)."""

    key = "sts"
    label = "Sentence similarity (STS, human scores)"

    def __init__(self, left: Embeddings, right: Embeddings, scores: Array) -> None:
        super().__init__(left, right)
        self.scores = np.asarray(scores, dtype=np.float64)
        check_same_length(type(self).__name__, left=self.left, scores=self.scores)

    def clean(self) -> Estimate:
        return pearson(self.scores, pair_cosines(self.left, self.right))

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        return pearson(self.scores, self._cosines(release, rng))


class NeighbourTask(UtilityTask):
    """Recall@k: the share of a text's k nearest clean neighbours that are still among its k nearest.

    ``X``, (N, n) clean embeddings, are the store and the queries; ``queries`` is how many of them query.
    """

    key = "neighbours"
    label = "Nearest neighbours (recall@10)"
    sides = ("both", "documents")

    def __init__(self, X: Embeddings, *, k: int = 10, queries: int = 500, seed: int = 0) -> None:
        owner = "NeighbourTask"
        # k + 2 rows: with k + 1 every other row is a neighbour and recall is always 1.
        self.X = check_embeddings(X, owner=owner, param="X", min_rows=k + 2)
        self.k = check_count(k, owner=owner, param="k")
        self.queries = min(check_count(queries, owner=owner, param="queries"), len(self.X))
        self.seed = seed

    def clean(self) -> Estimate:
        return Estimate(f"recall@{self.k}", 1.0, 1.0, 1.0, self.queries)

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        store = release(self.X, rng)
        # Queries that stay on the trusted side carry no noise.
        queries = None if sides == "both" else release(self.X, None)
        return neighbour_recall(self.X, store, k=self.k, queries=queries, sample=self.queries, seed=self.seed)

    def _figure(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        # Without the bootstrapped interval, which took half of a search's time and which no search reads.
        return float(self._near.shares_kept(release(self.X, rng)).mean())

    @cached_property
    def _near(self) -> NearRows:
        return NearRows.of(self.X, k=self.k, sample=self.queries, seed=self.seed)


class RetrievalTask(UtilityTask):
    """nDCG@10 of documents, (D, n), ranked by cosine to queries, (Q, n).

    ``relevance``, (Q, D), holds non-negative judgements, dense or SciPy sparse. ``own`` is as in `retrieval_ndcg`.
    """

    key = "retrieval"
    label = "Retrieval: nDCG@10"
    sides = ("both", "documents")

    def __init__(
        self, queries: Embeddings, documents: Embeddings, relevance: Any, *, own: Any = None, k: int = 10
    ) -> None:
        owner = "RetrievalTask"
        self.documents = check_embeddings(documents, owner=owner, param="documents", min_rows=2)
        dimension = self.documents.shape[1]
        self.queries = check_embeddings(queries, owner=owner, param="queries", dimension=dimension, min_rows=1)
        # `retrieval_ndcg` checks it against both shapes.
        self.relevance = relevance
        self.own = check_own(own, len(self.queries), len(self.documents), owner=owner)
        self.k = k

    def clean(self) -> Estimate:
        return retrieval_ndcg(self.queries, self.documents, self.relevance, own=self.own, k=self.k)

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        queries = release(self.queries, rng if sides == "both" else None)
        return retrieval_ndcg(queries, release(self.documents, rng), self.relevance, own=self.own, k=self.k)


class _LabelledRows(NamedTuple):
    X: Embeddings
    classes: Array

    def __repr__(self) -> str:
        # Vectors must not reach logs through a repr.
        return f"_LabelledRows({len(self.X)} rows)"


class ClassificationTask(UtilityTask):
    """Accuracy of a logistic regression on protected vectors, trained on protected (``development``) or clean ones."""

    key = "classification"
    label = "Classification: accuracy"

    def __init__(
        self,
        train: Embeddings,
        train_classes: Array,
        test: Embeddings,
        test_classes: Array,
        *,
        scenario: Literal["development", "deployment"] = "development",
    ) -> None:
        owner = "ClassificationTask"
        self.train = _LabelledRows(check_embeddings(train, owner=owner, param="train"), np.asarray(train_classes))
        self.test = _LabelledRows(check_embeddings(test, owner=owner, param="test"), np.asarray(test_classes))
        check_same_length(owner, train=self.train.X, train_classes=self.train.classes)
        check_same_length(owner, test=self.test.X, test_classes=self.test.classes)
        self.scenario: Literal["development", "deployment"] = scenario
        # A classifier trained on clean vectors cannot take a release of a different dimension.
        self.same_space = scenario == "deployment"

    @classmethod
    def of(cls, X: Embeddings, classes: Array, *, test_share: float = 0.3, seed: int = 0) -> ClassificationTask:
        """Return the task on a random split of labelled embeddings."""
        X = check_embeddings(X, owner="ClassificationTask.of", param="X", min_rows=10)
        check_same_length("ClassificationTask.of", X=X, classes=classes)
        order = np.random.default_rng(seed).permutation(len(X))
        cut = max(1, int(test_share * len(X)))
        labels = np.asarray(classes)
        return cls(X[order[cut:]], labels[order[cut:]], X[order[:cut]], labels[order[:cut]])

    def clean(self) -> Estimate:
        return classification(*self.train, *self.test).accuracy

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        train = release(self.train.X, rng) if self.scenario == "development" else None
        test, classes = self.test
        return classification(
            *self.train, release(test, rng), classes, scenario=self.scenario, protected_train=train
        ).accuracy
