"""Utility in search: neighbours that stay neighbours, and documents found for labelled queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.metrics.estimate import Estimate
from vecveil.metrics.neighbours import neighbour_recall
from vecveil.metrics.ranking import retrieval_ndcg
from vecveil.metrics.utility import Sides, UtilityRelease, UtilityTask
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

__all__ = ["NeighbourTask", "RetrievalTask"]


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
