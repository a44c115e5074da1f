"""The exact privacy loss of the elliptical Laplace mechanism.

y = x + z, the density of z ∝ exp(−ε‖z‖) in n dimensions, two inputs at distance ρ: the loss is
L = ε(‖z + d‖ − ‖z‖), ‖d‖ = ρ. With ξ = (‖z + d‖ + ‖z‖)/ρ and η = (‖z + d‖ − ‖z‖)/ρ the volume element is
proportional to

    (ξ² − η²) [(ξ² − 1)(1 − η²)]^((n−3)/2) dξ dη,   ξ² − η² = (ξ² − 1) + (1 − η²),

and exp(−ε‖z‖) = exp(−a(ξ − η)), a = ερ/2. The integrals over ξ ≥ 1 are modified Bessel functions
(DLMF 10.32.8), so that with ν = n/2 − 1 the density of L = ερη is, up to a constant,

    e^(aη) (1 − η²)^((n−3)/2) [κ + 1 − η²],   κ = (n − 1) K_{ν+1}(a) / (a K_ν(a)).

For n = 1 it is constant times e^(aη), with half of the mass at η = 1. Logarithms of 1 − η² and of
κ + 1 − η² are concave in η², so for n = 1 and n ≥ 3 μ-GDP follows from the total variation alone.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from vecveil.accounting.quadrature import Array
from vecveil.accounting.two_centre import TwoCentreLoss, check_reach, log_cosh
from vecveil.validation import check_count, check_positive

__all__ = ["LaplacePrivacyLoss"]


class LaplacePrivacyLoss(TwoCentreLoss):
    """The exact privacy loss of noise with density ∝ exp(−ε‖z‖), for one pair of inputs.

    It depends on n and on the product of ε and distance only. δ keeps 12 digits however small it is,
    for n ≤ 4096 and losses below 1e6; beyond that its absolute error stays below 1e-9. Immutable.

    Args:
        n: dimension of the noise, ≥ 1.
        epsilon: the mechanism's ε > 0, per unit of its own norm.
        distance: ρ ≥ 0 of the two inputs in that norm (Mahalanobis distance of the noise shape). For a
            release T(x + z) with a kernel, the quotient distance gives an upper bound (`exact` speaks of
            x + z itself).
    """

    def __init__(self, n: int, epsilon: float, distance: float) -> None:
        owner = "LaplacePrivacyLoss"
        self._n = check_count(n, owner=owner, param="n")
        self._epsilon = check_positive(epsilon, owner=owner, param="epsilon")
        self._distance = check_positive(distance, owner=owner, param="distance", allow_zero=True)
        self._reach = check_reach(self._epsilon, self._distance, owner=owner, param="distance")

    @property
    def worst_case(self) -> float:
        """ε·ρ: the loss never exceeds it (SPARSE, Theorem 1)."""
        return self._reach

    @cached_property
    def _log_kappa(self) -> float:
        a = self._reach / 2
        return math.log(self._n - 1) - math.log(a) - math.log(_bessel_ratio(self._n, a))

    def _log_even(self, x: Array) -> Array:
        # 1 − η² = 1/cosh² x, and dη = dx/cosh² x
        if self._n == 1:
            return math.log(self._reach / 4) - 2 * log_cosh(x)
        fall = log_cosh(x)
        return np.asarray((1 - self._n) * fall + np.logaddexp(self._log_kappa, -2 * fall))

    @property
    def _log_atom(self) -> float:
        return math.log(0.5) if self._n == 1 else -math.inf

    @property
    def _gaussian_from_total_variation(self) -> bool:
        return self._n != 2

    def _parameters(self) -> dict[str, Any]:
        return {"n": self._n, "epsilon": self._epsilon, "distance": self._distance}


def _bessel_ratio(n: int, a: float) -> float:
    """Return K_ν(a)/K_{ν+1}(a) for ν = n/2 − 1, n ≥ 2, by the upward recurrence, which is stable.

    K_{ν+1} = K_{ν−1} + (2ν/a) K_ν (DLMF 10.29.1), so the ratios q_ν obey q_ν = a/(a q_{ν−1} + 2ν).
    """
    order = n / 2 - 1 - (n - 1) // 2  # 0 for an even n, −1/2 for an odd one
    if order < 0:
        ratio = 1.0
    elif a > 1e8:  # beyond the range of kve
        ratio = 1 - 1 / (2 * a)
    else:
        ratio = float(special.kve(0, a) / special.kve(1, a))
    for _ in range((n - 1) // 2):
        order += 1
        ratio = a / (a * ratio + 2 * order)
    return ratio
