"""Likelihood matching: the candidate that makes the released vector likeliest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.candidates.expected import ExpectedReleaseMatching
from vecveil.attacks.release_model import ReleaseModel

__all__ = ["LikelihoodMatching"]

FloatArray = npt.NDArray[np.float64]


class LikelihoodMatching(ExpectedReleaseMatching):
    """Candidates ranked by the Mahalanobis distance (y − E[y|x])ᵀ S⁺ (y − E[y|x]), the least first.

    For Gaussian noise that is the likelihood's order, and for every noise whose density falls with the
    Mahalanobis norm, the elliptical Laplace of `laplace`, `sparse` and `covariance` among them: with a
    uniform prior over candidates no other rule is right more often. S is the declared covariance, or that of
    repeated releases, in the directions in which releases vary.
    """

    name = "matching-likelihood"
    description = "Candidates ranked by the likelihood of the vector: Mahalanobis distance to their expected release."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Maximum likelihood; the distinguishing adversary of differential privacy with more than two inputs."

    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        return model.whiten(Y)
