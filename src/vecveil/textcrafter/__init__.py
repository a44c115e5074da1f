"""Training of TextCrafter: PII classifier, policy network, reward, policy gradient.

A trained policy is applied by `vecveil.mechanisms`, which needs no torch.
"""

from vecveil.textcrafter.corpus import PiiCorpus, contains_pii, label_corpus, pii_detector
from vecveil.textcrafter.pii_classifier import HeldOutFigures, PiiClassifier, fit_pii_classifier
from vecveil.textcrafter.policy_gradient import EpochMeasures, LearningCurves
from vecveil.textcrafter.reward import nearest, plain_centroids, reward_lower_bound
from vecveil.textcrafter.settings import PolicySettings
from vecveil.textcrafter.training import TrainedPolicy, train_policy

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
