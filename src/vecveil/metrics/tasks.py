"""Utility tasks: figures of usefulness on protected vectors, as a share of the clean figure.

A task holds clean embeddings and calls a *release* to protect them: ``release(X, rng)`` returns protected
vectors, and ``release(X, None)`` the deterministic map alone, for queries that stay on the trusted side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.metrics.classification import classification
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.ranking import NearRows, neighbour_recall, retrieval_ndcg
from vecveil.metrics.similarity import pair_cosines, pearson, spearman, unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

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
        """Return protected / clean with noise on both sides, the quantity that a target is set for."""
        clean = self.clean_value
        # A share of a figure at or below 0 has no meaning.
        if clean <= 0:
            raise InvalidInputError(
                f"{type(self).__name__}: clean vectors score {clean:.3g}, so that no share of it can be kept. Check "
                "the labels, or use another utility.",
                param="utility",
            )
        return self._figure(release, rng) / clean

    def _figure(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        """Return the protected figure with noise on both sides."""
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

    Random pairs alone are nearly all dissimilar, so that their cosines hardly vary and any noise
    dominates them; similarity tasks tell near from far pairs, so both are drawn.
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
    """A task over pairs of texts, both sides protected."""

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
        """Return 1: clean cosines agree with themselves."""
        return Estimate("Spearman" if self.rank else "Pearson", 1.0, 1.0, 1.0, len(self.left))

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return the correlation, with both texts of a pair protected."""
        measure = spearman if self.rank else pearson
        return measure(self._clean, self._cosines(release, rng))


class StsTask(_PairTask):
    """Pearson correlation of cosines with human ``scores``, (N,), of the similarity of two sentences (STS)."""

    key = "sts"
    label = "Sentence similarity (STS, human scores)"

    def __init__(self, left: Embeddings, right: Embeddings, scores: Array) -> None:
        super().__init__(left, right)
        self.scores = np.asarray(scores, dtype=np.float64)
        check_same_length(type(self).__name__, left=self.left, scores=self.scores)

    def clean(self) -> Estimate:
        """Return the correlation of clean cosines with the scores."""
        return pearson(self.scores, pair_cosines(self.left, self.right))

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return the correlation, with both sentences protected."""
        return pearson(self.scores, self._cosines(release, rng))


class NeighbourTask(UtilityTask):
    """Recall@k: the share of a text's k nearest clean neighbours that are still among its k nearest.

    ``X``, (N, n) clean embeddings, are the store and the queries; ``queries`` of them query their neighbours.
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
        """Return 1: every clean neighbour is kept."""
        return Estimate(f"recall@{self.k}", 1.0, 1.0, 1.0, self.queries)

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return the recall; with ``documents``, queries go through the deterministic map alone."""
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

    ``relevance``, (Q, D), holds non-negative judgements, dense or SciPy sparse.
    """

    key = "retrieval"
    label = "Retrieval: nDCG@10"
    sides = ("both", "documents")

    def __init__(self, queries: Embeddings, documents: Embeddings, relevance: Any, *, k: int = 10) -> None:
        owner = "RetrievalTask"
        self.documents = check_embeddings(documents, owner=owner, param="documents", min_rows=2)
        dimension = self.documents.shape[1]
        self.queries = check_embeddings(queries, owner=owner, param="queries", dimension=dimension, min_rows=1)
        # `retrieval_ndcg` checks it against both shapes.
        self.relevance = relevance
        self.k = k

    def clean(self) -> Estimate:
        """Return nDCG@k with clean queries and documents."""
        return retrieval_ndcg(self.queries, self.documents, self.relevance, k=self.k)

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return nDCG@k; with ``documents``, queries go through the deterministic map alone."""
        queries = release(self.queries, rng if sides == "both" else None)
        return retrieval_ndcg(queries, release(self.documents, rng), self.relevance, k=self.k)


class _LabelledRows(NamedTuple):
    X: Embeddings
    classes: Array

    def __repr__(self) -> str:
        # Vectors must not reach logs through a repr.
        return f"_LabelledRows({len(self.X)} rows)"


class ClassificationTask(UtilityTask):
    """Accuracy of a logistic regression on protected vectors.

    The scenario ``development`` trains on protected vectors, ``deployment`` on clean ones.
    """

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
        # A classifier trained on clean vectors cannot read a release of another dimension.
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
        """Return the accuracy on clean vectors."""
        return classification(*self.train, *self.test).accuracy

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        """Return the accuracy on protected vectors."""
        train = release(self.train.X, rng) if self.scenario == "development" else None
        test, classes = self.test
        return classification(
            *self.train, release(test, rng), classes, scenario=self.scenario, protected_train=train
        ).accuracy
