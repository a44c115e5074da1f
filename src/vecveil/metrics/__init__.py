"""Metrics of leakage and of utility, each with an interval.

Leakage: `token_inference`, `reconstruction` (generated texts) and `detection` (membership, attributes,
candidates). Utility: `similarity`, `ranking` and `classification`, and the `tasks` that a target utility is set
for; `trade_off` relates the two. `estimates` computes the intervals.
"""

from vecveil.metrics.detection import candidate_matching, candidate_matching_of_ranks
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.ranking import retrieval_ndcg
from vecveil.metrics.reconstruction import reconstruction_leakage, text_similarity
from vecveil.metrics.sealed_search import SealedSearchTask
from vecveil.metrics.similarity import embedding_cosine
from vecveil.metrics.tasks import ClassificationTask, NeighbourTask, RetrievalTask, SimilarityTask, StsTask, UtilityTask
from vecveil.metrics.trade_off import trade_off_rate

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
