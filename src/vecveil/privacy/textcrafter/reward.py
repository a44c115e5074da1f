"""The reward R = −β p(e') − γ‖e' − c‖, its baseline and its targets (TextCrafter, Eq. 19 to 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.textcrafter.pii_classifier import PiiClassifier
from vecveil.privacy.textcrafter.policy_settings import PolicySettings
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = npt.NDArray[Any]

_STARTS = 4  # of k-means; the one with the least inertia is kept
_BLOCK = 2**22  # numbers held at once: 32 MB


def plain_centroids(
    plain: Embeddings, *, clusters: int = 8, seed: int = 0, most: int = 20_000, least: int = 5
) -> npt.NDArray[np.float64]:
    """Return the centroids of k-means on ``plain``: (k, n) float64, largest cluster first.

    Args:
        plain: (Q, n) vectors of texts without PII.
        clusters: k ≥ 1. More clusters put targets nearer to each vector, and each represents fewer texts.
        seed: of the sample and of k-means, which runs on one thread for equal results.
        most: more rows are sampled down to this number.
        least: smaller clusters are dropped: the centroid of one row is that row, and protector files contain the
            centroids. With fewer than ``least`` rows for each of k clusters only the largest is kept.

    Raises:
        InvalidInputError: fewer distinct rows than clusters.
    """
    owner = "plain_centroids"
    checked = check_embeddings(plain, owner=owner, param="plain", min_rows=1)
    k = check_count(clusters, owner=owner, param="clusters")
    most = check_count(most, owner=owner, param="most")
    least = check_count(least, owner=owner, param="least")
    seed = check_seed(seed, owner=owner)
    rng = np.random.default_rng(seed)
    if len(checked) > most:
        checked = checked[np.sort(rng.choice(len(checked), most, replace=False))]
    X = checked.astype(np.float64)
    # With fewer distinct rows k-means would return empty clusters; lowering k is the caller's choice.
    distinct = len(np.unique(X, axis=0))
    if distinct < k:
        raise InvalidInputError(
            f"{k} clusters of {distinct} distinct rows: ask for fewer clusters, or give more plain texts.",
            param="clusters",
        )
    with optional_import("Clustering plain vectors", "scikit-learn", "textcrafter"):
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits
    # Several threads would sum in a varying order: the last bits would differ between runs.
    with threadpool_limits(1):
        model = KMeans(k, n_init=_STARTS, random_state=int(rng.integers(2**31)))
        model.fit(X)
    sizes = np.bincount(model.labels_, minlength=k)
    order = np.argsort(-sizes, kind="stable")
    # Centroids are saved in protector files: one of few rows would reveal a text.
    large = order[sizes[order] >= least] if len(X) >= least * k else order[:1]
    centroids: npt.NDArray[np.float64] = model.cluster_centers_[large if len(large) else order[:1]]
    return centroids


def nearest(X: Embeddings, centroids: Array) -> npt.NDArray[np.int64]:
    """Return the index (N,) of the nearest of ``centroids`` (k, n) for each row of ``X`` (N, n)."""
    owner = "nearest"
    targets = check_embeddings(centroids, owner=owner, param="centroids", min_rows=1)
    checked = check_embeddings(X, owner=owner, param="X", dimension=targets.shape[1])
    targets = targets.astype(np.float64)
    # ‖e − c‖² without ‖e‖², which is equal for every c.
    squares = np.einsum("kn,kn->k", targets, targets)
    step = max(1, _BLOCK // max(targets.shape))
    rows = np.empty(len(checked), dtype=np.int64)
    for start in range(0, len(checked), step):
        block = checked[start : start + step].astype(np.float64)
        rows[start : start + step] = (squares - 2 * (block @ targets.T)).argmin(axis=1)
    return rows


def least_pii(centroids: Array, classifier: PiiClassifier) -> int:
    """Return the index of the centroid with the lowest p, the target if one cluster serves all."""
    return int(classifier.logit(centroids).argmin())  # sigmoid is monotone: no need to apply it


class RewardTerms(NamedTuple):
    """The unweighted terms p(e') and ‖e' − c‖, each of the shape of e' without its last dimension."""

    p_pii: Tensor
    cluster: Tensor


class Reward:
    """The reward R and its baseline b, for vectors of ``dtype`` (None: float32) on ``device``."""

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
        # A weight beyond the dtype's range would saturate p and its gradient: NaN makes it visible.
        self._weights = torch.where(weights.isfinite(), weights, torch.nan)
        self._intercept = classifier.intercept
        self._settings = settings

    def p_pii(self, e: Tensor) -> Tensor:
        return (e @ self._weights + self._intercept).sigmoid()

    def terms(self, protected: Tensor, c: Tensor) -> RewardTerms:
        """Return the terms of R for e' = ``protected``, (..., n)."""
        import torch

        return RewardTerms(self.p_pii(protected), torch.linalg.vector_norm(protected - c, dim=-1))

    def total(self, terms: RewardTerms) -> Tensor:
        """Return R (Eq. 19), without its constant −αr."""
        s = self._settings
        return -s.beta * terms.p_pii - s.gamma * terms.cluster

    def baseline(self, e: Tensor, c: Tensor) -> Tensor:
        """Return b = a R(e), R(e) the reward of leaving e as it is (Eq. 20, 21)."""
        return self._settings.baseline_scale * self.total(self.terms(e, c))


def target_centroids(
    X: Embeddings, centroids: Embeddings, classifier: PiiClassifier, settings: PolicySettings
) -> npt.NDArray[np.float64]:
    """Return c of each row of ``X``, (N, n): the nearest centroid, or the one with the lowest p for all."""
    if settings.cluster == "fixed":
        rows = np.full(len(X), least_pii(centroids, classifier))
    else:
        rows = nearest(X, centroids)
    targets: npt.NDArray[np.float64] = np.asarray(centroids, dtype=np.float64)[rows]
    return targets
