"""The largest advantage that any attacker can have at telling two inputs apart from one release.

For noise with density ∝ exp(−ε‖z‖) in n dimensions and two inputs at distance ρ, the likelihood
ratio exceeds 1 exactly where the projection of z on the difference is below ρ/2. So the total
variation is P(|s| ≤ ρ/2) with s that one-dimensional projection: s = Y·(2B − 1), Y ~ Gamma(n, 1/ε),
B ~ Beta((n−1)/2, (n−1)/2). Below Y = ρ/2 the event is certain; above it one integral over Y is
left, done by Gauss–Legendre in the quantiles of Y, bent so that both ends are smooth.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from vecveil.accounting.many_pairs import over_many_pairs
from vecveil.accounting.quadrature import Array
from vecveil.errors import InvalidInputError
from vecveil.types import Vector
from vecveil.validation import check_count, check_positive

__all__ = ["laplace_total_variation"]

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
    return over_many_pairs(lambda some: _total_variation(some, n, eps), rho, epsilon=eps)


def _total_variation(rho: Array, n: int, eps: float) -> Array:
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
