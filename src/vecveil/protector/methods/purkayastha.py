"""The ``purkayastha`` method: a random direction near the vector's, on the unit sphere."""

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.mechanisms import Purkayastha, epsilon_of_rms_norm, rms_norm_of_epsilon
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.protector.method import Method, isotropic
from vecveil.protector.scale import NoiseFamily


def _cosine_ratio(cosine: float, dimension: int) -> float:
    """Return the ratio whose ε has E cos θ = ``cosine``, by root finding in log space."""
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        epsilon = epsilon_of_rms_norm(float(np.exp(log_ratio)), dimension)
        return angle_moments(dimension, epsilon)[0] - cosine

    ends = (float(np.log(1e-6)), float(np.log(1e6)))
    if excess(ends[0]) < 0 or excess(ends[1]) > 0:
        raise CalibrationError.of(
            "fit", "target_cosine", "further from 0 and 1", cosine, "No ε that arithmetic can hold gives it."
        )
    return float(np.exp(brentq(excess, *ends, xtol=1e-6)))


# The norm of the vectors is not released, so it counts as 1.
_FAMILY = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Purkayastha(
        shape.dimension, epsilon_of_rms_norm(noise, shape.dimension)
    ),
    ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, n),
    cosine_ratio=_cosine_ratio,
    is_linear=False,
)

PURKAYASTHA = Method(
    "purkayastha",
    "a random direction near the vector's, on the unit sphere",
    isotropic,
    metric="angle",
    family=lambda _: _FAMILY,
)
