"""The ``purkayastha`` method: a random direction near the vector's, on the unit sphere."""

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.mechanisms import Mechanism, Purkayastha, epsilon_of_rms_norm, rms_norm_of_epsilon
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.protector.method import Family, Method, isotropic
from vecveil.sensitivity.shapes import NoiseShape

__all__ = ["PURKAYASTHA"]


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


PURKAYASTHA = Method(
    "purkayastha",
    "a random direction near the vector's, on the unit sphere",
    isotropic,
    metric="angle",
    family=lambda _: Sphere(),
)
