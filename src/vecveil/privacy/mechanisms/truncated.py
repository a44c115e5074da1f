"""Truncated Laplace: multiply by a mask, keep the dimensions where it is not zero, add Laplace noise to those alone.

y = (x ⊙ m) on the k dimensions with m > 0, plus noise of k dimensions with density ∝ exp(−ε‖z‖₂): its radius is
Gamma(k, 1/ε) instead of Gamma(n, 1/ε). It is a reading of SPARSE, whose text adds noise to all n dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.privacy.accounting import Guarantee, elliptical_laplace_guarantee
from vecveil.privacy.mechanisms.base import Arrays, Mechanism
from vecveil.privacy.mechanisms.elliptical import Laplace
from vecveil.privacy.randomness import WordStream
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_numbers


@dataclass(frozen=True, eq=False, repr=False)
class TruncatedLaplace(Mechanism):
    """(x ⊙ m) + Z on the dimensions with m > 0, and zeros in all others.

    Guarantee:
        ε·‖x − x'‖₂ metric-LDP: x ↦ x ⊙ m on k dimensions is 1-Lipschitz for m ≤ 1, and Laplace noise of k dimensions
        is ε metric-LDP there. Differences in dropped dimensions are absent from the release.
    Cost:
        k normal draws per vector.

    Attributes:
        mask: m (n,), from 0 to 1, not all 0.
        epsilon: ε > 0 per unit of Euclidean distance; the noise's mean norm is k/ε.
    """

    mask: Vector
    epsilon: float
    splits: int = 1

    name: ClassVar[str] = "truncated-laplace"

    def __post_init__(self) -> None:
        mask = check_numbers(self.mask, owner=type(self).__name__, param="mask")
        if mask.ndim != 1 or not mask.any() or (mask < 0).any() or (mask > 1).any():
            raise InvalidInputError("`mask` has n numbers from 0 to 1, not all 0.", param="mask")
        object.__setattr__(self, "mask", mask)
        object.__setattr__(self, "epsilon", self._inner.epsilon)  # as the Laplace mechanism checks it

    def __repr__(self) -> str:
        return f"TruncatedLaplace({len(self.kept)} of {self.dimension} dimensions, epsilon={self.epsilon:g})"

    @cached_property
    def kept(self) -> Any:
        """Positions of the k kept dimensions, ascending."""
        return np.flatnonzero(self.mask)

    @cached_property
    def _inner(self) -> Laplace:
        return Laplace(len(self.kept), self.epsilon, self.splits)

    @property
    def dimension(self) -> int:
        return len(self.mask)

    @cached_property
    def least_deviation(self) -> float:
        return self._inner.least_deviation  # of the kept dimensions: the others hold nothing to hide

    def _masked(self, X: Embeddings) -> Embeddings:
        """Return the kept coordinates (N, k) of X ⊙ m."""
        return np.ascontiguousarray(X[:, self.kept] * self.mask[self.kept].astype(X.dtype))

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        x = self._masked(X)
        y = np.empty_like(x)
        finite = self._inner._release(x, stream, y)
        out[:] = 0
        out[:, self.kept] = y
        # A NaN in a dropped dimension does not reach the release.
        return finite and bool(np.isfinite(X).all())

    def without_noise(self, X: Embeddings) -> Embeddings:
        released = np.zeros_like(X)
        released[:, self.kept] = self._masked(X)
        return released

    def noise_covariance(self) -> Matrix:
        """Return (k + 1)/ε² on the diagonal of the kept dimensions."""
        return np.diag((self.mask > 0) * float(self._inner.noise_covariance()[0, 0]))

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return ‖(x − x') ⊙ m‖₂ of each pair of rows; a map ``down`` after the noise only lowers the advantage."""
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        return np.asarray(np.linalg.norm(differences * self.mask, axis=1))

    def advantage(self, distances: Vector) -> Vector:
        return self._inner.advantage(distances)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        n, k = self.dimension, len(self.kept)
        made = elliptical_laplace_guarantee(
            epsilon=self.epsilon, covariance=np.eye(n), down=np.eye(n)[self.kept], fitted_on=fitted_on, step=self.step
        )
        return replace(
            made,
            noise_norm=k / self.epsilon,
            epsilon_euclidean_worst=self.epsilon * float(self.mask.max()),
            epsilon_euclidean_best=self.epsilon * float(self.mask[self.kept].min()),
        )

    def rescaled(self, factor: float) -> Mechanism:
        return TruncatedLaplace(self.mask, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        return self._inner.weakness(rms_norm)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {"mask": self.mask}

    def parameters(self) -> dict[str, float]:
        return self._inner.parameters()

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        mask = arrays["mask"]
        if mask.shape != (dimension,) or not mask.any():
            raise ValueError("mask")
        inner = Laplace.from_saved(parameters, {}, int(np.count_nonzero(mask)))
        return cls(mask, inner.epsilon, inner.splits)
