"""Measures of what leaks and of what stays useful, each with an interval.

`token_inference` for leakage; `similarity`, `neighbours`, `ranking` and `classification` for
utility; `intervals` for how sure a figure is. The tasks are what a target utility is set for.
"""

from vecveil.metrics.estimate import Estimate
from vecveil.metrics.tasks import (
    ClassificationTask,
    NeighbourTask,
    RetrievalTask,
    SimilarityTask,
    StsTask,
    UtilityTask,
)

__all__ = [
    "ClassificationTask",
    "Estimate",
    "NeighbourTask",
    "RetrievalTask",
    "SimilarityTask",
    "StsTask",
    "UtilityTask",
]
