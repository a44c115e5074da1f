"""Calibrate Laplace and Gaussian noise to an expected cosine or to an attacker's advantage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from vecveil.accounting.quadrature import Array
from vecveil.accounting.total_variation import check_distances, laplace_total_variation
from vecveil.accounting.two_centre import LaplacePrivacyLoss
from vecveil.errors import CalibrationError
from vecveil.types import Vector
from vecveil.validation import check_count, check_positive, check_probability

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PER_WIDTH = 4  # steps of the trapezoidal rule per width of the peak; it converges exponentially


def expected_cosine(n: int, epsilon: float) -> float:
    """Return E cos(x, x + z) for a unit vector x in n ≥ 1 dimensions and the density of z ∝ exp(−ε‖z‖), ε > 0.

    With Y = ‖z‖ ~ Gamma(n, 1/ε) and C the cosine of z and x, cos = (1 + YC)/√(1 + 2YC + Y²). Both
    integrals are numerical, with an error below 1e-9.
    """
    owner = "expected_cosine"
    count = check_count(n, owner=owner, param="n")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    if count == 1:  # the sign survives unless z < −1, with probability e^(−ε)/2
        return -math.expm1(-eps)
    shift = math.log(eps)  # radii in units of |x|: the mean cosine is not smooth where Y = 1
    # Radii (in 1/ε) that hold all but 1e-18 of Gamma(n) on each side.
    low = math.log(special.gammaincinv(count, 1e-18)) - shift
    high = math.log(special.gammainccinv(count, 1e-18)) - shift
    # Around Y = 1 (s = 0) the mean cosine is not smooth: panels shrink towards it.
    regular, near = np.linspace(low, high, 33), np.geomspace(1e-8, 1.0, 25)
    inner = [e for e in [0.0, *near, *-near] if low < e < high]
    edges = np.unique(np.concatenate([regular, inner]))
    widths = np.diff(edges)
    s = (edges[:-1, None] + widths[:, None] * (_NODES + 1) / 2).ravel()
    weights = (widths[:, None] * _WEIGHTS / 2).ravel()
    # Gamma(n) density of εY in s = log Y; dividing by its sum removes the truncated 1e-18.
    log_density = count * (s + shift) - np.exp(s + shift) - special.gammaln(count)
    density = weights * np.exp(log_density)
    return float(density @ _mean_over_directions(np.exp(s), count) / density.sum())


def _mean_over_directions(radii: Array, n: int) -> Array:
    """Return the mean over C, whose density is (1 − C²)^((n−3)/2): with C = tanh t it is cosh^(1−n) t."""
    width = 1 / math.sqrt(n - 1)
    furthest = 45 / (n - 1) + 10 * width  # cosh^(1−n) is below 1e-18 there
    steps = math.ceil(furthest / width * _PER_WIDTH)
    t = np.linspace(-furthest, furthest, 2 * steps + 1)
    law = np.exp((1 - n) * np.logaddexp(t, -t) - (1 - n) * math.log(2))  # 1 at t = 0; cosh itself overflows
    # Near C = −1 and Y = 1 the direct form subtracts equal numbers; this one adds positive terms.
    # 1 + 2YC + Y² = [(1 − Y)² e^(−t) + (1 + Y)² e^t]/(e^t + e^(−t)), without cancellation
    y, up, down = radii[:, None], np.exp(t), np.exp(-t)
    squared = ((1 - y) ** 2 * down + (1 + y) ** 2 * up) / (up + down)
    along = ((1 - y) * down + (1 + y) * up) / (up + down)
    return np.asarray((along / np.sqrt(squared)) @ law / law.sum())


FAINT_COSINE = 0.2
"""Mean cosine of released and clean vector below which a release is noise for most purposes."""

IDLE_EPSILON = 10.0
"""ε above which the worst-case factor e^ε (22,000) is no protection by itself."""

_NEAR = 0.1  # distance at which the exact advantage is stated beside the worst case

_TELLING = 0.995  # printed as 1: no bound on anything


def epsilon_meaning(n: int, epsilon: float) -> tuple[str, ...]:
    """Return warnings for an ε that is too small for utility or too large for the worst case.

    Both can hold at once: in n dimensions utility needs an ε near n, where e^ε is astronomical. The
    figures are for unit vectors and noise with density ∝ exp(−ε‖z‖); for the Purkayastha mechanism,
    with ε per radian, the cosine is nearly the same.
    """
    owner = "epsilon_meaning"
    count = check_count(n, owner=owner, param="n")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    sentences = []
    cosine = expected_cosine(count, eps)
    if cosine < FAINT_COSINE:
        sentences.append(
            f"At ε = {eps:.4g} in {count} dimensions a release keeps almost nothing of a unit vector: the noise is "
            f"{count / eps:.3g} times as long, and the mean cosine of released and clean vector is {cosine:.2g}."
        )
    if eps > IDLE_EPSILON:
        near = float(laplace_total_variation(_NEAR, dimension=count, epsilon=eps)[0])
        exact = (
            f"no attacker has an advantage above {near:.3g}."
            if near < _TELLING
            else f"an attacker distinguishes the two from one release with an advantage of {near:.3g} (0 is guessing, "
            "1 is certainty). Rely on the audit."
        )
        sentences.append(
            f"ε = {eps:.4g} gives no useful worst-case bound at distance 1: a factor of e^{eps:.4g}, about "
            f"10^{eps / math.log(10):.0f}. The exact loss of two vectors at distance {_NEAR}: {exact}"
        )
    return tuple(sentences)


def epsilon_of_cosine(n: int, target_cosine: float) -> float:
    """Return the ε at which Laplace noise leaves a unit vector this mean cosine with itself, in (0, 1).

    A higher target means more utility and less privacy. The inverse of `expected_cosine`, to 1e-9.
    """
    owner = "epsilon_of_cosine"
    count = check_count(n, owner=owner, param="n")
    target = check_probability(target_cosine, owner=owner, param="target_cosine", open_interval=True)
    # Noise of length n/ε orthogonal to x would give cosine 1/√(1 + (n/ε)²); solved for ε.
    guess = count * target / math.sqrt((1 - target) * (1 + target))
    root = _root(lambda s: expected_cosine(count, math.exp(s)) - target, math.log(guess))
    if root is None:
        raise _unreachable(owner, "target_cosine", target)
    return math.exp(root)


def epsilon_of_advantage(distances: Vector, *, n: int, target_advantage: float, quantile: float = 0.95) -> float:
    """Return the ε of Laplace noise at which the best attacker's advantage over a pair is the target.

    The pair is at this quantile of the distances: that share of the pairs is protected at least as
    well. A higher target or a lower quantile means a larger ε and less noise. A distance of 0 there needs no
    noise and raises `CalibrationError`.

    Args:
        distances: (N,) between the inputs of each pair, in the mechanism's norm.
        n: dimension of the noise, ≥ 1.
        target_advantage: in (0, 1); the total variation at that distance.
        quantile: in [0, 1]; 1 is the farthest pair.
    """
    owner = "epsilon_of_advantage"
    count = check_count(n, owner=owner, param="n")
    target = _target(target_advantage, owner)
    rho = _distance_at(distances, quantile, owner)
    # The total variation depends on ερ alone; it is near Gaussian DP's with μ = ερ/√n.
    guess = math.log(2 * math.sqrt(2 * count) * float(special.erfinv(target)))
    root = _root(lambda s: LaplacePrivacyLoss(count, 1.0, math.exp(s)).total_variation - target, guess)
    if root is None:
        raise _unreachable(owner, "target_advantage", target)
    return math.exp(root) / rho


def sigma_of_advantage(distances: Vector, *, target_advantage: float, quantile: float = 0.95) -> float:
    """Return the σ of Gaussian noise at which the best attacker's advantage over a pair is the target.

    σ = ρ/(2Φ⁻¹((1 + target)/2)), ρ the distance at this quantile. See `epsilon_of_advantage` for
    arguments and errors.
    """
    owner = "sigma_of_advantage"
    target = _target(target_advantage, owner)
    rho = _distance_at(distances, quantile, owner)
    return rho / (2 * math.sqrt(2) * float(special.erfinv(target)))  # √2 erf⁻¹(t) = Φ⁻¹((1 + t)/2)


def _target(value: Any, owner: str) -> float:
    return check_probability(value, owner=owner, param="target_advantage", open_interval=True)


def _distance_at(distances: Vector, quantile: float, owner: str) -> float:
    share = check_probability(quantile, owner=owner, param="quantile")
    rho = float(np.quantile(check_distances(distances, owner=owner), share))
    if rho == 0:
        raise CalibrationError(
            f"The distance at the quantile {share:g} is 0: such inputs are equal, whatever the noise. Raise the "
            "quantile, or check that the concept changes the vectors.",
            param="distances",
        )
    return rho


def _root(f: Callable[[float], float], guess: float) -> float | None:
    """Return the root of an increasing function, or None if none lies within e^±600."""
    from scipy import optimize  # slow to import, and not needed to protect

    low, high, width = guess, guess, 0.25
    # Bracket the root, widening by doubling steps.
    while f(low) > 0:
        low -= width
        width *= 2
        if low < -600:
            return None
    while f(high) < 0:
        high += width
        width *= 2
        if high > 600:
            return None
    return low if low == high else float(optimize.brentq(f, low, high, xtol=1e-13, rtol=1e-13))


def _unreachable(owner: str, param: str, target: float) -> CalibrationError:
    return CalibrationError(f"{owner}: `{param}` {target:g} is too near 0 or 1 for floating point.", param=param)
