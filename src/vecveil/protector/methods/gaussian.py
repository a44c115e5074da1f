"""The ``gaussian`` and ``ldp-gaussian`` methods: isotropic Gaussian noise of a given σ, or for (ε, δ)."""

from typing import NoReturn

import numpy as np

from vecveil.mechanisms import Gaussian, LdpGaussian
from vecveil.protector.method import Method, isotropic
from vecveil.protector.scale import NoiseFamily

_FAMILY = NoiseFamily(
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


GAUSSIAN = Method("gaussian", "isotropic Gaussian noise", isotropic, family=lambda _: _FAMILY)
LDP_GAUSSIAN = Method(
    "ldp-gaussian",
    "normalise, then Gaussian noise calibrated to (ε, δ) on the unit sphere",
    isotropic,
    metric="none",
    family=_ldp_family,
    delta=True,
    before="normalise",
)
