"""Mechanisms: noise with a stated law, and the processing steps before and after it."""

from vecveil.privacy.mechanisms.base import Mechanism
from vecveil.privacy.mechanisms.elliptical import (
    Gaussian,
    Laplace,
    LdpGaussian,
    Mahalanobis,
    ProjectedLaplace,
    TruncatedLaplace,
    epsilon_of_rms_norm,
    rms_norm_of_epsilon,
)
from vecveil.privacy.mechanisms.purkayastha import Purkayastha
from vecveil.privacy.mechanisms.shuffle import Shuffle, random_permutation
from vecveil.privacy.mechanisms.steps import NOTHING_BEFORE, OPEN_RANGE, Before, Step
from vecveil.privacy.mechanisms.textcrafter import PolicyWeights, TextCrafter

MECHANISMS: dict[str, type[Mechanism]] = {
    Laplace.name: Laplace,
    Mahalanobis.name: Mahalanobis,
    ProjectedLaplace.name: ProjectedLaplace,
    Gaussian.name: Gaussian,
    LdpGaussian.name: LdpGaussian,
    Purkayastha.name: Purkayastha,
    Shuffle.name: Shuffle,
    TextCrafter.name: TextCrafter,
    TruncatedLaplace.name: TruncatedLaplace,
}
"""Every mechanism by the name that protector files store."""

__all__ = [
    "MECHANISMS",
    "NOTHING_BEFORE",
    "OPEN_RANGE",
    "Before",
    "Gaussian",
    "Laplace",
    "LdpGaussian",
    "Mahalanobis",
    "Mechanism",
    "PolicyWeights",
    "ProjectedLaplace",
    "Purkayastha",
    "Shuffle",
    "Step",
    "TextCrafter",
    "TruncatedLaplace",
    "epsilon_of_rms_norm",
    "random_permutation",
    "rms_norm_of_epsilon",
]
