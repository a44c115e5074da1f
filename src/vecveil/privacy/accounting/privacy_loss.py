"""The privacy loss of one pair of inputs, with three equivalent views of it; Gaussian noise; several releases.

P and Q are the distributions of the output for the two inputs, L = log(dP/dQ) under P their privacy loss. All pairs
here are symmetric: a reflection of the space swaps the inputs and keeps the noise, so P and Q are interchangeable.

- The privacy profile is δ(ε) = P(S) − e^ε Q(S) at the worst event S = E[(1 − e^(ε − L))₊] (Balle & Wang 2018, Theorem
  5); δ(0) is the total variation, the largest advantage of any attacker.
- The trade-off function β(α) is the smallest type II error of a test whose type I error is at most α (Dong, Roth & Su
  2022, Definition 2.1).
- μ of Gaussian differential privacy (ibid., Definition 2.6): the pair is at least as hard to distinguish as N(0, 1) and
  N(μ, 1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from scipy import special

from vecveil.errors import InvalidInputError
from vecveil.types import Vector
from vecveil.validation import check_count, check_numbers, check_positive, check_probability

Array: TypeAlias = npt.NDArray[np.float64]

_SECTIONS = np.linspace(0.0, 1.0, 34)


class PrivacyLoss(ABC):
    """The privacy loss of one pair of inputs, or a proved bound on it (`exact` says which)."""

    exact: bool = True
    """True: the loss itself, up to rounding. False: a proved upper bound."""
    _PARAMETERS: ClassVar[tuple[str, ...]]
    """Names of the parameters in records; each is an attribute with a leading underscore."""

    @property
    @abstractmethod
    def worst_case(self) -> float:
        """The largest possible loss, pure ε-DP of this pair; infinite for Gaussian noise."""

    @property
    @abstractmethod
    def gaussian_mu(self) -> float:
        """The smallest known μ for which this pair is μ-GDP: never below the true μ."""

    @property
    def total_variation(self) -> float:
        """δ(0), the largest advantage of any attacker: 0 is indistinguishable, 1 is certainty."""
        return self.delta(epsilon=0.0)

    @overload
    def delta(self, *, epsilon: float) -> float: ...
    @overload
    def delta(self, *, epsilon: Vector) -> Vector: ...
    def delta(self, *, epsilon: float | Vector) -> float | Vector:
        """Return δ(ε), with full relative accuracy for small δ; δ(−ε) = 1 − e^(−ε) + e^(−ε) δ(ε) by symmetry."""
        eps = _numbers(epsilon, type(self).__name__, "epsilon", "finite numbers", -math.inf)
        size = np.abs(eps)
        value = np.exp(self._log_delta(size.ravel())).reshape(size.shape)
        # expm1 keeps the digits of 1 − e^(−ε) for ε near 0.
        with np.errstate(under="ignore"):
            value = np.where(eps < 0, -np.expm1(-size) + np.exp(-size) * value, value)
        return _like(np.clip(value, 0.0, 1.0), epsilon)

    def epsilon(self, *, delta: float) -> float:
        """Return the smallest ε ≥ 0 with δ(ε) ≤ delta, rounded up by at most 1e-15 of the largest candidate."""
        target = check_probability(delta, owner=type(self).__name__, param="delta")
        # δ = 0 is pure DP: no search could find the point where a positive δ vanishes.
        if target == 0:
            return self.worst_case
        level = math.log(target)
        if self._log_delta(np.zeros(1))[0] <= level:
            return 0.0
        low, high = 0.0, min(self._largest_epsilon(target), self.worst_case)
        # Section search: evaluating 32 candidates costs little more than one.
        while high - low > 1e-15 * high:
            candidates = low + (high - low) * _SECTIONS
            inner = candidates[1:-1]
            passed = np.flatnonzero(self._log_delta(inner) <= level)
            first = int(passed[0]) + 1 if passed.size else inner.size + 1
            narrowed = float(candidates[first - 1]), float(candidates[first])
            if narrowed == (low, high):  # no float64 number lies between the ends
                break
            low, high = narrowed
        return high  # the upper end satisfies δ(high) ≤ delta; the lower one may not

    @overload
    def trade_off(self, alpha: float) -> float: ...
    @overload
    def trade_off(self, alpha: Vector) -> Vector: ...
    def trade_off(self, alpha: float | Vector) -> float | Vector:
        """Return β(α), the smallest type II error at type I error α in [0, 1]."""
        a = _numbers(alpha, type(self).__name__, "alpha", "numbers between 0 and 1", 0.0, 1.0)
        return _like(np.clip(self._trade_off(a.ravel()), 0.0, 1.0).reshape(a.shape), alpha)

    def to_record(self) -> dict[str, Any]:
        """Return parameters and headline figures as JSON-ready values (infinity as None)."""
        worst = self.worst_case
        return {
            "loss": type(self).__name__,
            **self._parameters(),
            "exact": self.exact,
            "total_variation": self.total_variation,
            "gaussian_mu": self.gaussian_mu,
            "worst_case": worst if math.isfinite(worst) else None,
        }

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}={value!r}" for key, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, f"_{name}") for name in self._PARAMETERS}

    @abstractmethod
    def _log_delta(self, epsilon: Array) -> Array:
        """Return log δ(ε) for ε ≥ 0, shape (N,); −∞ where δ is 0."""

    @abstractmethod
    def _trade_off(self, alpha: Array) -> Array:
        """Return β(α), shape (N,)."""

    def _largest_epsilon(self, delta: float) -> float:
        """Return an ε with δ(ε) ≤ ``delta``, for ``delta`` > 0; the search in `epsilon` starts here."""
        return self.worst_case


def _numbers(value: Any, owner: str, param: str, allowed: str, low: float, high: float = math.inf) -> Array:
    array = check_numbers(value, owner=owner, param=param)
    bad = (array < low) | (array > high)
    if bad.any():
        text = f"{owner}: `{param}` has {int(bad.sum())} values out of range; it takes {allowed}."
        raise InvalidInputError(text, code="E-INPUT-RANGE", param=param)
    return array


def _like(result: Array, given: float | Vector) -> float | Vector:
    return float(result) if np.ndim(given) == 0 else result


# -- Gaussian noise

_FALL_NODES, _FALL_WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


class GaussianPrivacyLoss(PrivacyLoss):
    """The exact privacy loss of N(0, σ²I) noise for one pair of inputs. Immutable.

    ``sigma`` > 0 and the inputs' ``distance`` ρ ≥ 0 are in the noise's norm. The loss is N(μ²/2, μ²), μ = ρ/σ, so

        δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)        (Balle & Wang 2018, Theorem 8)
        β(α) = Φ(Φ⁻¹(1 − α) − μ)                         (Dong, Roth & Su 2022, Equation 6)
    """

    _PARAMETERS = ("sigma", "distance")

    def __init__(self, sigma: float, distance: float) -> None:
        owner = "GaussianPrivacyLoss"
        self._sigma = check_positive(sigma, owner=owner, param="sigma")
        self._distance = check_positive(distance, owner=owner, param="distance", allow_zero=True)
        self._mu = self._distance / self._sigma
        # log_gaussian_delta squares μ and ε/μ: 1e150 keeps both squares finite.
        if not self._mu < 1e150:
            raise InvalidInputError("`distance` is less than 1e150 times `sigma`.", param="distance")

    @property
    def worst_case(self) -> float:
        """Infinite (0 at distance 0): some rare outputs reveal the input."""
        return math.inf if self._mu > 0 else 0.0

    @property
    def gaussian_mu(self) -> float:
        """μ = ρ/σ, exactly."""
        return self._mu

    @property
    def total_variation(self) -> float:
        """2Φ(μ/2) − 1."""
        return math.erf(self._mu / math.sqrt(8))

    def _log_delta(self, epsilon: Array) -> Array:
        return log_gaussian_delta(epsilon, np.full(epsilon.shape, self._mu))

    def _trade_off(self, alpha: Array) -> Array:
        return gaussian_trade_off(alpha, self._mu)

    def _largest_epsilon(self, delta: float) -> float:
        return largest_gaussian_epsilon(self._mu, delta)


def log_gaussian_delta(epsilon: Array, mu: Array) -> Array:
    """Return log δ(ε) of μ-GDP for ε ≥ 0 and μ ≥ 0, shape (N,) each.

    Computed through Mills' ratio M(s) = Φ(−s)/φ(s): with c = ε/μ and h = μ/2, e^ε φ(c + h) = φ(c − h), so
    δ = φ(c − h)[M(c − h) − M(c + h)], which keeps the digits of a small δ.
    """
    result = np.full(epsilon.shape, -math.inf)
    some = (mu > 0) & (epsilon <= 1e150 * mu)  # beyond that the squares in φ overflow
    centre, half = epsilon[some] / mu[some], mu[some] / 2
    low, high = centre - half, centre + half
    narrow = half < 1
    # np.where evaluates both branches: the clamp keeps Mills' ratio of the unused one finite.
    near = np.where(low > 0, low, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # wide: where low < 0, Φ(h − c) − φ(c − h) M(c + h), since M(low) would overflow
        wide = np.where(
            low < 0, special.ndtr(-low) - np.exp(_log_density(low)) * _mills(high), _mills(near) - _mills(high)
        )
        log_wide = np.log(wide) + np.where(low < 0, 0.0, _log_density(low))
    # narrow: ∫ −M' over the interval, since the difference of two near values has no digits
    s = np.where(narrow[:, None], centre[:, None] + half[:, None] * _FALL_NODES, 0.0)
    with np.errstate(divide="ignore"):
        log_narrow = _log_density(low) + np.log(half * (_mills_fall(s) @ _FALL_WEIGHTS))
    result[some] = np.where(narrow, log_narrow, log_wide)
    return result


def gaussian_trade_off(alpha: Array, mu: float) -> Array:
    """Return β(α) = Φ(Φ⁻¹(1 − α) − μ)."""
    return np.asarray(special.ndtr(-special.ndtri(alpha) - mu))


def largest_gaussian_epsilon(mu: float, delta: float) -> float:
    """Return an ε at which μ-GDP has less than ``delta``: δ(ε) ≤ Φ(μ/2 − ε/μ) ≤ exp(−(ε/μ − μ/2)²/2)."""
    return mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) if delta < 1 else mu * mu / 2


def analytic_gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest σ for which N(0, σ²I) noise is (ε, δ)-DP (Balle & Wang 2018, Algorithm 1).

    Exact, unlike the classical √(2 ln(1.25/δ))·Δ/ε, which is too small for ε > 1; rounded up by a relative error below
    1e-12. The sensitivity Δ > 0 is the largest distance of two inputs.
    """
    owner = "analytic_gaussian_sigma"
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    target = math.log(check_probability(delta, owner=owner, param="delta", open_interval=True))
    reach = check_positive(sensitivity, owner=owner, param="sensitivity")

    def too_much(log_mu: float) -> bool:
        return bool(log_gaussian_delta(np.array([eps]), np.exp([log_mu]))[0] > target)

    # δ grows with μ from 0 to 1: it is at most the target at μ = e^low, above it at e^high.
    low, high = -1.0, 1.0
    while too_much(low):
        low *= 2
    while not too_much(high):
        high *= 2
    for _ in range(60):  # bisection in log μ; 60 halvings exhaust float64
        middle = (low + high) / 2
        low, high = (low, middle) if too_much(middle) else (middle, high)
    # The factor covers the rounding of exp: a σ that is too small would break the guarantee.
    return reach * math.exp(-low) * (1 + 1e-13)


def _log_density(s: Array) -> Array:
    return np.asarray(-s * s / 2 - _LOG_ROOT_TWO_PI)


def _mills(s: Array) -> Array:
    """Return Φ(−s)/φ(s)."""
    # erfcx is e^(x²) erfc(x): no underflow for large s, where φ and Φ are both 0.
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(s / math.sqrt(2)))


def _mills_fall(s: Array) -> Array:
    """Return −M'(s) = 1 − sM(s) > 0; for large s, where this cancels, its expansion in 1/s²."""
    inverse = 1 / np.square(np.maximum(s, 60.0))
    series = inverse * (1 - inverse * (3 - inverse * (15 - inverse * (105 - 945 * inverse))))
    return np.asarray(np.where(s > 60, series, 1 - s * _mills(np.minimum(s, 60.0))))


# -- several releases


class ComposedPrivacyLoss(PrivacyLoss):
    """A proved bound on the joint privacy loss of several releases, made by `compose`. Immutable.

    Two bounds hold at once, and every result is the better of the two:

    - basic: the worst-case losses ε_i add up, so the whole is pure ε-DP with ε = Σ ε_i; its profile is δ(ε') = (e^ε −
      e^ε')/(1 + e^ε) (the trade-off function f_{ε,0} of Dong, Roth & Su 2022, Equation 5);
    - Gaussian: each release is μ_i-GDP, so the whole is μ-GDP with μ = √(Σ μ_i²) (ibid., Corollary 3.3). This is a
      proof, not a central limit: every μ_i is valid for its own loss.

    Neither is the exact joint loss, except the second for Gaussian noise alone. Both need independent noise in each
    release and allow inputs that are chosen after seeing earlier outputs.
    """

    _PARAMETERS = ("releases",)

    def __init__(self, *, releases: int, worst_case: float, gaussian_mu: float, exact: bool) -> None:
        self._releases = releases
        self._worst = worst_case
        self._mu = gaussian_mu
        self.exact = exact

    @property
    def worst_case(self) -> float:
        """Σ ε_i, by basic composition; infinite as soon as one release is Gaussian."""
        return self._worst

    @property
    def gaussian_mu(self) -> float:
        """√(Σ μ_i²), or the μ of the basic bound where that is smaller."""
        return min(self._mu, _pure_mu(self._worst))

    def _log_delta(self, epsilon: Array) -> Array:
        # Both are upper bounds of the same δ, so the smaller one holds; for β, the larger one.
        gaussian = log_gaussian_delta(epsilon, np.full(epsilon.shape, self._mu))
        return np.asarray(np.minimum(gaussian, _log_pure_delta(epsilon, self._worst)))

    def _trade_off(self, alpha: Array) -> Array:
        pure = _pure_trade_off(alpha, self._worst)
        return np.asarray(np.maximum(gaussian_trade_off(alpha, self._mu), pure))

    def _largest_epsilon(self, delta: float) -> float:
        return largest_gaussian_epsilon(self._mu, delta)


def compose(losses: Iterable[PrivacyLoss], *, times: int = 1) -> ComposedPrivacyLoss:
    """Return a proved bound on the joint loss of all ``losses``, the whole list ``times`` times over.

    Each loss is of one release of the same two inputs, with fresh noise. ``exact`` of the result is True for Gaussian
    releases alone.
    """
    owner = "compose"
    parts = list(losses)
    count = check_count(times, owner=owner, param="times")
    if not parts or not all(isinstance(part, PrivacyLoss) for part in parts):
        raise InvalidInputError("`losses` takes one or more privacy losses, and nothing else.", param="losses")
    mu = {id(part): part.gaussian_mu for part in parts}  # a repeated object is computed once
    return ComposedPrivacyLoss(
        releases=count * sum(getattr(part, "_releases", 1) for part in parts),
        # fsum and hypot: thousands of releases add up without accumulated rounding.
        worst_case=count * math.fsum(part.worst_case for part in parts),
        gaussian_mu=math.sqrt(count) * math.hypot(*(mu[id(part)] for part in parts)),
        exact=all(_is_gaussian(part) for part in parts),
    )


def _is_gaussian(loss: PrivacyLoss) -> bool:
    composed = isinstance(loss, ComposedPrivacyLoss) and loss.exact
    return isinstance(loss, GaussianPrivacyLoss) or composed


def _log_pure_delta(epsilon: Array, worst: float) -> Array:
    """Return log δ(ε) of the worst mechanism with pure ``worst``-DP, randomised response."""
    # log(e^ε − e^ε') − log(1 + e^ε), divided by e^ε in both so that nothing overflows.
    inside = epsilon < worst
    over = np.where(inside, epsilon - worst, -1.0) if worst < math.inf else np.full(epsilon.shape, -math.inf)
    return np.where(inside, np.log(-np.expm1(over)) - math.log1p(math.exp(-worst)), -math.inf)


def _pure_trade_off(alpha: Array, worst: float) -> Array:
    # f_{ε,0}: two lines of slopes −e^ε and −e^(−ε). Beyond e⁷⁰⁰ the steep one is vertical anyway.
    steep = math.exp(min(worst, 700.0))
    lines = np.maximum(1 - steep * alpha, math.exp(-worst) * (1 - alpha))
    return np.asarray(np.maximum(lines, 0.0))


def _pure_mu(worst: float) -> float:
    """Return the μ of pure ε-DP: the μ of equal total variation (the proof is in `two_centre`)."""
    if worst == math.inf:
        return math.inf
    if worst < 1:
        # tanh(ε/2) is the total variation; near 1 its complement 1/(1 + e^ε) is used in log form.
        return 2 * math.sqrt(2) * float(special.erfinv(math.tanh(worst / 2)))
    return -2 * float(special.ndtri_exp(-np.logaddexp(0.0, worst)))


# -- integrals

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_CUT = 45.0  # e⁻⁴⁵ = 3e-20: what lies outside the support is below rounding
_SHORTEST = -700.0  # log of the shortest distance from t = 0; e⁻⁷⁰⁰ is still a normal float64
_GRID = np.linspace(0.0, 1.0, 97)
_ROWS = 128  # integrals per block: bounds the memory


def log_integral(log_integrand: Callable[[Array, Any], Array], limits: Array, *, levels: int = 12) -> Array:
    """Return log ∫₀^limit exp(log_integrand(t)) dt for many integrals; −∞ where it is zero.

    Logarithms keep the digits of a tail of probability 1e-200. Gauss–Legendre panels cover the support, where the
    integrand exceeds e⁻⁴⁵ of its peak, graded towards the near end, where a second, much shorter scale can be.

    Args:
        log_integrand: maps t (k, m) and the indices (k,) of the integrals to (k, m); rises to one mode, then falls.
        limits: (N,), > 0 and finite.
        levels: halvings towards t = 0; scales shorter than 2^-levels of the support are not resolved.
    """
    total = np.empty(limits.shape)
    for start in range(0, limits.size, _ROWS):
        rows = np.arange(start, min(start + _ROWS, limits.size))
        total[rows] = _block(lambda t, rows=rows: log_integrand(t, rows), limits[rows], levels)  # type: ignore[misc]
    return total


def _block(f: Callable[[Array], Array], limits: Array, levels: int) -> Array:
    top = np.log(limits)  # the search runs in log t: scales span hundreds of decades
    mode, peak = _mode(f, np.full(limits.size, _SHORTEST), top)
    low = _crossing(f, peak - _CUT, inside=mode, outside=np.full(limits.size, _SHORTEST))
    high = _crossing(f, peak - _CUT, inside=mode, outside=top)
    start = np.where(low <= _SHORTEST, 0.0, np.exp(low))
    edges = _edges(start, np.exp(mode), np.exp(high), levels)
    widths = np.diff(edges, axis=1)
    t = (edges[:, :-1, None] + widths[:, :, None] * (_NODES + 1) / 2).reshape(limits.size, -1)
    weights = (widths[:, :, None] * _WEIGHTS / 2).reshape(limits.size, -1)
    # The peak is nearly the highest point; only rounding of huge logarithms exceeds it.
    heights = np.exp(np.minimum(f(t) - peak[:, None], 1.0))
    with np.errstate(divide="ignore"):
        return np.asarray(peak + np.log((heights * weights).sum(axis=1)), dtype=np.float64)


def _edges(start: Array, mode: Array, end: Array, levels: int) -> Array:
    """Return the panels' edges (N, k): halving towards the start, and graded around the mode."""
    apart = mode - start > 1e-3 * (end - start)  # else the panels towards the start serve both
    half = np.where(apart, (mode - start) / 2, end - start)[:, None]
    left = np.where(apart, half[:, 0], 0.0)[:, None]
    right = np.where(apart, end - mode, 0.0)[:, None]
    # Panels of length 0 fill absent parts, so that every row has the same number.
    first = start[:, None] + half * np.concatenate([[0.0], 0.5 ** np.arange(levels, -1, -1.0)])
    near, far = np.exp2(-np.arange(1.0, 8.0)), np.append(0.0, np.exp2(np.arange(-9.0, 1.0)))
    second = first[:, -1:] + left * (1 - near)
    third = first[:, -1:] + left + right * far
    return np.concatenate([first, second, third], axis=1)


def _mode(f: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """Return log t of the mode and the log height there: a grid in log t, refined four times."""
    for _ in range(4):
        grid = low[:, None] + (high - low)[:, None] * _GRID
        heights = f(np.exp(grid))
        best = heights.argmax(axis=1)
        rows = np.arange(low.size)
        low = grid[rows, np.maximum(best - 1, 0)]
        high = grid[rows, np.minimum(best + 1, _GRID.size - 1)]
    return grid[rows, best], heights[rows, best]


def _crossing(f: Callable[[Array], Array], level: Array, *, inside: Array, outside: Array) -> Array:
    """Return log t between ``inside`` and ``outside`` where f falls below level, by bisection."""
    beyond = f(np.exp(outside)[:, None])[:, 0] < level
    near, far = inside, outside
    for _ in range(20):  # the edge needs no more: the integrand there is e⁻⁴⁵ of the peak
        middle = (near + far) / 2
        below = f(np.exp(middle)[:, None])[:, 0] < level
        near, far = np.where(below, near, middle), np.where(below, middle, far)
    return np.where(beyond, far, outside)
