"""The ``gaussian`` and ``ldp-gaussian`` methods: isotropic Gaussian noise of a given σ, or for (ε, δ)."""

import numpy as np

from vecveil.mechanisms import Gaussian, LdpGaussian, Mechanism
from vecveil.protector.method import Family, Method, isotropic
from vecveil.sensitivity.shapes import NoiseShape

__all__ = ["GAUSSIAN", "LDP_GAUSSIAN"]


class GaussianNoise(Family):
    """N(0, σ²Σ)."""

    scales = ("sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage")
    can_split = True

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
    can_split = True

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
        return LdpGaussian(dimension, value, self.delta).sigma * float(np.sqrt(dimension))


GAUSSIAN = Method(
    "gaussian", "isotropic Gaussian noise", isotropic, family=lambda _: GaussianNoise()
)
LDP_GAUSSIAN = Method(
    "ldp-gaussian",
    "normalise, then Gaussian noise calibrated to (ε, δ) on the unit sphere",
    isotropic,
    metric="none",
    family=lambda delta: LdpNoise(0.5 if delta is None else delta),
    delta=True,
    before="normalise",
)
