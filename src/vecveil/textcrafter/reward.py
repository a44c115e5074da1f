"""The reward R = −α‖e' − e‖ − β p(e') − γ‖e' − c‖ and its lower bound (TextCrafter, Eq. 19 to 28)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vecveil.textcrafter.settings import PolicySettings
from vecveil.types import Embeddings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vecveil.textcrafter.pii_classifier import PiiClassifier

__all__ = ["Reward", "RewardTerms", "reward_lower_bound"]


@dataclass(frozen=True, eq=False)
class RewardTerms:
    """The three terms, not weighted; each of the shape of e' without its last dimension.

    Attributes:
        distance: ‖e' − e‖.
        p_pii: p(e'), the classifier's probability of PII.
        cluster: ‖e' − c‖.
    """

    distance: Tensor
    p_pii: Tensor
    cluster: Tensor


class Reward:
    """R, its baseline and the centroid c that belongs to a vector.

    Args:
        classifier: logistic regression, p(e) = 1/(1 + exp(−w·e − b)).
        centroids: of clusters of plain vectors, (k, n).
        settings: α, β, γ, the baseline's coefficients, and which centroid.
        device: of the vectors.
    """

    def __init__(
        self,
        classifier: PiiClassifier,
        centroids: Embeddings,
        settings: PolicySettings,
        device: torch.device | str = "cpu",
        dtype: Any = None,
    ) -> None:
        import torch

        kind = dtype or torch.float32
        with np.errstate(over="ignore"):  # infinite weights are met as an infinite reward
            weights = np.asarray(classifier.weights, dtype=np.float64).reshape(-1)
            self._weights = torch.from_numpy(weights.copy()).to(device, kind)
        self._intercept = float(classifier.intercept)
        self._settings = settings
        self._centroids = torch.from_numpy(np.array(centroids)).to(device, kind)
        if settings.cluster == "fixed":
            least = self.p_pii(self._centroids).argmin()
            self._centroids = self._centroids[least : least + 1]

    def p_pii(self, e: Tensor) -> Tensor:
        """Return p(e), the classifier's probability of PII."""
        return (e @ self._weights + self._intercept).sigmoid()

    def target(self, e: Tensor) -> Tensor:
        """Return c of each row of ``e`` (N, n): the nearest centroid, or the one with the least p."""
        import torch

        nearest = torch.cdist(e, self._centroids).argmin(dim=1)
        return self._centroids[nearest]

    def terms(self, e: Tensor, protected: Tensor, c: Tensor) -> RewardTerms:
        """Return the terms of R for e' = ``protected``, (..., n)."""
        import torch

        norm = torch.linalg.vector_norm
        return RewardTerms(
            norm(protected - e, dim=-1), self.p_pii(protected), norm(protected - c, dim=-1)
        )

    def total(self, terms: RewardTerms) -> Tensor:
        """Return R (Eq. 19)."""
        s = self._settings
        return -s.alpha * terms.distance - s.beta * terms.p_pii - s.gamma * terms.cluster

    def baseline(self, e: Tensor, c: Tensor) -> Tensor:
        """Return b = a R(e) + c_b, R(e) the reward of leaving e as it is (Eq. 20, 21)."""
        s = self._settings
        clean = self.total(self.terms(e, e, c))
        return s.baseline_scale * clean + s.baseline_offset


def reward_lower_bound(e: Any, c: Any, settings: PolicySettings) -> Any:
    """Return −(α r + β + γ(‖e − c‖ + r)), which no R of a perturbation of norm r falls below (Lemma 2).

    Args:
        e: vectors (..., n), NumPy.
        c: their centroids, in a shape that broadcasts to it.
        settings: α, β, γ and r.
    """
    s = settings
    apart = np.linalg.norm(np.asarray(e) - np.asarray(c), axis=-1)
    return -(s.alpha * s.radius + s.beta + s.gamma * (apart + s.radius))
