"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

What a trained policy applies to vectors is in `vecveil.mechanisms` and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.textcrafter.corpus import PiiCorpus, contains_pii, label_corpus, pii_detector
    from vecveil.textcrafter.pii_classifier import HeldOutFigures, PiiClassifier, fit_pii_classifier
    from vecveil.textcrafter.policy_gradient import EpochMeasures, LearningCurves
    from vecveil.textcrafter.reward import nearest, plain_centroids, reward_lower_bound
    from vecveil.textcrafter.settings import PolicySettings
    from vecveil.textcrafter.training import TrainedPolicy, train_policy

_WHERE = {
    "EpochMeasures": "policy_gradient",
    "HeldOutFigures": "pii_classifier",
    "LearningCurves": "policy_gradient",
    "PiiClassifier": "pii_classifier",
    "PiiCorpus": "corpus",
    "PolicySettings": "settings",
    "TrainedPolicy": "training",
    "contains_pii": "corpus",
    "fit_pii_classifier": "pii_classifier",
    "label_corpus": "corpus",
    "pii_detector": "corpus",
    "nearest": "reward",
    "plain_centroids": "reward",
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
