"""Methods that learn nothing of the concept: isotropic Laplace and Gaussian noise, the sphere, and the shuffle."""

from typing import NoReturn

import numpy as np

from vecveil.errors import CalibrationError
from vecveil.mechanisms import (
    Gaussian,
    LdpGaussian,
    Purkayastha,
    Shuffle,
    epsilon_of_rms_norm,
    random_permutation,
    rms_norm_of_epsilon,
)
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.protector.method import Method, isotropic
from vecveil.protector.scale import NoiseFamily

LAPLACE = Method("laplace", "isotropic Laplace noise", isotropic)

_GAUSSIAN = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Gaussian(
        shape, noise * rms_norm / float(np.sqrt(shape.dimension)), splits
    ),
    ratio=lambda sigma, rms_norm, n: sigma * float(np.sqrt(n)) / rms_norm,
    scales=("sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage"),
    can_split=True,
)


def _ldp_family(delta: float | None) -> NoiseFamily:
    """Return the family of noise calibrated to (ε, δ) on the unit ball."""
    probability = 0.5 if delta is None else delta  # any δ: only its scales are read

    def refuse(*arguments: object) -> NoReturn:
        raise TypeError("ldp-gaussian is scaled by epsilon and delta")

    return NoiseFamily(
        mechanism=refuse,
        ratio=lambda epsilon, rms_norm, n: LdpGaussian(n, epsilon, probability).sigma * float(np.sqrt(n)),
        scales=("epsilon",),
        can_split=True,
        of_epsilon=lambda n, epsilon, splits: LdpGaussian(n, epsilon, probability, splits),
    )


GAUSSIAN = Method("gaussian", "isotropic Gaussian noise", isotropic, family=lambda _: _GAUSSIAN)
LDP_GAUSSIAN = Method(
    "ldp-gaussian",
    "normalise, then Gaussian noise calibrated to (ε, δ) on the unit sphere",
    isotropic,
    metric="none",
    family=_ldp_family,
    delta=True,
    before="normalise",
)


def _cosine_ratio(cosine: float, dimension: int) -> float:
    """Return the ratio whose ε has E cos θ = ``cosine``, by root finding in log space."""
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        epsilon = epsilon_of_rms_norm(float(np.exp(log_ratio)), dimension)
        return angle_moments(dimension, epsilon)[0] - cosine

    ends = (float(np.log(1e-6)), float(np.log(1e6)))
    if excess(ends[0]) < 0 or excess(ends[1]) > 0:
        raise CalibrationError(
            f"fit: no ε gives a `target_cosine` of {cosine}. Choose one further from 0 and 1.", param="target_cosine"
        )
    return float(np.exp(brentq(excess, *ends, xtol=1e-6)))


# The norm of the vectors is not released, so it counts as 1.
_SPHERE = NoiseFamily(
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
    family=lambda _: _SPHERE,
)

_SHUFFLED = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Shuffle(random_permutation(shape.dimension)),
    ratio=lambda value, rms_norm, n: 0.0,
    scales=(),
)

SHUFFLE = Method(
    "shuffle",
    "one secret permutation of the coordinates",
    isotropic,
    kind="obfuscation",
    metric="none",
    family=lambda _: _SHUFFLED,
)
