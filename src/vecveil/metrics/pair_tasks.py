"""Utility on pairs of texts: agreement of cosines with the clean ones, or with human scores (STS)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics.estimate import Estimate
from vecveil.metrics.similarity import pair_cosines, pearson, spearman, unit_rows
from vecveil.metrics.utility import Sides, UtilityRelease, UtilityTask
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

__all__ = ["SimilarityTask", "StsTask", "mixed_pairs"]

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
