"""The total variation of the Purkayastha mechanism for many pairs at once.

The likelihood ratio of two inputs at the angle ψ exceeds 1 on the half sphere nearer to the first. With
h = ψ/2, y at the angle θ from x and its direction uniform around x, y lies there if cos θ sin h +
sin θ cos h·c > 0, c a coordinate of a uniform direction in n − 1 dimensions, c² ~ Beta(1/2, n/2 − 1).
Taking θ and π − θ together leaves one integral of a positive function:

    TV = ∫₀^{π/2} ω(θ) P(|c| ≤ tan h / tan θ) dθ / ∫₀^π e^(−εθ) sin^(n−2) θ dθ,
    ω(θ) = e^(−εθ) sin^(n−2) θ (1 − e^(−ε(π − 2θ))).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from vecveil.accounting.many_pairs import over_many_pairs
from vecveil.accounting.quadrature import Array, log_integral
from vecveil.errors import InvalidInputError
from vecveil.types import Vector
from vecveil.validation import check_count, check_positive

__all__ = ["purkayastha_total_variation"]

_DEEP = 40


def purkayastha_total_variation(angles: Vector | float, *, n: int, epsilon: float) -> Vector:
    """Return the total variation at each angle between two inputs; the error is below 1e-8.

    More than a few hundred angles are interpolated, so that the cost hardly grows with their number.

    Args:
        angles: ψ in [0, π], scalar or (N,).
        n: dimension of the space, ≥ 2.
        epsilon: the mechanism's ε > 0, per radian.
    """
    owner = "purkayastha_total_variation"
    count = check_count(n, owner=owner, param="n", minimum=2)
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    psi = np.atleast_1d(np.asarray(angles, dtype=np.float64))
    if psi.ndim != 1 or not ((psi >= 0) & (psi <= math.pi * (1 + 1e-12))).all():
        raise InvalidInputError.of(owner, "angles", "in [0, π], a number or of shape (N,)",
                                   f"shape {psi.shape} with other values")  # fmt: skip
    return over_many_pairs(
        lambda some: _total_variation(np.minimum(some, math.pi), count, eps),
        psi,
        epsilon=max(eps, 1.0),
    )


def _total_variation(psi: Array, n: int, epsilon: float) -> Array:
    half = psi / 2

    def log_law(theta: Array) -> Array:
        sine = np.maximum(np.sin(theta), 1e-300)  # n = 2 takes it to the power 0, also at 0
        return np.asarray((n - 2) * np.log(sine) - epsilon * theta)

    def log_difference(theta: Array) -> Array:
        opposite = np.maximum(math.pi - 2 * theta, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(log_law(theta) + np.log(-np.expm1(-epsilon * opposite)))

    def possible(t: Array, rows: Array) -> Array:
        theta = half[rows, None] + t
        ratio = np.minimum(np.tan(half[rows, None]) / np.tan(theta), 1.0)
        inside = special.betainc(0.5, n / 2 - 1, ratio * ratio) if n > 2 else (ratio >= 1)
        with np.errstate(divide="ignore"):
            return np.asarray(log_difference(theta) + np.log(inside))

    total = log_integral(lambda t, _: log_law(t), np.array([math.pi / 2]))
    total = np.logaddexp(
        total, log_integral(lambda t, _: log_law(math.pi - t), np.array([math.pi / 2]))
    )
    value = log_integral(lambda theta, _: log_difference(theta), half)  # |c| ≤ 1 ≤ tan h / tan θ
    open_ = np.flatnonzero(half < math.pi / 2)
    if n > 2 and open_.size:
        # P(|c| ≤ …) has scales of its own where θ is near h: deep halvings towards it
        more = log_integral(
            lambda t, r: possible(t, open_[r]), math.pi / 2 - half[open_], levels=_DEEP
        )
        value[open_] = np.logaddexp(value[open_], more)
    return np.asarray(np.exp(np.minimum(value - total, 0.0)))
