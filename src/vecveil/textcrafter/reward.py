"""The reward R = −α‖e' − e‖ − β p(e') − γ‖e' − c‖ and its lower bound (TextCrafter, Eq. 19 to 28)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.textcrafter.clusters import least_pii, nearest
from vecveil.textcrafter.settings import PolicySettings
from vecveil.types import Embeddings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vecveil.textcrafter.pii_classifier import PiiClassifier

__all__ = ["Reward", "RewardTerms", "reward_lower_bound", "target_centroids"]


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
    """R and its baseline.

    Args:
        classifier: logistic regression, p(e) = sigmoid(w · e + b).
        settings: α, β, γ and the baseline's coefficients.
        device: of the vectors.
        dtype: of the vectors; None is torch.float32.
    """

    def __init__(
        self,
        classifier: PiiClassifier,
        settings: PolicySettings,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        import torch

        weights = torch.from_numpy(np.array(classifier.weights, dtype=np.float64))
        weights = weights.to(device, dtype or torch.float32)
        # A weight beyond the dtype's range would give p = 0 or 1, and NaN in its gradient: let p itself say so.
        self._weights = torch.where(weights.isfinite(), weights, torch.nan)
        self._intercept = classifier.intercept
        self._settings = settings

    def p_pii(self, e: Tensor) -> Tensor:
        """Return p(e), the classifier's probability of PII."""
        return (e @ self._weights + self._intercept).sigmoid()

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


def target_centroids(
    X: Embeddings, centroids: Embeddings, classifier: PiiClassifier, settings: PolicySettings
) -> npt.NDArray[np.float64]:
    """Return c of each row of ``X``, (N, n): the nearest centroid, or for all the one with the least p."""
    if settings.cluster == "fixed":
        rows = np.full(len(X), least_pii(centroids, classifier))
    else:
        rows = nearest(X, centroids)
    found: npt.NDArray[np.float64] = np.asarray(centroids, dtype=np.float64)[rows]
    return found


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
