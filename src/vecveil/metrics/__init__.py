"""Measures of what leaks and of what stays useful, each with an interval.

`token_inference` for leakage; `similarity`, `neighbours`, `ranking` and `classification` for
utility; `intervals` for how sure a figure is. The tasks are what a target utility is set for.
"""

from vecveil.metrics.classification_task import ClassificationTask
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.pair_tasks import SimilarityTask, StsTask
from vecveil.metrics.search_tasks import NeighbourTask, RetrievalTask
from vecveil.metrics.utility import UtilityTask

__all__ = [
    "ClassificationTask",
    "Estimate",
    "NeighbourTask",
    "RetrievalTask",
    "SimilarityTask",
    "StsTask",
    "UtilityTask",
]
