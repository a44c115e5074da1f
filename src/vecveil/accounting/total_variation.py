"""Total variation of many pairs of inputs at once, for Laplace noise and on the sphere."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from vecveil.accounting.quadrature import Array, log_integral
from vecveil.errors import InvalidInputError
from vecveil.types import Vector
from vecveil.validation import check_count, check_positive

__all__ = [
    "laplace_total_variation",
    "over_many_pairs",
    "purkayastha_total_variation",
]

_SPACING = 0.03  # of the grid, in the logarithm of the distance
_LINEAR = 1e-9  # where the worst-case loss is below this, the total variation is proportional to it
_FEW = 150


def over_many_pairs(
    total_variation: Callable[[Array], Array], distances: Array, *, epsilon: float
) -> Array:
    """Return ``total_variation`` at all distances, evaluated at a few hundred of them.

    log(1 − TV)/distance is interpolated by a cubic spline in log distance: it is constant at one end and
    nearly linear at the other. The error of a TV by that is below 1e-8. Few distances are done exactly.

    Args:
        total_variation: of distances (k,), all > 0.
        distances: (N,), ≥ 0.
        epsilon: the loss is at most ε times the distance.
    """
    result = np.zeros(distances.shape)
    apart = distances > 0
    inside = np.maximum(distances[apart], min(_LINEAR / epsilon, 1e300))
    found, where = np.unique(inside, return_inverse=True)
    if not found.size:
        return result
    nodes = _FEW + math.ceil((math.log(found[-1]) - math.log(found[0])) / _SPACING)
    if found.size <= nodes:
        values = total_variation(found)
    else:
        from scipy import interpolate  # slow to import, and not needed to protect

        grid = np.geomspace(found[0], found[-1], nodes)
        grid[0], grid[-1] = found[0], found[-1]
        rates = -np.log1p(-np.minimum(total_variation(grid), 1 - 1e-16)) / grid
        values = -np.expm1(-interpolate.CubicSpline(np.log(grid), rates)(np.log(found)) * found)
    result[apart] = values[where] * np.minimum(distances[apart] / inside, 1.0)
    return np.asarray(np.clip(result, 0.0, 1.0))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_S = (_NODES + 1) / 2
# The map s → s³(10 − 15s + 6s²) of [0, 1] onto itself has zero slope and curvature at both ends.
_BENT = _S**3 * (10 - 15 * _S + 6 * _S**2)
_BENT_WEIGHTS = 15 * _S**2 * (1 - _S) ** 2 * _WEIGHTS


def laplace_total_variation(distances: Vector | float, *, dimension: int, epsilon: float) -> Vector:
    """Return the total variation at each distance: 0 is indistinguishable, 1 told apart for sure.

    The error is below 1e-8. More than a few hundred distances are interpolated, so that the cost hardly
    grows with their number.

    Args:
        distances: ρ ≥ 0, in the mechanism's own norm; scalar or (N,).
        dimension: n ≥ 1.
        epsilon: the mechanism's ε > 0, per unit of that norm.
    """
    owner = "laplace_total_variation"
    n = check_count(dimension, owner=owner, param="dimension")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    rho = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    if rho.ndim != 1 or not np.isfinite(rho).all() or (rho < 0).any():
        raise InvalidInputError.of(owner, "distances", "finite and ≥ 0, a number or of shape (N,)",
                                   f"shape {rho.shape} with other values")  # fmt: skip
    return over_many_pairs(lambda some: _laplace_total_variation(some, n, eps), rho, epsilon=eps)


def _laplace_total_variation(rho: Array, n: int, eps: float) -> Array:
    half = eps * rho / 2
    certain = special.gammainc(n, half)
    if n == 1:
        return np.asarray(certain, dtype=np.float64)
    above = special.gammaincc(n, half)
    radii = special.gammainccinv(n, above[:, None] * _BENT)
    # P(|2B − 1| ≤ t) = P((2B − 1)² ≤ t²), and (2B − 1)² ~ Beta(1/2, (n − 1)/2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(radii > 0, np.minimum(half[:, None] / radii, 1.0), 1.0)
    inside = special.betainc(0.5, (n - 1) / 2, ratio**2)
    return np.asarray(np.minimum(certain + above * (inside @ _BENT_WEIGHTS), 1.0), dtype=np.float64)


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
        lambda some: _sphere_total_variation(np.minimum(some, math.pi), count, eps),
        psi,
        epsilon=max(eps, 1.0),
    )


def _sphere_total_variation(psi: Array, n: int, epsilon: float) -> Array:
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
