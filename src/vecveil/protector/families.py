"""The families of noise that a fit scales: from one number, the noise-to-signal ratio, to a mechanism.

For every family the ratio is the root mean square norm of the noise over that of the vectors. (For the
sphere it is that of Laplace noise at the same ε, which the Purkayastha mechanism tends to as ε grows.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.mechanisms import (
    Gaussian,
    Laplace,
    LdpGaussian,
    Mahalanobis,
    Mechanism,
    Purkayastha,
    Shuffle,
    epsilon_of_rms_norm,
    random_permutation,
    rms_norm_of_epsilon,
)
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.sensitivity.shapes import NoiseShape

__all__ = [
    "EllipticalLaplace",
    "Family",
    "GaussianNoise",
    "LdpNoise",
    "LearntPerturbation",
    "NoNoise",
    "Sphere",
]


class Family(ABC):
    """A law of noise with one free scale."""

    scales: ClassVar[tuple[str, ...]] = (
        "epsilon",
        "noise_to_signal",
        "target_utility",
        "target_cosine",
        "target_advantage",
    )
    is_linear: ClassVar[bool] = True
    """Whether noise at ratio r is r times the noise at ratio 1, so that one draw serves every ratio."""

    @abstractmethod
    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return the mechanism whose noise-to-signal ratio is ``noise`` for vectors of that norm."""

    @abstractmethod
    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return the ratio that ε or σ stands for."""

    def noise_of_cosine(self, cosine: float, dimension: int) -> float:
        """Return about the ratio at which a vector and its noisy self have that mean cosine.

        It is 1/√(1 + r²) up to 1/n for vectors of one norm and noise alike in all directions; a fit measures it.
        """
        return float(np.sqrt(1 / cosine**2 - 1))


class EllipticalLaplace(Family):
    """Density ∝ exp(−ε‖z‖_Σ)."""

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return Laplace for Σ = I, else Mahalanobis."""
        epsilon = epsilon_of_rms_norm(noise * rms_norm, shape.dimension)
        if shape.is_isotropic:
            return Laplace(shape.dimension, epsilon, splits)
        return Mahalanobis(shape, epsilon, splits)

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return sqrt(n(n+1))/ε over the norm."""
        return rms_norm_of_epsilon(value, dimension) / rms_norm


class GaussianNoise(Family):
    """N(0, σ²Σ)."""

    scales = ("sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage")

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return the Gaussian mechanism."""
        return Gaussian(shape, noise * rms_norm / float(np.sqrt(shape.dimension)), splits)

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return σ√n over the norm."""
        return value * float(np.sqrt(dimension)) / rms_norm


class LdpNoise(Family):
    """Gaussian noise calibrated to (ε, δ) on the unit ball."""

    scales = ("epsilon",)

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Refuse: this family has ε and δ, see `of_epsilon`."""
        raise TypeError("LdpNoise is scaled by epsilon and delta")

    def of_epsilon(self, dimension: int, epsilon: float, *, splits: int = 1) -> Mechanism:
        """Return the mechanism for ε."""
        return LdpGaussian(dimension, epsilon, self.delta, splits)

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return σ√n over the norm 1."""
        sigma = LdpGaussian(dimension, value, self.delta).sigma
        return sigma * float(np.sqrt(dimension))


class Sphere(Family):
    """The Purkayastha mechanism."""

    is_linear = False

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return the mechanism; the norm of the vectors is not released, so it counts as 1."""
        return Purkayastha(shape.dimension, epsilon_of_rms_norm(noise, shape.dimension))

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return sqrt(n(n+1))/ε."""
        return rms_norm_of_epsilon(value, dimension)

    def noise_of_cosine(self, cosine: float, dimension: int) -> float:
        """Return the ratio whose ε has E cos θ = ``cosine``, by root finding."""
        from scipy.optimize import brentq

        def excess(log_ratio: float) -> float:
            epsilon = epsilon_of_rms_norm(float(np.exp(log_ratio)), dimension)
            return angle_moments(dimension, epsilon)[0] - cosine

        ends = (float(np.log(1e-6)), float(np.log(1e6)))
        if excess(ends[0]) < 0 or excess(ends[1]) > 0:
            raise CalibrationError.of("fit", "target_cosine", "further from 0 and 1", cosine,
                                      "No ε that arithmetic can hold gives it.")  # fmt: skip
        return float(np.exp(brentq(excess, *ends, xtol=1e-6)))


class LearntPerturbation(Family):
    """A perturbation of one norm whose policy is trained at that norm: the method's builder makes the mechanism."""

    scales = ("radius",)
    is_linear = False

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Refuse: another radius is another policy."""
        raise TypeError("LearntPerturbation is trained at one radius")

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return r over the norm."""
        return value / rms_norm


class NoNoise(Family):
    """A permutation of the coordinates."""

    scales = ()

    def mechanism(
        self, shape: NoiseShape, noise: float, rms_norm: float, *, splits: int = 1
    ) -> Mechanism:
        """Return a new secret permutation."""
        return Shuffle(random_permutation(shape.dimension))

    def noise_of(self, name: str, value: float, rms_norm: float, dimension: int) -> float:
        """Return 0."""
        return 0.0
