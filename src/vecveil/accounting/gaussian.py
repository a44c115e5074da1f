"""The exact privacy loss of Gaussian noise, and the σ that a given (ε, δ) needs.

For two inputs at distance ρ and noise N(0, σ²I) the loss is N(μ²/2, μ²), μ = ρ/σ, so that

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)        (Balle & Wang 2018, Theorem 8)
    β(α) = Φ(Φ⁻¹(1 − α) − μ)                         (Dong, Roth & Su 2022, Equation 6)

The difference is computed through Mills' ratio M(s) = Φ(−s)/φ(s): with c = ε/μ and h = μ/2,
e^ε φ(c + h) = φ(c − h), so δ = φ(c − h)[M(c − h) − M(c + h)], which keeps the digits of a small δ.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from vecveil.accounting.privacy_loss import PrivacyLoss
from vecveil.accounting.quadrature import Array
from vecveil.errors import InvalidInputError
from vecveil.validation import check_positive, check_probability

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


class GaussianPrivacyLoss(PrivacyLoss):
    """The exact privacy loss of N(0, σ²I) noise for one pair of inputs. Immutable.

    ``sigma`` > 0 and the inputs' ``distance`` ρ ≥ 0 are in the noise's norm.
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
        """Infinite: some outputs, however rare, give the input away (0 at distance 0)."""
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
        # δ(ε) from the identity in the module's docstring, in logarithms throughout.
        return log_gaussian_delta(epsilon, np.full(epsilon.shape, self._mu))

    def _trade_off(self, alpha: Array) -> Array:
        return gaussian_trade_off(alpha, self._mu)

    def _largest_epsilon(self, delta: float) -> float:
        return largest_gaussian_epsilon(self._mu, delta)


def log_gaussian_delta(epsilon: Array, mu: Array) -> Array:
    """Return log δ(ε) of μ-GDP for ε ≥ 0 and μ ≥ 0, shape (N,) each."""
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
    s = np.where(narrow[:, None], centre[:, None] + half[:, None] * _NODES, 0.0)
    with np.errstate(divide="ignore"):
        log_narrow = _log_density(low) + np.log(half * (_mills_fall(s) @ _WEIGHTS))
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

    Exact, unlike the classical √(2 ln(1.25/δ))·Δ/ε, which is too small for ε > 1. Rounded up by a
    relative error below 1e-12. The sensitivity Δ > 0 is the largest distance of two inputs.
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
