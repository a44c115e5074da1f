"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

What a trained policy applies to vectors is in `vecveil.mechanisms` and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.textcrafter.clusters import nearest, plain_centroids
    from vecveil.textcrafter.corpus import PiiCorpus, contains_pii, label_corpus, pii_detector
    from vecveil.textcrafter.curves import EpochMeasures, LearningCurves
    from vecveil.textcrafter.pii_classifier import PiiClassifier, fit_pii_classifier
    from vecveil.textcrafter.pii_figures import HeldOutFigures
    from vecveil.textcrafter.reward import reward_lower_bound
    from vecveil.textcrafter.settings import PolicySettings
    from vecveil.textcrafter.training import TrainedPolicy, train_policy

_WHERE = {
    "EpochMeasures": "curves",
    "HeldOutFigures": "pii_figures",
    "LearningCurves": "curves",
    "PiiClassifier": "pii_classifier",
    "PiiCorpus": "corpus",
    "PolicySettings": "settings",
    "TrainedPolicy": "training",
    "contains_pii": "corpus",
    "fit_pii_classifier": "pii_classifier",
    "label_corpus": "corpus",
    "pii_detector": "corpus",
    "nearest": "clusters",
    "plain_centroids": "clusters",
    "reward_lower_bound": "reward",
    "train_policy": "training",
}

__all__ = [
    "EpochMeasures",
    "HeldOutFigures",
    "LearningCurves",
    "PiiClassifier",
    "PiiCorpus",
    "PolicySettings",
    "TrainedPolicy",
    "contains_pii",
    "fit_pii_classifier",
    "label_corpus",
    "nearest",
    "pii_detector",
    "plain_centroids",
    "reward_lower_bound",
    "train_policy",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"vecveil.textcrafter.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
