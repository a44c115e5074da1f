"""Metrics of leakage and of reconstructed texts, each with an interval."""

from vecveil.auditing.metrics.leakage import candidate_matching, candidate_matching_of_ranks
from vecveil.auditing.metrics.text_similarity import reconstruction_leakage, text_similarity
from vecveil.privacy.utility.estimates import Estimate, trade_off_rate
from vecveil.privacy.utility.sealed_search import SealedSearchTask
from vecveil.privacy.utility.tasks import (
    ClassificationTask,
    NeighbourTask,
    RetrievalTask,
    SimilarityTask,
    StsTask,
    UtilityTask,
    embedding_cosine,
    retrieval_ndcg,
)

__all__ = [
    "ClassificationTask",
    "Estimate",
    "NeighbourTask",
    "RetrievalTask",
    "SealedSearchTask",
    "SimilarityTask",
    "StsTask",
    "UtilityTask",
    "candidate_matching",
    "candidate_matching_of_ranks",
    "embedding_cosine",
    "reconstruction_leakage",
    "retrieval_ndcg",
    "text_similarity",
    "trade_off_rate",
]
