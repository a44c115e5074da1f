"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

A trained policy is applied by `vecveil.mechanisms`, which needs no torch.
"""

from vecveil.textcrafter.corpus import contains_pii, pii_detector
from vecveil.textcrafter.pii_classifier import HeldOutFigures, PiiClassifier, fit_pii_classifier
from vecveil.textcrafter.policy_gradient import EpochMeasures, LearningCurves
from vecveil.textcrafter.reward import nearest, plain_centroids
from vecveil.textcrafter.settings import PolicySettings
from vecveil.textcrafter.training import TrainedPolicy, train_policy

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
