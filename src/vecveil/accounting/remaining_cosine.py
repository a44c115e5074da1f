"""How much of a vector's direction Laplace noise leaves: the mean cosine of x and x + z."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from vecveil.accounting.quadrature import Array
from vecveil.validation import check_count, check_positive

__all__ = ["approximate_cosine", "expected_cosine"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PER_WIDTH = 4  # steps of the trapezoidal rule per width of the peak; it converges exponentially


def approximate_cosine(n: int, epsilon: float) -> float:
    """Return 1/√(1 + (n/ε)²): the cosine if the noise has its mean length and is orthogonal to x."""
    return 1 / math.hypot(1.0, n / epsilon)


def expected_cosine(n: int, epsilon: float) -> float:
    """Return E cos(x, x + z) for a unit vector x and the density of z ∝ exp(−ε‖z‖).

    With Y = ‖z‖ ~ Gamma(n, 1/ε) and C the cosine of z and x, cos = (1 + YC)/√(1 + 2YC + Y²); both
    integrals are done numerically, with an error below 1e-9.

    Args:
        n: dimension, ≥ 1.
        epsilon: ε > 0, per unit of the norm.
    """
    owner = "expected_cosine"
    count = check_count(n, owner=owner, param="n")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    if count == 1:  # the sign survives unless z < −1
        return -math.expm1(-eps)
    log_radius = _log_radii(count)
    shift = math.log(eps)  # radii in units of |x|: the mean cosine is not smooth where Y = 1
    edges = _edges(log_radius[0] - shift, log_radius[1] - shift)
    widths = np.diff(edges)
    s = (edges[:-1, None] + widths[:, None] * (_NODES + 1) / 2).ravel()
    weights = (widths[:, None] * _WEIGHTS / 2).ravel()
    log_density = count * (s + shift) - np.exp(s + shift) - special.gammaln(count)
    density = weights * np.exp(log_density)
    return float(density @ _mean_over_directions(np.exp(s), count) / density.sum())


def _log_radii(n: int) -> tuple[float, float]:
    """Return logs of the radii (in 1/ε) outside of which Gamma(n) has less than 1e-18."""
    low = special.gammaincinv(n, 1e-18)
    return math.log(low), math.log(special.gammainccinv(n, 1e-18))


def _edges(low: float, high: float) -> Array:
    regular = np.linspace(low, high, 33)
    near = np.geomspace(1e-8, 1.0, 25)
    return np.unique(np.concatenate([regular, [e for e in [0.0, *near, *-near] if low < e < high]]))


def _mean_over_directions(radii: Array, n: int) -> Array:
    """Return the mean over C, whose density is (1 − C²)^((n−3)/2): with C = tanh t it is cosh^(1−n) t."""
    width = 1 / math.sqrt(n - 1)
    furthest = 45 / (n - 1) + 10 * width  # cosh^(1−n) is below 1e-18 there
    steps = math.ceil(furthest / width * _PER_WIDTH)
    t = np.linspace(-furthest, furthest, 2 * steps + 1)
    law = np.exp((1 - n) * np.logaddexp(t, -t) - (1 - n) * math.log(2))
    # 1 + 2YC + Y² = [(1 − Y)² e^(−t) + (1 + Y)² e^t]/(e^t + e^(−t)), without cancellation
    y, up, down = radii[:, None], np.exp(t), np.exp(-t)
    squared = ((1 - y) ** 2 * down + (1 + y) ** 2 * up) / (up + down)
    along = ((1 - y) * down + (1 + y) * up) / (up + down)
    return np.asarray((along / np.sqrt(squared)) @ law / law.sum())
