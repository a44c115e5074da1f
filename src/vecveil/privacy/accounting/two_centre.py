"""Privacy losses of distance-based noise: elliptical Laplace and Purkayastha.

If the density of the output y is ∝ exp(−ε d(x, y)), then the privacy loss is L = ε(d(x', y) − d(x, y)), between −r and
r with r = ε d(x, x'). With the sum and the difference of the two distances as coordinates (prolate spheroidal ones) the
volume elements of Euclidean space and of the sphere are sums of products, so the loss has a density in closed form up
to a constant:

    f(l) ∝ e^(l/2) w(l), w even.

One integral over l remains. It is done in x with l = r tanh x, where the density is smooth on the whole line and every
tail is summed at its own scale.

μ of Gaussian DP follows from the total variation alone. Choose μ so that N(0, 1) and N(μ, 1) have the same total
variation; theirs is w₀(l) ∝ exp(−l²/(2μ²)). The difference of the two privacy profiles is e^(ε/2) E(ε) with E'' = E/4 +
w − w₀, and E(0) = E'(0) = 0 (equal total variation, equal mass). Suppose log w is concave in l². Then w − w₀ is
negative, positive, negative on l ≥ 0. On the first stretch E and E' fall from 0; on the last, E = ∫ 2 sinh((l − ε)/2)(w
− w₀) dl < 0; on the middle one E'' ≥ E/4 forbids a positive maximum. So E ≤ 0: the Gaussian pair is easier to
distinguish at every ε. A constant w with atoms at ±r has the same signs. Where neither holds, the largest μ over a grid
of tests is taken.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy import special

from vecveil.errors import InvalidInputError
from vecveil.privacy.accounting.privacy_loss import Array, PrivacyLoss, log_integral
from vecveil.validation import check_count, check_positive

_DEEP = 40  # halvings towards the threshold, where 1 − e^(ε − L) has a much shorter scale
_ROUNDS = 36  # bisections of log x; the remaining error is second order, see _trade_off


def log_cosh(x: Array) -> Array:
    """Return log cosh x for x ≥ 0, without overflow."""
    return np.asarray(x + np.log1p(np.exp(-2 * x)) - math.log(2))


def log_symmetric_integral(reach: float, log_even: Callable[[Array], Array]) -> float:
    """Return log of ∫ e^((l − reach)/2) w dx over the whole line, w = e^log_even, l = reach·tanh x."""

    def both_sides(x: Array, _rows: Array) -> Array:
        # Both signs of l in one integrand: e^(l/2) + e^(−l/2), relative to e^(r/2).
        return log_even(x) - _shortfall(x, reach) / 2 + np.log1p(np.exp(-reach * np.tanh(x)))

    return float(log_integral(both_sides, np.array([_furthest(reach)]))[0])


def check_reach(epsilon: float, distance: float, *, owner: str, param: str) -> float:
    """Return r = epsilon·distance, at least 1e-290, which keeps guarantees true; raise if it overflows."""
    reach = epsilon * distance
    if not math.isfinite(reach):
        raise InvalidInputError(f"{owner}: epsilon times `{param}` overflows.", param=param)
    return max(reach, 1e-290) if distance > 0 else 0.0


class TwoCentreLoss(PrivacyLoss):
    """A privacy loss with density ∝ e^(l/2)·(an even function) between −r and r, and atoms at ±r."""

    @abstractmethod
    def _log_even(self, x: Array) -> Array:
        """Return the log of the even part of the density in x ≥ 0, up to a constant."""

    @property
    def _log_atom(self) -> float:
        """Log of the mass at r, in units in which the density is e^((l − r)/2)·(the even part)."""
        return -math.inf

    @property
    @abstractmethod
    def _gaussian_from_total_variation(self) -> bool:
        """True if log w is concave in l², or w constant: then the module's proof holds."""

    @property
    def gaussian_mu(self) -> float:
        """The smallest μ for which this pair is μ-GDP, rounded up by a relative 1e-12."""
        if self.worst_case == 0:
            return 0.0
        advantage = self.total_variation
        # μ from TV = 2Φ(μ/2) − 1; near 1 from its complement P(L < 0) = Φ(−μ/2), which keeps its digits.
        if advantage < 0.5:
            mu = 2 * math.sqrt(2) * float(special.erfinv(advantage))
        else:
            mu = -2 * float(special.ndtri_exp(self._log_below(np.zeros(1))[0]))
        if not self._gaussian_from_total_variation:
            # No proof: μ = max over the tests L < l of Φ⁻¹(1 − α) − Φ⁻¹(β) (Dong, Roth & Su 2022, Eq. 6).
            x = np.geomspace(1e-6, _furthest(self.worst_case), 400)
            # Φ⁻¹(P(L < l)) from the smaller of the two tails: in the larger one rounding decides.
            below, above = self._log_below(x), self._log_above(x)
            upper = np.where(above < below, special.ndtri_exp(above), -special.ndtri_exp(below))
            mu = max(mu, float(np.nanmax(upper - special.ndtri_exp(self._log_below(-x)))))
        return mu * (1 + 1e-12)

    @cached_property
    def _log_total(self) -> float:
        atoms = self._log_atom + math.log1p(math.exp(-self.worst_case))
        return float(np.logaddexp(log_symmetric_integral(self.worst_case, self._log_even), atoms))

    def _log_density(self, x: Array) -> Array:
        """Return the log of the density in x ≥ 0 under P, in the units of `_log_atom`."""
        return np.asarray(self._log_even(x) - _shortfall(x, self.worst_case) / 2)

    def _log_delta(self, epsilon: Array) -> Array:
        reach = self.worst_case
        result = np.full(epsilon.shape, -math.inf)
        # Only l > ε contributes to (1 − e^(ε − l))₊; ε = r tanh x₀ with x₀ = artanh(ε/r).
        inside = epsilon < reach
        e = epsilon[inside]
        start = 0.5 * np.log1p(2 * (e / (reach - e)))
        # l − ε = r (tanh(x₀ + t) − tanh x₀), written so that nothing cancels
        scale = 2 * reach * np.exp(-2 * start) / (1 + np.exp(-2 * start))

        def excess(t: Array, rows: Array) -> Array:
            x = start[rows, None] + t
            beyond = scale[rows, None] * -np.expm1(-2 * t) / (1 + np.exp(-2 * x))
            with np.errstate(divide="ignore"):
                return np.asarray(self._log_density(x) + np.log(-np.expm1(-beyond)))

        if e.size:
            total = log_integral(excess, np.full(e.shape, _furthest(reach)), levels=_DEEP)
            if self._log_atom > -math.inf:
                total = np.logaddexp(total, self._log_atom + np.log(-np.expm1(e - reach)))
            result[inside] = total - self._log_total
        return result

    def _log_above(self, x: Array) -> Array:
        """Return log P(L > r tanh x) for x ≥ 0, shape (N,)."""

        def tail(t: Array, rows: Array) -> Array:
            return self._log_density(x[rows, None] + t)

        total = log_integral(tail, np.full(x.shape, _furthest(self.worst_case)))
        return np.asarray(np.logaddexp(total, self._log_atom) - self._log_total)

    def _log_below(self, x: Array) -> Array:
        """Return log P(L < r tanh x) for x of either sign, shape (N,)."""
        reach = self.worst_case
        start, positive = np.maximum(-x, 0.0), np.flatnonzero(x > 0)

        def mirrored(t: Array, rows: Array) -> Array:
            y = start[rows, None] + t
            # By symmetry f(−l) = e^(−l) f(l): the negative half needs no second density.
            return np.asarray(self._log_even(y) - reach * np.tanh(y) / 2)

        def body(t: Array, rows: Array) -> Array:
            return self._log_density(np.maximum(x[positive[rows], None] - t, 0.0))

        total = log_integral(mirrored, np.full(x.shape, _furthest(reach))) - reach / 2
        total = np.logaddexp(total, self._log_atom - reach)
        if positive.size:
            body_too = log_integral(body, x[positive])
            total[positive] = np.logaddexp(total[positive], body_too)
        return np.asarray(total - self._log_total)

    def _trade_off(self, alpha: Array) -> Array:
        """Return β(α). The tests L < −l have errors α = P(L < −l), β = P(L < l), by symmetry.

        The curve's tangent at that point has the slope −e^l, and a convex curve lies above it: the search error is of
        second order, and the result never exceeds the true β.
        """
        reach = self.worst_case
        if reach == 0:
            return 1 - alpha
        # An atom draws a straight line from the end of the curve to its corner.
        mass = math.exp(self._log_atom - self._log_total)
        with np.errstate(over="ignore", invalid="ignore"):
            # The slope e^r is capped where float64 overflows.
            first = 1 - np.where(alpha > 0, np.exp(np.minimum(reach, 700.0)) * alpha, 0.0)
        result = np.asarray(np.maximum(math.exp(-reach) * (1 - alpha), np.maximum(first, 0.0)))
        # `middle` lies between the two straight ends; each branch solves for l on its side of 0.
        middle = (alpha > mass * math.exp(-reach)) & (1 - alpha > mass)
        log_alpha = np.log(np.maximum(alpha, 1e-323))
        left = middle & (log_alpha <= self._log_below(np.zeros(1))[0])
        upper = middle & ~left & (alpha > 0.5)  # there 1 − α has the digits, not α
        right = middle & ~left & ~upper
        if left.any():
            x = self._solve(lambda x: self._log_below(-x), log_alpha[left])
            missing = _log_minus(log_alpha[left], self._log_below(-x))
            # tangent step: the bisection leaves α a little off, slope × (α − α(x)) corrects β
            result[left] = np.exp(self._log_below(x)) - missing(reach * np.tanh(x))
        if right.any():
            x = self._solve(lambda x: -self._log_below(x), -log_alpha[right])
            missing = _log_minus(log_alpha[right], self._log_below(x))
            result[right] = np.exp(self._log_below(-x)) - missing(-reach * np.tanh(x))
        if upper.any():
            log_power = np.log1p(-alpha[upper])
            x = self._solve(self._log_above, log_power)
            missing = _log_minus(log_power, self._log_above(x))
            result[upper] = np.exp(self._log_below(-x)) + missing(-reach * np.tanh(x))
        return result

    def _solve(self, decreasing: Callable[[Array], Array], target: Array) -> Array:
        """Return x ≥ 0 at which a decreasing function of x has the value ``target``, by bisection."""
        low = np.full(target.shape, -700.0)
        high = np.full(target.shape, math.log(_furthest(self.worst_case) + 750))  # e^(−750) is 0
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            above = decreasing(np.exp(middle)) > target
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.asarray(np.exp((low + high) / 2))


def _log_minus(log_a: Array, log_b: Array) -> Callable[[Array], Array]:
    """Return the function l ↦ e^l (a − b) for a near b, from their logarithms."""
    return lambda slope: np.asarray(np.exp(slope + log_b) * np.expm1(log_a - log_b))


def _shortfall(x: Array, reach: float) -> Array:
    """Return reach·(1 − tanh x) for x ≥ 0, without cancellation."""
    decay = np.exp(-2 * x)
    return np.asarray(2 * (reach * decay) / (1 + decay))


def _furthest(reach: float) -> float:
    """Return an x beyond which a density that falls like e^(−x) or faster is negligible."""
    return 60.0 + 0.5 * math.log1p(reach)


class LaplacePrivacyLoss(TwoCentreLoss):
    """The exact privacy loss of noise with density ∝ exp(−ε‖z‖), for one pair of inputs. Immutable.

    In n dimensions, for inputs at distance ρ, L = ε(‖z + d‖ − ‖z‖), ‖d‖ = ρ. With ξ = (‖z + d‖ + ‖z‖)/ρ and η = (‖z +
    d‖ − ‖z‖)/ρ the volume element is proportional to

        (ξ² − η²) [(ξ² − 1)(1 − η²)]^((n−3)/2) dξ dη,   ξ² − η² = (ξ² − 1) + (1 − η²),

    and exp(−ε‖z‖) = exp(−a(ξ − η)), a = ερ/2. The integrals over ξ ≥ 1 are modified Bessel functions (DLMF 10.32.8), so
    that with ν = n/2 − 1 the density of L = ερη is, up to a constant,

        e^(aη) (1 − η²)^((n−3)/2) [κ + 1 − η²],   κ = (n − 1) K_{ν+1}(a) / (a K_ν(a)).

    For n = 1 it is constant times e^(aη), with half of the mass at η = 1. Logarithms of 1 − η² and of κ + 1 − η² are
    concave in η², so for n = 1 and n ≥ 3 μ-GDP follows from the total variation alone.

    δ keeps 12 digits however small it is, for n ≤ 4096 and losses below 1e6; beyond that its absolute error stays below
    1e-9.

    Args:
        n: dimension of the noise, ≥ 1.
        epsilon: ε > 0, per unit of the mechanism's norm.
        distance: ρ ≥ 0 in that norm (Mahalanobis distance of the noise shape). For a release T(x + z) with a kernel,
            the quotient distance gives an upper bound (`exact` refers to x + z).
    """

    _PARAMETERS = ("n", "epsilon", "distance")

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
        # κ from the class's formula; the ratio of Bessel functions never overflows, K alone would.
        return math.log(self._n - 1) - math.log(a) - math.log(_bessel_ratio(self._n, a))

    def _log_even(self, x: Array) -> Array:
        # 1 − η² = 1/cosh² x, and dη = dx/cosh² x
        # κ + 1 − η²; for n = 1 a constant in η, normalised so that with the atom the mass is 1
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


def _bessel_ratio(n: int, a: float) -> float:
    """Return K_ν(a)/K_{ν+1}(a) for ν = n/2 − 1, n ≥ 2, by the stable upward recurrence (DLMF 10.29.1)."""
    order = n / 2 - 1 - (n - 1) // 2  # 0 for an even n, −1/2 for an odd one
    if order < 0:
        ratio = 1.0  # K_{−1/2} = K_{1/2}
    elif a > 1e8:  # beyond the range of kve: the asymptotic series (DLMF 10.40.2), two terms
        ratio = 1 - 1 / (2 * a)
    else:
        ratio = float(special.kve(0, a) / special.kve(1, a))
    for _ in range((n - 1) // 2):
        order += 1
        ratio = a / (a * ratio + 2 * order)
    return ratio


class PurkayasthaPrivacyLoss(TwoCentreLoss):
    """The exact privacy loss of the density ∝ exp(−ε·angle) on the sphere, for one pair of inputs. Immutable.

    x, y on the unit sphere of n ≥ 2 dimensions, the density of y ∝ exp(−ε θ), θ = arccos(xᵀy), ε > 0 per radian; two
    inputs at the angle ψ in [0, π]: the loss is L = ε(θ' − θ). The uniform measure over the pair (θ, θ') is
    proportional to sin θ sin θ' G^((n−4)/2) dθ dθ', G the Gram determinant of x, x', y. With u = (θ + θ')/2, v = (θ' −
    θ)/2 and b = sin(ψ/2) both factors separate:

        G = 4 (sin² u − b²)(b² − sin² v),   sin θ sin θ' = (sin² u − b²) + (b² − sin² v),

    with u between ψ/2 and π − ψ/2. So the density of L = 2εv is, up to a constant,

        e^(εv) g^((n−4)/2) [κ + g],   g = b² − sin² v = sin(ψ/2 − v) sin(ψ/2 + v),

    κ the ratio of ∫ e^(−εu) (sin² u − b²)^p du for p = n/2 − 1 to that for p = n/2 − 2. With v' = u − π/2 these are
    integrals of the same form, of half width (π − ψ)/2. For n = 2 (a circle) the density is e^(εv) times a constant,
    with atoms at ±εψ.

    log g is concave in v²: by the product for the sine it is log(ψ²/4 − v²) plus a sum of log(c² − v²); and κ + g =
    sin² H − sin² v for some H ≥ ψ/2. So for n = 2 and n ≥ 4 μ-GDP follows from the total variation.

    The absolute error of δ is below 1e-10.
    """

    _PARAMETERS = ("n", "epsilon", "angle")

    def __init__(self, n: int, epsilon: float, angle: float) -> None:
        owner = "PurkayasthaPrivacyLoss"
        self._n = check_count(n, owner=owner, param="n", minimum=2)
        self._epsilon = check_positive(epsilon, owner=owner, param="epsilon")
        self._angle = check_positive(angle, owner=owner, param="angle", allow_zero=True)
        if self._angle > math.pi:
            raise InvalidInputError("`angle` is in [0, π].", param="angle")
        self._reach = check_reach(self._epsilon, self._angle, owner=owner, param="angle")
        self._half = max(self._angle, 1e-290) / 2  # smaller ones would underflow in products

    @property
    def worst_case(self) -> float:
        """ε·ψ: the loss never exceeds it."""
        return self._reach

    @cached_property
    def _log_kappa(self) -> float:
        half = (math.pi - self._angle) / 2
        if half <= 0:
            return -math.inf  # opposite inputs: u is fixed at π/2, the term with κ vanishes
        return _log_power_integral(self._epsilon, half, self._n / 2 - 1) - _log_power_integral(
            self._epsilon, half, self._n / 2 - 2
        )

    def _log_even(self, x: Array) -> Array:
        if self._n == 2:
            # circle: 1 + e^(−ε(π − ψ)) counts both arcs between the inputs
            opposite = math.exp(-self._epsilon * (math.pi - self._angle))
            return math.log(self._reach / 2) + math.log1p(opposite) - 2 * log_cosh(x)
        gap = _log_gap(x, self._half)
        tilt = np.logaddexp(self._log_kappa, gap)
        return np.asarray((self._n / 2 - 2) * gap + tilt - 2 * log_cosh(x))

    @property
    def _log_atom(self) -> float:
        # On the circle the arc beyond either input has the constant loss ±εψ: an atom.
        away = -math.expm1(-self._epsilon * (math.pi - self._angle))
        return math.log(away) if self._n == 2 and away > 0 else -math.inf

    @property
    def _gaussian_from_total_variation(self) -> bool:
        return self._n != 3


def _log_gap(x: Array, half: float) -> Array:
    """Return log of sin² half − sin² v at v = half·tanh x, x ≥ 0."""
    # sin²h − sin²v = sin(h − v) sin(h + v); log(h − v) is expanded, since h − v underflows.
    decay = np.exp(-2 * x)
    near, far = 2 * half * decay / (1 + decay), 2 * half / (1 + decay)
    log_near = math.log(2 * half) - 2 * x - np.log1p(decay)
    return np.asarray(log_near + np.log(np.sinc(near / math.pi) * np.sin(far)))


def _log_power_integral(epsilon: float, half: float, power: float) -> float:
    """Return log of ∫ e^(ε(v − half)) (sin² half − sin² v)^power dv / half over [−half, half]."""

    def log_even(x: Array) -> Array:
        return np.asarray(power * _log_gap(x, half) - 2 * log_cosh(x))

    return log_symmetric_integral(2 * epsilon * half, log_even)
