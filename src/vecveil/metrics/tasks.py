"""Utility tasks: what protected vectors are still good for, as a share of the clean figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.metrics.classification import classification
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.ranking import neighbour_recall, retrieval_ndcg
from vecveil.metrics.similarity import pair_cosines, pearson, spearman, unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

__all__ = [
    "ClassificationTask",
    "NeighbourTask",
    "RetrievalTask",
    "Sides",
    "SimilarityTask",
    "StsTask",
    "UtilityRelease",
    "UtilityTask",
    "mixed_pairs",
]

UtilityRelease = Callable[[Embeddings, "np.random.Generator | None"], Embeddings]
Sides = Literal["both", "documents"]


class UtilityTask(ABC):
    """One measure of usefulness.

    Attributes:
        key: short unique name in records.
        label: what a person reads.
        sides: which sides a release can protect: every task has ``both``; retrieval and neighbours also
            ``documents``, with queries through the deterministic map.
        same_space: whether protected vectors must have the dimension of clean ones.
    """

    key: str
    label: str
    sides: ClassVar[tuple[Sides, ...]] = ("both",)
    same_space: bool = False

    @abstractmethod
    def clean(self) -> Estimate:
        """Return the figure on clean vectors."""

    @abstractmethod
    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the figure on protected vectors."""

    @cached_property
    def clean_value(self) -> float:
        """The clean figure as a bare number."""
        return self.clean().value

    def relative(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        """Return protected / clean with noise on both sides, the quantity that a target is set for."""
        clean = self.clean_value
        if clean <= 0:
            raise InvalidInputError.of(type(self).__name__, "utility", "a task that clean vectors can do",
                                       f"a clean figure of {clean:.3g}", "A share of nothing cannot be kept.",
                                       "Check the labels, or use another utility.")  # fmt: skip
        return self.protected(release, rng).value / clean

    def to_record(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> dict[str, Any]:
        """Return one entry of a record's ``utility``: clean, protected, relative, with an interval."""
        estimate = self.protected(release, rng, sides=sides)
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


Array = npt.NDArray[Any]


def mixed_pairs(
    X: Embeddings, count: int, *, seed: int = 0, neighbours: int = 5
) -> tuple[Array, Array]:
    """Return ``count`` pairs of rows: half at random, half a row with one of its nearest ``neighbours``.

    Random pairs alone are nearly all dissimilar, so that their cosines hardly vary and any noise
    drowns them; similarity tasks are about telling the near from the far, so both are drawn.
    """
    rng = np.random.default_rng(seed)
    rows = len(X)
    half = count // 2
    left = rng.integers(0, rows, size=count - half)
    right = (left + rng.integers(1, rows, size=left.size)) % rows
    anchors = rng.permutation(rows)[:half]
    unit = unit_rows(np.asarray(X, dtype=np.float32))
    near = np.empty(len(anchors), dtype=np.intp)
    k = min(neighbours, rows - 1)
    for start in range(0, len(anchors), 1024):
        block = anchors[start : start + 1024]
        cosines = unit[block] @ unit.T
        # The row itself is no neighbour, nor is an exact duplicate: its cosine says nothing.
        cosines[cosines > 1 - 1e-5] = -2.0
        cosines[np.arange(len(block)), block] = -2.0
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        near[start : start + len(block)] = best[
            np.arange(len(block)), rng.integers(0, k, size=len(block))
        ]
    return np.concatenate([left, anchors]), np.concatenate([right, near])


class _PairTask(UtilityTask):
    """A task over pairs of texts, both sides protected."""

    def __init__(self, left: Embeddings, right: Embeddings) -> None:
        owner = type(self).__name__
        self.left = check_embeddings(left, owner=owner, param="left", min_rows=3)
        self.right = check_embeddings(
            right, owner=owner, param="right", dimension=self.left.shape[1], min_rows=3
        )
        check_same_length(owner, left=self.left, right=self.right)

    def _cosines(self, release: UtilityRelease, rng: np.random.Generator) -> Array:
        return pair_cosines(release(self.left, rng), release(self.right, rng))


class SimilarityTask(_PairTask):
    """Pearson correlation of the pairs' cosines before and after protection; clean vectors have 1.

    Args:
        left, right: (N, n) clean embeddings, row i of each one pair.
        rank: also known as Spearman: correlate the ranks instead.
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
    def of(
        cls, X: Embeddings, *, pairs: int = 3000, seed: int = 0, rank: bool = False
    ) -> SimilarityTask:
        """Return the task over `mixed_pairs` of ``X``."""
        X = check_embeddings(X, owner="SimilarityTask.of", param="X", min_rows=3)
        count = check_count(pairs, owner="SimilarityTask.of", param="pairs", minimum=4)
        i, j = mixed_pairs(X, count, seed=seed)
        return cls(X[i], X[j], rank=rank)

    def clean(self) -> Estimate:
        """Return 1: clean cosines agree with themselves."""
        name = "Spearman" if self.rank else "Pearson"
        return Estimate(metric=name, value=1.0, low=1.0, high=1.0, n=len(self.left))

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the correlation, with both texts of a pair protected."""
        measure = spearman if self.rank else pearson
        return measure(self._clean, self._cosines(release, rng))


class StsTask(_PairTask):
    """Pearson correlation of cosines with human scores of similarity (STS).

    Args:
        left, right: (N, n) clean embeddings of the two sentences.
        scores: (N,) human scores.
    """

    key = "sts"
    label = "Sentence similarity (STS, human scores)"

    def __init__(self, left: Embeddings, right: Embeddings, scores: Array) -> None:
        super().__init__(left, right)
        self.scores = np.asarray(scores, dtype=np.float64)
        check_same_length(type(self).__name__, left=self.left, scores=self.scores)

    def clean(self) -> Estimate:
        """Return the correlation of clean cosines with the scores."""
        return pearson(self.scores, pair_cosines(self.left, self.right))

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the correlation, with both sentences protected."""
        return pearson(self.scores, self._cosines(release, rng))


class NeighbourTask(UtilityTask):
    """Recall@k: the share of a text's k nearest clean neighbours that are still among its k nearest.

    Args:
        X: (N, n) clean embeddings: the store, and the queries.
        queries: number of texts that are asked for their neighbours.
    """

    key = "neighbours"
    label = "Nearest neighbours (recall@10)"
    sides = ("both", "documents")

    def __init__(self, X: Embeddings, *, k: int = 10, queries: int = 500, seed: int = 0) -> None:
        self.X = check_embeddings(X, owner="NeighbourTask", param="X", min_rows=k + 2)
        self.k = check_count(k, owner="NeighbourTask", param="k")
        self.queries = min(
            check_count(queries, owner="NeighbourTask", param="queries"), len(self.X)
        )
        self.seed = seed

    def clean(self) -> Estimate:
        """Return 1: every clean neighbour is its own."""
        return Estimate(metric=f"recall@{self.k}", value=1.0, low=1.0, high=1.0, n=self.queries)

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the recall; with ``documents``, queries go through the deterministic map alone."""
        store = release(self.X, rng)
        queries = None if sides == "both" else release(self.X, None)
        return neighbour_recall(
            self.X, store, k=self.k, queries=queries, sample=self.queries, seed=self.seed
        )


class RetrievalTask(UtilityTask):
    """nDCG@10 of documents ranked by cosine.

    Args:
        queries: (Q, n) clean embeddings of the queries.
        documents: (D, n) clean embeddings of the documents.
        relevance: (Q, D) non-negative judgements, dense or scipy sparse.
    """

    key = "retrieval"
    label = "Retrieval: nDCG@10"
    sides = ("both", "documents")

    def __init__(
        self, queries: Embeddings, documents: Embeddings, relevance: Any, *, k: int = 10
    ) -> None:
        self.documents = check_embeddings(
            documents, owner="RetrievalTask", param="documents", min_rows=2
        )
        self.queries = check_embeddings(
            queries,
            owner="RetrievalTask",
            param="queries",
            dimension=self.documents.shape[1],
            min_rows=1,
        )
        self.relevance = relevance
        self.k = k

    def clean(self) -> Estimate:
        """Return nDCG@k with clean queries and documents."""
        return retrieval_ndcg(self.queries, self.documents, self.relevance, k=self.k)

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return nDCG@k; with ``documents``, queries go through the deterministic map alone."""
        queries = release(self.queries, rng if sides == "both" else None)
        return retrieval_ndcg(queries, release(self.documents, rng), self.relevance, k=self.k)


@dataclass(frozen=True, eq=False, repr=False)
class _Split:
    X: Embeddings
    classes: Array


class ClassificationTask(UtilityTask):
    """Accuracy of a logistic regression, trained and tested on protected vectors.

    Args:
        train, test: (N, n) clean embeddings.
        train_classes, test_classes: (N,) class labels.
        scenario: ``development`` trains on protected vectors, ``deployment`` on clean ones.
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
        self.train = _Split(
            check_embeddings(train, owner="ClassificationTask", param="train"),
            np.asarray(train_classes),
        )
        self.test = _Split(
            check_embeddings(test, owner="ClassificationTask", param="test"),
            np.asarray(test_classes),
        )
        check_same_length(
            "ClassificationTask", train=self.train.X, train_classes=self.train.classes
        )
        check_same_length("ClassificationTask", test=self.test.X, test_classes=self.test.classes)
        self.scenario: Literal["development", "deployment"] = scenario
        self.same_space = scenario == "deployment"

    @classmethod
    def of(
        cls, X: Embeddings, classes: Array, *, test_share: float = 0.3, seed: int = 0
    ) -> ClassificationTask:
        """Return the task on a random split of labelled embeddings."""
        X = check_embeddings(X, owner="ClassificationTask.of", param="X", min_rows=10)
        check_same_length("ClassificationTask.of", X=X, classes=classes)
        order = np.random.default_rng(seed).permutation(len(X))
        cut = max(1, int(test_share * len(X)))
        labels = np.asarray(classes)
        return cls(X[order[cut:]], labels[order[cut:]], X[order[:cut]], labels[order[:cut]])

    def clean(self) -> Estimate:
        """Return the accuracy on clean vectors."""
        return classification(
            self.train.X, self.train.classes, self.test.X, self.test.classes
        ).accuracy

    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the accuracy on protected vectors."""
        train = release(self.train.X, rng) if self.scenario == "development" else None
        return classification(
            self.train.X,
            self.train.classes,
            release(self.test.X, rng),
            self.test.classes,
            scenario=self.scenario,
            protected_train=train,
        ).accuracy
