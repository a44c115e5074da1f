"""The elliptical Laplace mechanism: generalised Laplace (Σ = I) and Mahalanobis (any Σ)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.accounting import Guarantee, elliptical_laplace_guarantee, laplace_total_variation
from vecveil.accounting.calibration import epsilon_meaning
from vecveil.mechanisms.base import Arrays, Mechanism, little_bounded
from vecveil.mechanisms.elliptical import EllipticalMechanism
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Matrix, Vector
from vecveil.validation import check_positive


@dataclass(frozen=True, eq=False)
class Mahalanobis(EllipticalMechanism):
    """x + Z, Z with density ∝ exp(−ε‖z‖_Σ): ε·‖x − x'‖_Σ metric-LDP (SPARSE, Theorem 1).

    Guarantee:
        ε/√λ_min(Σ) against Euclidean neighbours. Directions where Σ is small are not protected.
    Cost:
        n normal draws and, for a full Σ, one n × n product per vector.

    Attributes:
        epsilon: ε > 0 per unit of Mahalanobis distance; the noise's mean norm is about n/ε.
    """

    shape: NoiseShape
    epsilon: float
    splits: int = 1

    name: ClassVar[str] = "mahalanobis"

    def __post_init__(self) -> None:
        epsilon = check_positive(self.epsilon, owner=type(self).__name__, param="epsilon")
        object.__setattr__(self, "epsilon", epsilon)
        super().__post_init__()

    @property
    def _laplace_epsilon(self) -> float:
        return self.epsilon

    @property
    def _deviation(self) -> float:
        # E‖Z‖² = n(n + 1)/ε² over n coordinates.
        return float(np.sqrt(self.dimension + 1.0) / self.epsilon)

    def noise_covariance(self) -> Matrix:
        """Return (n + 1)/ε² · Σ."""
        return (self.dimension + 1) / self.epsilon**2 * self.shape.covariance()

    def advantage(self, distances: Vector) -> Vector:
        """Return the total variation: an upper bound after a map with a kernel."""
        return laplace_total_variation(distances, dimension=self.dimension, epsilon=self.epsilon)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return elliptical_laplace_guarantee(
            epsilon=self.epsilon, covariance=self.shape.covariance(), down=down, fitted_on=fitted_on, step=self.step
        )

    def rescaled(self, factor: float) -> Mechanism:
        return Mahalanobis(self.shape, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        # A tenth of the norm, in the direction of least noise.
        worst, apart = self.guarantee().epsilon_euclidean_worst, 0.1 * rms_norm
        inside = 0.0 if worst is None else apart * worst / self.epsilon
        return little_bounded(self, worst, apart, inside, "in the least protected direction")

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return self.shape.to_arrays()

    def parameters(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        shape = NoiseShape.from_arrays(arrays, dimension)
        return cls(shape, _finite_epsilon(parameters, shape), parameters["splits"])


class Laplace(Mahalanobis):
    """Generalised Laplace (LapMech): isotropic noise with density ∝ exp(−ε‖z‖₂).

    Guarantee:
        ε·‖x − x'‖₂ metric-LDP in every direction.
    """

    name: ClassVar[str] = "laplace"

    def __init__(self, dimension: int, epsilon: float, splits: int = 1) -> None:
        super().__init__(NoiseShape.isotropic(dimension), epsilon, splits)

    def rescaled(self, factor: float) -> Mechanism:
        return Laplace(self.dimension, self.epsilon / factor, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        if abs(rms_norm - 1) < 0.05:
            return list(epsilon_meaning(self.dimension, self.epsilon))
        return super().weakness(rms_norm)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return nothing: Σ = I follows from the dimension."""
        return {}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        epsilon = _finite_epsilon(parameters, NoiseShape.isotropic(dimension))
        return cls(dimension, epsilon, parameters["splits"])


def _finite_epsilon(parameters: Mapping[str, Any], shape: NoiseShape) -> float:
    """Return ε; raise ValueError if the guarantee or the noise overflows."""
    epsilon = float(parameters["epsilon"])
    # A forged file may hold any ε: both the guarantee ε/√λ_min and the norm n/ε must be finite.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bounds = [epsilon / np.sqrt(shape.smallest_eigenvalue), shape.dimension / epsilon]
    if not np.isfinite(bounds).all():
        raise ValueError("epsilon")
    return epsilon
