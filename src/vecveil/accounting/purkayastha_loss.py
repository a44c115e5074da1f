"""The exact privacy loss of the Purkayastha mechanism.

x, y on the unit sphere of n dimensions, the density of y ∝ exp(−ε θ), θ = arccos(xᵀy); two inputs at the
angle ψ: the loss is L = ε(θ' − θ). The uniform measure over the pair (θ, θ') is proportional to
sin θ sin θ' G^((n−4)/2) dθ dθ', G the Gram determinant of x, x', y. With u = (θ + θ')/2, v = (θ' − θ)/2
and b = sin(ψ/2) both factors come apart:

    G = 4 (sin² u − b²)(b² − sin² v),   sin θ sin θ' = (sin² u − b²) + (b² − sin² v),

with u between ψ/2 and π − ψ/2. So the density of L = 2εv is, up to a constant,

    e^(εv) g^((n−4)/2) [κ + g],   g = b² − sin² v = sin(ψ/2 − v) sin(ψ/2 + v),

κ the ratio of ∫ e^(−εu) (sin² u − b²)^p du for p = n/2 − 1 to that for p = n/2 − 2. With v' = u − π/2
these are integrals of the same form, of half width (π − ψ)/2. For n = 2 (a circle) the density is
e^(εv) times a constant, with atoms at ±εψ.

log g is concave in v²: by the product for the sine it is log(ψ²/4 − v²) plus a sum of log(c² − v²); and
κ + g = sin² H − sin² v for some H ≥ ψ/2. So for n = 2 and n ≥ 4 μ-GDP follows from the total variation.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from vecveil.accounting.quadrature import Array
from vecveil.accounting.two_centre import (
    TwoCentreLoss,
    check_reach,
    log_cosh,
    log_symmetric_integral,
)
from vecveil.errors import InvalidInputError
from vecveil.validation import check_count, check_positive

__all__ = ["PurkayasthaPrivacyLoss"]


class PurkayasthaPrivacyLoss(TwoCentreLoss):
    """The exact privacy loss of the density ∝ exp(−ε·angle) on the sphere, for one pair of inputs.

    The absolute error of δ is below 1e-10. Immutable.

    Args:
        n: dimension of the space, ≥ 2.
        epsilon: the mechanism's ε > 0, per radian.
        angle: ψ in [0, π] between the two inputs.
    """

    def __init__(self, n: int, epsilon: float, angle: float) -> None:
        owner = "PurkayasthaPrivacyLoss"
        self._n = check_count(n, owner=owner, param="n", minimum=2)
        self._epsilon = check_positive(epsilon, owner=owner, param="epsilon")
        self._angle = check_positive(angle, owner=owner, param="angle", allow_zero=True)
        if self._angle > math.pi:
            raise InvalidInputError.of(owner, "angle", "in [0, π]", self._angle)
        self._reach = check_reach(self._epsilon, self._angle, owner=owner, param="angle")
        self._half = max(self._angle, 1e-290) / 2  # smaller numbers have lost their digits

    @property
    def worst_case(self) -> float:
        """ε·ψ: the loss never exceeds it."""
        return self._reach

    @cached_property
    def _log_kappa(self) -> float:
        half = (math.pi - self._angle) / 2
        if half <= 0:
            return -math.inf
        return _log_power_integral(self._epsilon, half, self._n / 2 - 1) - _log_power_integral(
            self._epsilon, half, self._n / 2 - 2
        )

    def _log_even(self, x: Array) -> Array:
        if self._n == 2:
            return math.log(self._reach / 2) + math.log1p(self._opposite) - 2 * log_cosh(x)
        gap = _log_gap(x, self._half)
        tilt = np.logaddexp(self._log_kappa, gap)
        return np.asarray((self._n / 2 - 2) * gap + tilt - 2 * log_cosh(x))

    @cached_property
    def _opposite(self) -> float:
        return math.exp(-self._epsilon * (math.pi - self._angle))

    @property
    def _log_atom(self) -> float:
        away = -math.expm1(-self._epsilon * (math.pi - self._angle))
        return math.log(away) if self._n == 2 and away > 0 else -math.inf

    @property
    def _gaussian_from_total_variation(self) -> bool:
        return self._n != 3

    def _parameters(self) -> dict[str, Any]:
        return {"n": self._n, "epsilon": self._epsilon, "angle": self._angle}


def _log_gap(x: Array, half: float) -> Array:
    """Return log of sin² half − sin² v at v = half·tanh x, x ≥ 0."""
    # v is short of half by `near`. Its logarithm is taken apart, or the smallest would be log 0.
    decay = np.exp(-2 * x)
    near, far = 2 * half * decay / (1 + decay), 2 * half / (1 + decay)
    log_near = math.log(2 * half) - 2 * x - np.log1p(decay)
    return np.asarray(log_near + np.log(np.sinc(near / math.pi) * np.sin(far)))


def _log_power_integral(epsilon: float, half: float, power: float) -> float:
    """Return log ∫ e^(ε(v − half)) (sin² half − sin² v)^power dv / half over −half..half."""

    def log_even(x: Array) -> Array:
        return np.asarray(power * _log_gap(x, half) - 2 * log_cosh(x))

    return log_symmetric_integral(2 * epsilon * half, log_even)
