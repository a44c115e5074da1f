"""The largest advantage that any attacker can have at telling two inputs apart from one release.

For noise with density ∝ exp(−ε‖z‖) in n dimensions and two inputs at distance ρ, the likelihood ratio
exceeds 1 exactly where the projection of z on the difference is below ρ/2. So the total variation is
P(|s| ≤ ρ/2) with s that one-dimensional projection: s = Y·(2B − 1), Y ~ Gamma(n, 1/ε),
B ~ Beta((n−1)/2, (n−1)/2). One integral over Y is left, done by Gauss–Legendre in its quantiles.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from vecveil.checks import check_count, check_positive
from vecveil.types import Vector

__all__ = ["laplace_total_variation"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def laplace_total_variation(distances: Vector | float, *, dimension: int, epsilon: float) -> Vector:
    """Return the total variation at each distance: 0 is indistinguishable, 1 is told apart for sure.

    Args:
        distances: ρ ≥ 0, in the mechanism's own norm; scalar or (N,).
        dimension: n ≥ 2.
        epsilon: the mechanism's ε > 0, per unit of that norm.
    """
    owner = "laplace_total_variation"
    n = check_count(dimension, owner=owner, param="dimension", minimum=2)
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    rho = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    quantiles = special.gammaincinv(n, (_NODES + 1) / 2) / eps
    ratio = np.minimum(rho[:, None] / (2 * quantiles), 1.0)
    a = (n - 1) / 2
    # P(|2B − 1| ≤ t) = P((2B − 1)² ≤ t²), and (2B − 1)² ~ Beta(1/2, (n − 1)/2)
    inside = special.betainc(0.5, a, ratio**2)
    return np.asarray(inside @ _WEIGHTS / 2, dtype=np.float64)
