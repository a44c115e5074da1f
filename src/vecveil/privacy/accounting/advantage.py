"""Total variation, the largest advantage of any attacker, and the noise for a given advantage or mean cosine.

The total variation is the largest advantage of an attacker who distinguishes two inputs by one release. Over the pairs
D+ and D− it bounds what one release reveals about the concept, whatever the attacker knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from vecveil.errors import CalibrationError, InvalidInputError
from vecveil.privacy.accounting.guarantee import WEAK_EPSILON
from vecveil.privacy.accounting.privacy_loss import Array, log_integral
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss
from vecveil.types import Vector
from vecveil.validation import check_count, check_numbers, check_positive, check_probability

_SPACING = 0.03  # of the interpolation grid, in the logarithm of the distance
_LINEAR = 1e-9  # where the worst-case loss is below this, the total variation is proportional to it
_FEW = 150  # grid points besides those that the range of distances needs


def over_many_pairs(total_variation: Callable[[Array], Array], distances: Array, *, epsilon: float) -> Array:
    """Return ``total_variation`` at all distances (N,), evaluated at a few hundred of them.

    A cubic spline in log distance interpolates log(1 − TV)/distance, with an error of TV below 1e-8; few distances are
    exact. The loss must be at most ``epsilon`` times the distance.
    """
    result = np.zeros(distances.shape)
    apart = distances > 0
    inside = np.maximum(distances[apart], min(_LINEAR / epsilon, 1e300))
    distinct, where = np.unique(inside, return_inverse=True)
    if not distinct.size:
        return result
    nodes = _FEW + math.ceil((math.log(distinct[-1]) - math.log(distinct[0])) / _SPACING)
    if distinct.size <= nodes:
        values = total_variation(distinct)
    else:
        from scipy import interpolate  # slow to import, and not needed to protect

        # The end points are set exactly: geomspace rounds, and the spline must not extrapolate.
        grid = np.geomspace(distinct[0], distinct[-1], nodes)
        grid[0], grid[-1] = distinct[0], distinct[-1]
        rates = -np.log1p(-np.minimum(total_variation(grid), 1 - 1e-16)) / grid
        values = -np.expm1(-interpolate.CubicSpline(np.log(grid), rates)(np.log(distinct)) * distinct)
    # Distances below the linear limit were evaluated at it; their TV shrinks in proportion.
    result[apart] = values[where] * np.minimum(distances[apart] / inside, 1.0)
    return np.asarray(np.clip(result, 0.0, 1.0))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_S = (_NODES + 1) / 2
# The map s → s³(10 − 15s + 6s²) of [0, 1] onto itself has zero slope and curvature at both ends,
# which removes the endpoint singularities of the quantile function from the quadrature.
_BENT = _S**3 * (10 - 15 * _S + 6 * _S**2)
_BENT_WEIGHTS = 15 * _S**2 * (1 - _S) ** 2 * _WEIGHTS


def check_distances(value: Any, *, owner: str, scalar: bool = False) -> Array:
    """Return ``value`` as finite distances ≥ 0, shape (N,); ``scalar`` also admits a number or N = 0."""
    distances = check_numbers(value, owner=owner, param="distances")
    if scalar:
        distances = np.atleast_1d(distances)
    empty = not distances.size and not scalar
    if distances.ndim != 1 or empty or (distances < 0).any():
        constraint = "finite and ≥ 0, " + ("a number or of shape (N,)" if scalar else "of shape (N,), N ≥ 1")
        got = "no pairs" if empty else f"shape {distances.shape} with other values"
        raise InvalidInputError(f"{owner}: `distances` are {constraint}; there are {got}.", param="distances")
    return distances


def gaussian_total_variation(distances: Vector | float, *, sigma: float) -> Vector:
    """Return the total variation 2Φ(ρ/(2σ)) − 1 at each distance ρ ≥ 0 in the noise's norm, scalar or (N,)."""
    owner = "gaussian_total_variation"
    scale = check_positive(sigma, owner=owner, param="sigma")
    rho = check_distances(distances, owner=owner, scalar=True)
    with np.errstate(over="ignore"):
        return np.asarray(special.erf(rho / scale / math.sqrt(8)))  # an infinite ratio has TV 1


def laplace_total_variation(distances: Vector | float, *, dimension: int, epsilon: float) -> Vector:
    """Return the total variation of Laplace noise at distances ρ ≥ 0 in the mechanism's norm, scalar or (N,).

    The error is below 1e-8; more than a few hundred distances are interpolated. ε > 0 is per unit of that norm.
    """
    owner = "laplace_total_variation"
    n = check_count(dimension, owner=owner, param="dimension")
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    rho = check_distances(distances, owner=owner, scalar=True)
    return over_many_pairs(lambda some: _laplace_total_variation(some, n, eps), rho, epsilon=eps)


def _laplace_total_variation(rho: Array, n: int, eps: float) -> Array:
    """Return P(|s| ≤ ρ/2) at distances ρ > 0, s = Y·(2B − 1), Y ~ Gamma(n, 1/ε), B ~ Beta((n−1)/2, (n−1)/2).

    The likelihood ratio exceeds 1 exactly where the projection s of the noise on the difference is below ρ/2.
    """
    half = eps * rho / 2
    certain = special.gammainc(n, half)
    if n == 1:
        return np.asarray(certain, dtype=np.float64)
    above = special.gammaincc(n, half)
    # radii in units of 1/ε; the quantiles of the upper tail keep their digits where it is small
    radii = special.gammainccinv(n, above[:, None] * _BENT)
    # P(|2B − 1| ≤ t) = P((2B − 1)² ≤ t²), and (2B − 1)² ~ Beta(1/2, (n − 1)/2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(radii > 0, np.minimum(half[:, None] / radii, 1.0), 1.0)
    inside = special.betainc(0.5, (n - 1) / 2, ratio**2)
    return np.asarray(np.minimum(certain + above * (inside @ _BENT_WEIGHTS), 1.0), dtype=np.float64)


_DEEP = 40  # halvings towards θ = ψ/2; see _sphere_total_variation


def purkayastha_total_variation(angles: Vector | float, *, n: int, epsilon: float) -> Vector:
    """Return the total variation at each angle ψ in [0, π] between two inputs, scalar or (N,).

    The error is below 1e-8; more than a few hundred angles are interpolated. ε > 0 is per radian, n ≥ 2.
    """
    owner = "purkayastha_total_variation"
    count = check_count(n, owner=owner, param="n", minimum=2)
    eps = check_positive(epsilon, owner=owner, param="epsilon")
    psi = np.atleast_1d(check_numbers(angles, owner=owner, param="angles"))
    if psi.ndim != 1 or not ((psi >= 0) & (psi <= math.pi * (1 + 1e-12))).all():
        raise InvalidInputError(f"{owner}: `angles` are in [0, π], a number or of shape (N,).", param="angles")
    return over_many_pairs(
        lambda some: _sphere_total_variation(np.minimum(some, math.pi), count, eps),
        psi,
        # For ε < 1 the scale of the angle itself is the shorter one: it bounds the linear range.
        epsilon=max(eps, 1.0),
    )


def _sphere_total_variation(psi: Array, n: int, epsilon: float) -> Array:
    """Return the total variation at angles ψ > 0.

    The likelihood ratio of two inputs at the angle ψ exceeds 1 on the half sphere nearer to the first. With
    h = ψ/2, y at the angle θ from x and its direction uniform around x, y lies there if cos θ sin h +
    sin θ cos h·c > 0, c a coordinate of a uniform direction in n − 1 dimensions, c² ~ Beta(1/2, n/2 − 1).
    Taking θ and π − θ together leaves one integral of a positive function:

        TV = ∫₀^{π/2} ω(θ) P(|c| ≤ tan h / tan θ) dθ / ∫₀^π e^(−εθ) sin^(n−2) θ dθ,
        ω(θ) = e^(−εθ) sin^(n−2) θ (1 − e^(−ε(π − 2θ))).
    """
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
    total = np.logaddexp(total, log_integral(lambda t, _: log_law(math.pi - t), np.array([math.pi / 2])))
    # First part, θ < h: there |c| ≤ 1 ≤ tan h / tan θ, so the event is certain.
    value = log_integral(lambda theta, _: log_difference(theta), half)
    open_ = np.flatnonzero(half < math.pi / 2)
    if n > 2 and open_.size:
        # Second part, θ > h: P(|c| ≤ …) varies on a much shorter scale near h.
        more = log_integral(lambda t, r: possible(t, open_[r]), math.pi / 2 - half[open_], levels=_DEEP)
        value[open_] = np.logaddexp(value[open_], more)
    return np.asarray(np.exp(np.minimum(value - total, 0.0)))


@dataclass(frozen=True)
class Quantiles:
    """Quantiles over pairs: 5 % of the pairs lie above ``p95``."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    largest: float

    @classmethod
    def of(cls, values: Vector) -> Quantiles:
        """Return the quantiles of ``values`` (N,), interpolated linearly."""
        return cls(*(float(q) for q in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95, 1.0])))


@dataclass(frozen=True)
class ConceptLevel:
    """Distribution over pairs of the distance that the concept causes and of the largest advantage.

    Attributes:
        distances: quantiles of the distance within a pair, in the mechanism's norm.
        advantages: quantiles of the largest advantage of any attacker: 0 is guessing, 1 is certainty; a balanced guess
            is right with probability (1 + advantage)/2.
        exact: True if an attacker attains it; False for an upper bound (a release through a map that cannot be
            inverted, counted at the quotient distance).
    """

    pairs: int
    distances: Quantiles
    advantages: Quantiles
    mean_advantage: float
    exact: bool

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        bound = "exactly" if self.exact else "at most"
        median, high = self.advantages.p50, self.advantages.p95
        if self.mean_advantage >= 0.995:
            result = "an attacker distinguishes" if self.exact else "the bound allows an attacker to distinguish"
            return (
                f"Over {self.pairs} pairs with and without the concept, {result} the two from one release: the "
                f"advantage is {bound} {self.mean_advantage:.3g} on average (0 is guessing, 1 is certainty). Rely on "
                "the audit."
            )
        return (
            f"Over {self.pairs} pairs with and without the concept, no attacker distinguishes the two from one release "
            f"with an advantage above {self.mean_advantage:.3g} on average: {bound} {median:.3g} for the median pair, "
            f"{high:.3g} at the 95 % quantile, {self.advantages.largest:.3g} for the worst pair (0 is guessing, 1 is "
            "certainty)."
        )


def concept_level(distances: Vector, *, advantage: Callable[[Vector], Vector], exact: bool = True) -> ConceptLevel:
    """Return the distribution over pairs of their distance and of the largest possible advantage.

    Args:
        distances: (N,), ≥ 0: between the inputs of each pair, in the mechanism's metric.
        advantage: total variation (N,) at the distances, such as ``laplace_total_variation`` with bound parameters.
        exact: False for quotient distances under a map that cannot be inverted.
    """
    owner = "concept_level"
    checked = check_distances(distances, owner=owner)
    values = np.asarray(advantage(checked), dtype=np.float64)
    if values.shape != checked.shape or not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError(
            f"`advantage` returns one value in [0, 1] for each distance; it gave shape {values.shape} for "
            f"{checked.shape}, or values out of range.",
            param="advantage",
        )
    return ConceptLevel(
        pairs=int(checked.size),
        distances=Quantiles.of(checked),
        advantages=Quantiles.of(values),
        mean_advantage=float(values.mean()),
        exact=bool(exact),
    )


# -- the noise for an expected cosine, or for an advantage

_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(24)
_PER_WIDTH = 4  # steps of the trapezoidal rule per width of the peak; it converges exponentially


def expected_cosine(n: int, epsilon: float) -> float:
    """Return E cos(x, x + z) for a unit vector x in n ≥ 1 dimensions and the density of z ∝ exp(−ε‖z‖), ε > 0.

    With Y = ‖z‖ ~ Gamma(n, 1/ε) and C the cosine of z and x, cos = (1 + YC)/√(1 + 2YC + Y²); the error is below 1e-9.
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
    s = (edges[:-1, None] + widths[:, None] * (_PANEL_NODES + 1) / 2).ravel()
    weights = (widths[:, None] * _PANEL_WEIGHTS / 2).ravel()
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

_NEAR = 0.1  # distance at which the exact advantage is stated in addition to the worst case

_TELLING = 0.995  # printed as 1: no bound on anything


def epsilon_meaning(n: int, epsilon: float) -> tuple[str, ...]:
    """Return warnings for an ε that is too small for utility or too large for the worst case.

    Both can hold at once: in n dimensions utility needs an ε near n, where e^ε is astronomical. The figures are for
    unit vectors and noise with density ∝ exp(−ε‖z‖); for the Purkayastha mechanism, with ε per radian, the cosine is
    nearly the same.
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


def weakness(worst: float | None, apart: float, exponent: float, advantage: float, where: str) -> list[str]:
    """Return sentences on a weak worst-case ε at the distance ``apart``, with the exact advantage there.

    ``exponent`` is ε times that distance in the mechanism's metric, ``advantage`` the largest one there.
    """
    if worst is None or worst <= WEAK_EPSILON:
        return []
    return [
        f"At a distance of {apart:.3g} {where} the bound allows a factor of e^{exponent:.3g}, which excludes little; "
        f"exactly, the largest advantage of any attacker there is {advantage:.3g}."
    ]


def epsilon_of_cosine(n: int, target_cosine: float) -> float:
    """Return the ε at which Laplace noise leaves a unit vector this mean cosine with itself, in (0, 1).

    A higher target means more utility and less privacy. Inverts `expected_cosine`, to 1e-9.
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
    """Return the ε of Laplace noise in n dimensions at which the best attacker's advantage over a pair is the target.

    A higher target or a lower quantile means a larger ε and less noise. A distance of 0 at the quantile needs no noise
    and raises `CalibrationError`.

    Args:
        distances: (N,) between the inputs of each pair, in the mechanism's norm.
        target_advantage: in (0, 1); the total variation at that distance.
        quantile: in [0, 1], the share of pairs protected at least as well; 1 is the farthest pair.
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

    σ = ρ/(2Φ⁻¹((1 + target)/2)), ρ the distance at this quantile. See `epsilon_of_advantage` for arguments and errors.
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
