"""The elliptical Laplace mechanism: generalised Laplace (Σ = I) and Mahalanobis (any Σ)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vecveil.accounting import Guarantee, elliptical_laplace_guarantee
from vecveil.checks import check_positive
from vecveil.mechanisms.base import Mechanism
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix

__all__ = [
    "Laplace",
    "Mahalanobis",
    "elliptical_laplace_noise",
    "epsilon_of_rms_norm",
    "rms_norm_of_epsilon",
]


def elliptical_laplace_noise(
    rows: int, shape: NoiseShape, epsilon: float, rng: np.random.Generator, dtype: Any = np.float64
) -> Embeddings:
    """Return (rows, n) draws with density ∝ exp(−ε‖z‖_Σ) (SPARSE, Algorithm 1).

    N ~ N(0, I), X = N/‖N‖, Y ~ Gamma(n, 1/ε), Z = Y Σ^{1/2} X. The radius is drawn in float64: a
    float32 Gamma of large shape would lose its tails.
    """
    n = shape.dimension
    directions = rng.standard_normal((rows, n), dtype=dtype)
    squared = np.einsum("ij,ij->i", directions, directions, dtype=np.float64)
    radii = rng.standard_gamma(float(n), size=rows) / epsilon
    directions *= (radii / np.sqrt(squared)).astype(dtype)[:, None]
    return shape.stretch(directions) if not shape.is_isotropic else directions


def rms_norm_of_epsilon(epsilon: float, dimension: int) -> float:
    """Return sqrt(E‖Z‖²) = sqrt(n(n+1))/ε, the same for every Σ of trace n."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(dimension * (dimension + 1.0)) / epsilon)


def epsilon_of_rms_norm(rms_norm: float, dimension: int) -> float:
    """Return the ε whose noise has the root mean square norm ``rms_norm``."""
    return float(np.sqrt(dimension * (dimension + 1.0)) / rms_norm)


@dataclass(frozen=True, eq=False)
class Mahalanobis(Mechanism):
    """x + Z, Z with density ∝ exp(−ε‖z‖_Σ): ε·‖x − x'‖_Σ metric-LDP (SPARSE, Theorem 1).

    Guarantee:
        Against Euclidean neighbours ε/√λ_min(Σ). Not protected: directions where Σ is small.
    Cost:
        n normal draws and, for a full Σ, one n × n product per vector.

    Attributes:
        shape: Σ, trace n.
        epsilon: ε > 0 per unit of Mahalanobis distance; the noise's mean norm is about n/ε.
    """

    shape: NoiseShape
    epsilon: float

    name: ClassVar[str] = "mahalanobis"

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "epsilon",
            check_positive(self.epsilon, owner=type(self).__name__, param="epsilon"),
        )

    @property
    def dimension(self) -> int:
        """Return n."""
        return self.shape.dimension

    def _protect(self, X: Embeddings, rng: np.random.Generator) -> Embeddings:
        noise = elliptical_laplace_noise(len(X), self.shape, self.epsilon, rng, X.dtype)
        noise += X
        return noise

    def noise_covariance(self) -> Matrix:
        """Return (n + 1)/ε² · Σ, the covariance of Z."""
        return (self.dimension + 1) / self.epsilon**2 * self.shape.covariance()

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return the metric-DP guarantee, after the map T if ``down`` is given."""
        return elliptical_laplace_guarantee(
            epsilon=self.epsilon, covariance=self.shape.covariance(), down=down, fitted_on=fitted_on
        )

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return Σ."""
        return self.shape.to_arrays()

    def parameters(self) -> dict[str, float]:
        """Return ε."""
        return {"epsilon": self.epsilon}


class Laplace(Mahalanobis):
    """Generalised Laplace (LapMech): isotropic noise with density ∝ exp(−ε‖z‖₂).

    Guarantee:
        ε·‖x − x'‖₂ metric-LDP in every direction alike.
    """

    name: ClassVar[str] = "laplace"

    def __init__(self, dimension: int, epsilon: float) -> None:
        super().__init__(NoiseShape.isotropic(dimension), epsilon)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return nothing: Σ = I follows from the dimension."""
        return {}
