"""Test a running mechanism against its declared law, on one pair of inputs.

If a mechanism is (ε, 0)-DP for a pair, no event may have P(E) > e^ε Q(E). Scores of an attack, drawn under either
input, make events: a score at or above a threshold, or below it. With Clopper-Pearson bounds on both probabilities,
ε ≥ log(P_low / Q_high) holds at the stated confidence (Jagielski, Ullman & Oprea 2020).

A declaration has the log-likelihood ratio of an output, the law of that ratio, and the law of the noise's length. All
three mechanisms are symmetric: a reflection swaps the inputs, so the ratio under x is the negative of the ratio under
x′. The integrals share no code with the package's privacy losses, so a test does not repeat their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats
from scipy.linalg import solve_triangular

from vecveil.privacy.randomness import resolve_generator

Array = np.ndarray[Any, Any]

_RESOLUTION = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7}  # a few units of rounding
_BLOCK = 4096  # releases per call: bounds the memory
_CHECKS = 5
_REACH = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])  # thresholds of the privacy loss
_THRESHOLDS = 1000  # at each end of the scores
_ANGLES = 1 << 16


# Bounds that scores prove --------------------------------------------------------------------------


@dataclass(frozen=True)
class LowerBound:
    """The bounds that scores prove: the least ε, and the least advantage; both hold at the confidence."""

    epsilon: float
    advantage: float


def epsilon_lower_bound(scores_x: Array, scores_y: Array, *, confidence: float) -> LowerBound:
    """Return the bounds that scores of independent releases of x (N,) and of y (M,) prove.

    A random half of the scores selects thresholds and direction; the other half gives the bounds, so the selection
    needs no correction. Four directions are tried: scores above and below, x against y and y against x.
    """
    rng = np.random.default_rng(0)
    significance = (1 - confidence) / 4  # two bounds, of two probabilities each
    choose_x, bound_x = np.array_split(rng.permutation(scores_x), 2)
    choose_y, bound_y = np.array_split(rng.permutation(scores_y), 2)
    thresholds = _candidates(np.concatenate([choose_x, choose_y]))
    tried = _epsilons(choose_x, choose_y, thresholds, significance)
    direction = max(tried, key=lambda name: float(tried[name].max()))
    threshold = thresholds[[int(tried[direction].argmax())]]
    advantages = _counts(choose_x, thresholds) / len(choose_x)
    advantages -= _counts(choose_y, thresholds) / len(choose_y)
    at = thresholds[[int(np.abs(advantages).argmax())]]
    # One threshold and one direction remain, so each bound is a single test.
    epsilon = float(_epsilons(bound_x, bound_y, threshold, significance)[direction][0])
    return LowerBound(epsilon, _advantage(bound_x, bound_y, at, significance))


def _clopper_pearson(k: Any, n: int, significance: float) -> tuple[Any, Any]:
    with np.errstate(invalid="ignore"):
        low = special.betaincinv(k, n - k + 1, significance)
        high = special.betainccinv(k + 1, n - k, significance)
    return np.where(k > 0, low, 0.0), np.where(k < n, high, 1.0)


def _candidates(scores: Array) -> Array:
    """Return at most about 2,000 of the scores, densely towards both ends, where ε is large."""
    pooled = np.unique(scores)
    if len(pooled) <= _THRESHOLDS:
        return pooled
    share = np.linspace(0, 1, _THRESHOLDS) ** 2 / 2
    return pooled[np.unique((np.concatenate([share, 1 - share]) * (len(pooled) - 1)).astype(int))]


def _counts(scores: Array, thresholds: Array) -> Array:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


def _epsilons(x: Array, y: Array, thresholds: Array, significance: float) -> dict[str, Array]:
    """Return the bound on ε at each threshold, by direction."""
    above, trials = {"x": _counts(x, thresholds), "y": _counts(y, thresholds)}, {"x": len(x), "y": len(y)}
    bounds = {}
    for name, other in (("x", "y"), ("y", "x")):
        for sign in ("≥", "<"):
            event = {k: above[k] if sign == "≥" else trials[k] - above[k] for k in above}
            low, _ = _clopper_pearson(event[name], trials[name], significance)
            _, high = _clopper_pearson(event[other], trials[other], significance)
            with np.errstate(divide="ignore"):
                bounds[f"{name}{sign}"] = np.maximum(np.log(low) - np.log(high), 0.0)
    return bounds


def _advantage(x: Array, y: Array, at: Array, significance: float) -> float:
    """Return a lower bound of |P(score ≥ at) − Q(score ≥ at)|; each sign has its own two tail bounds."""
    x_low, x_high = _clopper_pearson(_counts(x, at), len(x), significance / 2)
    y_low, y_high = _clopper_pearson(_counts(y, at), len(y), significance / 2)
    return float(max(x_low[0] - y_high[0], y_low[0] - x_high[0], 0.0))


# Declared laws -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeclaredPair:
    """The declared laws of one pair of inputs ``x`` and ``x_prime`` (n,).

    Attributes:
        worst_case: the largest privacy loss, ε times the distance; infinite for Gaussian noise.
        score: (N, n) outputs → (N,) log p(y | x) − log p(y | x′).
        tail: t → P(score > t) for outputs of x.
        length: outputs, input → (N,) length of the noise in the mechanism's norm.
        normal_score: lengths → (N,) their quantiles as standard normal numbers.
    """

    x: Array
    x_prime: Array
    worst_case: float
    score: Callable[[Array], Array]
    tail: Callable[[float], float]
    length: Callable[[Array, Array], Array]
    normal_score: Callable[[Array], Array]

    @property
    def total_variation(self) -> float:
        """The largest advantage of any attacker: P(score > 0) − P′(score > 0), the latter 1 − tail(0)."""
        return max(0.0, 2 * self.tail(0.0) - 1)


def declared_laplace(x: Array, x_prime: Array, *, epsilon: float, covariance: Array | None = None) -> DeclaredPair:
    """Return the laws of y = x + z, z with density ∝ exp(−ε‖z‖_Σ), n ≥ 2."""
    n, white = len(x), _whitener(covariance)
    rho = float(np.linalg.norm(white((x.astype(np.float64) - x_prime)[None])))

    def length(Y: Array, centre: Array) -> Array:
        return np.asarray(np.linalg.norm(white(Y - centre), axis=1))

    # The radius is Gamma(n, 1/ε); equal quantiles make the integral over it one over [0, 1].
    nodes, weights = np.polynomial.legendre.leggauss(400)
    radii, shares = special.gammaincinv(n, (nodes + 1) / 2) / epsilon, weights / 2

    def tail(t: float) -> float:
        tau = t / epsilon
        if not -rho < tau < rho:  # ‖z + d‖ − ‖z‖ is between −ρ and ρ
            return float(tau <= -rho)
        cosines = ((radii + tau) ** 2 - radii**2 - rho**2) / (2 * radii * rho)
        # a negative bound on ‖z + d‖ always holds
        return float(shares @ np.where(radii + tau < 0, 1.0, _cosine_above(cosines, n)))

    return DeclaredPair(
        x,
        x_prime,
        worst_case=epsilon * rho,
        tail=tail,
        length=length,
        score=lambda Y: epsilon * (length(Y, x_prime) - length(Y, x)),
        normal_score=lambda r: _normal(special.gammainc(n, epsilon * r), special.gammaincc(n, epsilon * r)),
    )


def declared_gaussian(x: Array, x_prime: Array, *, sigma: float, covariance: Array | None = None) -> DeclaredPair:
    """Return the laws of y = x + σ N(0, Σ)."""
    n, white = len(x), _whitener(covariance)
    mu = float(np.linalg.norm(white((x - x_prime)[None]))) / sigma

    def length(Y: Array, centre: Array) -> Array:
        return np.asarray(np.linalg.norm(white(Y - centre), axis=1)) / sigma

    return DeclaredPair(
        x,
        x_prime,
        worst_case=math.inf,
        length=length,
        score=lambda Y: (length(Y, x_prime) ** 2 - length(Y, x) ** 2) / 2,
        tail=lambda t: float(special.ndtr(mu / 2 - t / mu)),
        normal_score=lambda r: _normal(special.gammainc(n / 2, r**2 / 2), special.gammaincc(n / 2, r**2 / 2)),
    )


def declared_purkayastha(x: Array, x_prime: Array, *, epsilon: float) -> DeclaredPair:
    """Return the laws of y on the unit sphere with density ∝ exp(−ε arccos(xᵀy)), n ≥ 3, ε per radian."""
    n = len(x)
    phi = float(_angle((x / np.linalg.norm(x))[None], x_prime)[0])
    # The law of the angle on midpoints, first over [0, π], then over its effective support.
    grid = (np.arange(_ANGLES) + 0.5) * (np.pi / _ANGLES)
    log_density = -epsilon * grid + (n - 2) * np.log(np.sin(grid))
    alive = np.flatnonzero(log_density > log_density.max() - 80)  # e⁻⁸⁰ of the peak is below rounding
    low, high = grid[alive[0]] - np.pi / _ANGLES / 2, grid[alive[-1]] + np.pi / _ANGLES / 2
    grid = low + (np.arange(_ANGLES) + 0.5) * ((high - low) / _ANGLES)
    log_density = -epsilon * grid + (n - 2) * np.log(np.sin(grid))
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    edges = np.linspace(low, high, _ANGLES + 1)
    # both tails summed from their own end: 1 − below would lose a small upper tail
    below = np.concatenate([[0.0], np.cumsum(weights)])
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])

    def tail(t: float) -> float:
        tau = t / epsilon
        if not -phi < tau < phi:
            return float(tau <= -phi)
        # θ′ > θ + τ by the spherical law of cosines: cos θ′ = cos θ cos φ + c·sin θ sin φ.
        cosines = (np.cos(grid + tau) - np.cos(grid) * np.cos(phi)) / (np.sin(grid) * np.sin(phi))
        further = 1 - _cosine_above(cosines, n - 1)  # cos θ′ < cos(θ + τ)
        further = np.where(grid + tau >= np.pi, 0.0, np.where(grid + tau <= 0, 1.0, further))
        return float(weights @ further)

    return DeclaredPair(
        x,
        x_prime,
        worst_case=epsilon * phi,
        tail=tail,
        length=_angle,
        score=lambda Y: epsilon * (_angle(Y, x_prime) - _angle(Y, x)),
        normal_score=lambda a: _normal(np.interp(a, edges, below), np.interp(a, edges, above)),
    )


def _whitener(covariance: Array | None) -> Callable[[Array], Array]:
    """Return the map of rows v to rows whose Euclidean norm is ‖v‖_Σ."""
    if covariance is None:
        return lambda V: V
    root = np.linalg.cholesky(covariance)
    return lambda V: np.asarray(solve_triangular(root, V.T, lower=True).T)


def _angle(Y: Array, centre: Array) -> Array:
    """Return the angles between unit vectors, also small ones accurately: from the chord, not the cosine."""
    half = np.linalg.norm(Y - centre, axis=1) / 2
    return np.asarray(2 * np.arcsin(np.minimum(half, 1.0)))


def _cosine_above(cosine: Any, n: int) -> Any:
    """Return P(c > cosine) for the first coordinate c of a uniform point on the sphere of R^n."""
    half = np.clip((1 - cosine) / 2, 0.0, 1.0)
    return special.betainc((n - 1) / 2, (n - 1) / 2, half)


def _normal(below: Any, above: Any) -> Any:
    """Return Φ⁻¹ of a probability from both its tails, clipped to ±38, where float64 ends."""
    with np.errstate(divide="ignore"):
        score = np.where(below < 0.5, special.ndtri(below), -special.ndtri(above))
    return np.clip(score, -38.0, 38.0)


# The tests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MechanismAudit:
    """The bound that the likelihood-ratio attack proves, and the names of the tests that failed."""

    lower_bound: LowerBound
    failed: frozenset[str]


def audit_mechanism(release: Any, declared: DeclaredPair, *, samples: int, confidence: float) -> MechanismAudit:
    """Test whether ``release``, (X, generator) → Y, behaves on x and x′ as declared.

    Five tests share the allowed chance of a false rejection:

    - *worst case*: the proved lower bound on ε is at most the declared ε times the distance;
    - *advantage*: the proved advantage is at most the declared total variation;
    - *privacy loss*: at five thresholds the shares of outputs with a larger log-likelihood ratio are the
      declared ones (exact binomial, both sides: too little noise and too much);
    - *noise*: the length of the noise has the declared law (mean and variance of the normal scores);
    - *ties*: lengths do not repeat, within and between the two inputs.
    """
    rng = resolve_generator(0, owner="audit_mechanism")
    scores, lengths, dtype = _draw(release, samples, declared, rng)
    share = (1 - confidence) / _CHECKS  # Bonferroni over the five tests
    # it serves two tests: worst case and advantage
    bound = epsilon_lower_bound(*scores, confidence=1 - 2 * share)
    passed = {
        "worst case": bound.epsilon <= declared.worst_case,
        "advantage": bound.advantage <= declared.total_variation,
        "privacy loss": _has_the_loss(scores, declared, share),
        "noise": _has_the_length(lengths, declared, share),
        "ties": _repeats_no_more_than_chance(lengths, declared, share, dtype),
    }
    return MechanismAudit(bound, frozenset(name for name, held in passed.items() if not held))


def _draw(release: Any, N: int, declared: DeclaredPair, rng: Any) -> tuple[Array, Array, Any]:
    """Return scores and lengths (2, N) of the releases, and their dtype."""
    scores, lengths = np.empty((2, N)), np.empty((2, N))
    for side, given in enumerate((declared.x, declared.x_prime)):
        centre = given.astype(np.float64)
        for start in range(0, N, _BLOCK):
            part = slice(start, min(start + _BLOCK, N))
            X = np.tile(given, (part.stop - start, 1))
            Y = release(X, rng)
            # Lengths in float64 even for float32 outputs: rounding must not create ties.
            wide = Y.astype(np.float64)
            scores[side, part] = declared.score(wide)
            lengths[side, part] = declared.length(wide, centre)
    return scores, lengths, Y.dtype


def _has_the_loss(scores: Array, declared: DeclaredPair, significance: float) -> bool:
    """Test the shares of scores above five thresholds against the declared law."""
    # Thresholds where both laws have mass: within the μ of Gaussian DP of equal total variation.
    mu = 2 * float(special.ndtri(min((1 + declared.total_variation) / 2, 1 - 1e-9)))
    worst = 1.0
    for t in min(mu, 0.9 * declared.worst_case) * _REACH:
        # Under x′ the score is the negative: P′(score > t) = 1 − tail(−t).
        for row, law in zip(scores, (declared.tail(t), 1 - declared.tail(-t)), strict=True):
            above = int((row > t).sum())
            worst = min(worst, _two_sided(stats.binom(len(row), min(max(law, 0.0), 1.0)), above))
    return worst >= significance / (2 * len(_REACH))  # two inputs at each threshold


def _has_the_length(lengths: Array, declared: DeclaredPair, significance: float) -> bool:
    scores = declared.normal_score(lengths.ravel())
    M = len(scores)
    # About 0, not about the mean: mean and mean square then have exact null laws.
    p_mean = 2 * float(special.ndtr(-abs(float(scores.mean())) * math.sqrt(M)))
    p = min(p_mean, _two_sided(stats.chi2(M), float((scores**2).mean()) * M))
    return p >= significance / 2  # two tests


def _repeats_no_more_than_chance(lengths: Array, declared: DeclaredPair, significance: float, dtype: Any) -> bool:
    """Count lengths that agree, against the number that any log-concave law allows.

    A float32 radius takes one of a few million values, so some of thousands of releases agree to all digits; a
    float64 radius agrees once in a billion pairs. A generator that is seeded anew for each call repeats its values.
    Of M lengths with a log-concave density f, two agree within a gap g with probability at most 2g·max f ≤ 2g/sd,
    so at most M²g/sd pairs are expected, nearly Poisson.
    """
    ordered = np.sort(lengths, axis=None)
    middle, spread = float(np.median(ordered)), float(ordered.std())
    # y − x loses the digits that the larger input takes.
    offset = float(max(np.linalg.norm(declared.x), np.linalg.norm(declared.x_prime)))
    gap = _RESOLUTION[dtype] * (1 + offset / middle if middle > 0 else 1.0) * middle
    observed, allowed = int((np.diff(ordered) <= gap).sum()), 0
    if spread > gap:  # else all lengths are alike: any tie is one too many
        allowed = int(stats.poisson.isf(significance, len(ordered) ** 2 * gap / spread))
    return observed <= allowed


def _two_sided(law: Any, value: float) -> float:
    """Return the p-value of ``value``; for a discrete law the tails include it."""
    below = float(law.cdf(value))
    at_or_above = float(law.sf(value) + (law.pmf(value) if hasattr(law.dist, "pmf") else 0.0))
    return min(1.0, 2 * min(below, at_or_above))
