"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

A trained policy is applied by `vecveil.privacy.mechanisms`, which needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vecveil.privacy.textcrafter.pii_classifier import (
    HeldOutFigures,
    PiiClassifier,
    contains_pii,
    fit_pii_classifier,
    pii_detector,
)
from vecveil.privacy.textcrafter.policy_settings import PolicySettings
from vecveil.privacy.textcrafter.reward import nearest, plain_centroids

if TYPE_CHECKING:
    from vecveil.privacy.textcrafter.policy_gradient import EpochMeasures, LearningCurves
    from vecveil.privacy.textcrafter.policy_training import TrainedPolicy, train_policy

__all__ = [
    "EpochMeasures",
    "HeldOutFigures",
    "LearningCurves",
    "PiiClassifier",
    "PolicySettings",
    "TrainedPolicy",
    "contains_pii",
    "fit_pii_classifier",
    "nearest",
    "pii_detector",
    "plain_centroids",
    "train_policy",
]

# Loaded on first use: a fit of any other method needs no msgspec, which writes the learning curves.
_LAZY = {
    **dict.fromkeys(("EpochMeasures", "LearningCurves"), "policy_gradient"),
    **dict.fromkeys(("TrainedPolicy", "train_policy"), "policy_training"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"vecveil.privacy.textcrafter.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
