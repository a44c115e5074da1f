"""Measures of what leaks and of what stays useful, each with an interval.

Leakage: `token_inference`, `text_similarity` and `reconstruction` (generated texts), `detection`
(membership and attributes), `matching` (candidates). Utility: `similarity`, `neighbours`, `ranking`
and `classification`; what one costs the other: `trade_off`. `intervals` says how sure a figure is.
The tasks are what a target utility is set for.
"""

from vecveil.metrics.detection import (
    candidate_matching,
    candidate_matching_of_ranks,
    detection_metrics,
)
from vecveil.metrics.estimates import Estimate
from vecveil.metrics.ranking import retrieval_ndcg, retrieval_recall
from vecveil.metrics.reconstruction import embedding_cosine, reconstruction_leakage, text_similarity
from vecveil.metrics.tasks import (
    ClassificationTask,
    NeighbourTask,
    RetrievalTask,
    SimilarityTask,
    StsTask,
    UtilityTask,
)
from vecveil.metrics.trade_off import trade_off_rate

__all__ = [
    "ClassificationTask",
    "Estimate",
    "NeighbourTask",
    "RetrievalTask",
    "SimilarityTask",
    "StsTask",
    "UtilityTask",
    "candidate_matching",
    "candidate_matching_of_ranks",
    "detection_metrics",
    "embedding_cosine",
    "reconstruction_leakage",
    "retrieval_ndcg",
    "retrieval_recall",
    "text_similarity",
    "trade_off_rate",
]
