"""Gaussian noise: with a given σ, or calibrated to (ε, δ) on the unit sphere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.accounting import Guarantee, analytic_gaussian_sigma, gaussian_guarantee, gaussian_total_variation
from vecveil.accounting.guarantee import WEAK_EPSILON
from vecveil.errors import InvalidInputError
from vecveil.mechanisms.base import Arrays, Mechanism
from vecveil.mechanisms.elliptical import EllipticalMechanism, saved_shape
from vecveil.mechanisms.steps import unit_rows
from vecveil.randomness import WordStream
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_positive, check_probability


@dataclass(frozen=True, eq=False)
class Gaussian(EllipticalMechanism):
    """x + Z, Z ~ N(0, σ²Σ): μ-Gaussian DP with μ = ‖x − x'‖_Σ/σ (Dong, Roth & Su 2022).

    Guarantee:
        (ε, δ) at distance d for every pair that the analytic Gaussian mechanism allows (Balle & Wang 2018).
        No ε with δ = 0.

    Attributes:
        sigma: σ > 0, standard deviation per coordinate for Σ = I.
    """

    shape: NoiseShape
    sigma: float
    splits: int = 1

    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        sigma = check_positive(self.sigma, owner=type(self).__name__, param="sigma")
        object.__setattr__(self, "sigma", sigma)
        super().__post_init__()

    @property
    def _laplace_epsilon(self) -> None:
        return None

    @property
    def _deviation(self) -> float:
        return self.sigma

    @property
    def _local(self) -> tuple[float, float] | None:
        """(ε, δ) of the calibration of σ, if there was one."""
        return None

    def noise_covariance(self) -> Matrix:
        """Return σ²Σ."""
        return self.sigma**2 * self.shape.covariance()

    def advantage(self, distances: Vector) -> Vector:
        """Return 2Φ(d/2σ) − 1."""
        return gaussian_total_variation(distances, sigma=self.sigma)

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return gaussian_guarantee(
            sigma=self.sigma,
            covariance=self.shape.covariance(),
            down=down,
            fitted_on=fitted_on,
            step=self.step,
            local=self._local,
        )

    def rescaled(self, factor: float) -> Mechanism:
        return Gaussian(self.shape, self.sigma * factor, self.splits)

    def parameters(self) -> dict[str, float]:
        return {"sigma": self.sigma, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        made = cls(saved_shape(arrays, dimension), float(parameters["sigma"]), parameters["splits"])
        # A forged file may hold a σ whose square overflows.
        if not 1e-300 < made.sigma < 1e300:
            raise ValueError("sigma")
        return made


class LdpGaussian(Gaussian):
    """(ε, δ)-local DP for any two inputs of norm at most 1, by Gaussian noise.

    Guarantee:
        (ε, δ)-LDP: inputs in the unit ball differ by at most 2, and the analytic Gaussian mechanism gives σ
        for this sensitivity (Balle & Wang 2018, Algorithm 1).
    """

    name: ClassVar[str] = "ldp-gaussian"
    SENSITIVITY: ClassVar[float] = 2.0
    LARGEST_NORM: ClassVar[float] = 1.0 + 1e-5  # float32 rounding of a unit row

    epsilon: float
    delta: float

    def __init__(self, dimension: int, epsilon: float, delta: float, splits: int = 1) -> None:
        owner = type(self).__name__
        epsilon = check_positive(epsilon, owner=owner, param="epsilon")
        delta = check_probability(delta, owner=owner, param="delta", open_interval=True)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        # The sensitivity covers the tolerance, so accepted rows of norm 1 + 1e-5 keep (ε, δ).
        sensitivity = self.SENSITIVITY * self.LARGEST_NORM
        sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        super().__init__(NoiseShape.isotropic(dimension), sigma, splits)

    @property
    def _local(self) -> tuple[float, float]:
        return self.epsilon, self.delta

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        if not np.isfinite(X).all():
            return False  # the caller raises and names the row
        self.check_rows(X)
        return super()._release(X, stream, out)

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        """Return a mask (N,) of the rows in the unit ball."""
        return np.asarray(unit_rows(X)[1] <= self.LARGEST_NORM, dtype=bool)

    def check_rows(self, X: Embeddings) -> None:
        outside = np.flatnonzero(~self.takes(X))
        if len(outside):
            raise InvalidInputError(
                f"{len(outside)} rows of `X` are longer than 1, and the guarantee covers the unit ball. Normalise or "
                "clip the rows first.",
                param="X",
            )

    def rescaled(self, factor: float) -> Mechanism:
        # σ grows a little slower than 1/ε.
        return LdpGaussian(self.dimension, self.epsilon / factor, self.delta, self.splits)

    def weakness(self, rms_norm: float) -> list[str]:
        if self.epsilon <= WEAK_EPSILON:
            return []
        return [f"A factor of e^{self.epsilon:.3g} between any two inputs is no protection by itself."]

    def parameters(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta, "sigma": self.sigma, "splits": self.splits}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        made = cls(dimension, parameters["epsilon"], parameters["delta"], parameters["splits"])
        # A forged file could state another σ than (ε, δ) give.
        stored = float(parameters["sigma"])
        if not abs(stored / made.sigma - 1) < 1e-9:
            raise ValueError("sigma")
        # Another SciPy may compute σ with other last bits; keyed noise must not change with it.
        object.__setattr__(made, "sigma", stored)
        return made
