"""Proved bounds on the joint privacy loss of several releases.

Two bounds hold at once, and every result is the better of the two:

- basic: the worst-case losses ε_i add up, so the whole is pure ε-DP with ε = Σ ε_i; its profile is
  δ(ε') = (e^ε − e^ε')/(1 + e^ε) (the trade-off function f_{ε,0} of Dong, Roth & Su 2022, Equation 5);
- Gaussian: each release is μ_i-GDP, so the whole is μ-GDP with μ = √(Σ μ_i²) (ibid., Corollary 3.3).
  This is a proof and no central limit, because every μ_i is valid for its own loss.

Neither is the exact joint loss, except the second for Gaussian noise alone. Both need independent noise
in each release and allow inputs that are chosen after seeing earlier outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy import special

from vecveil.accounting.gaussian import (
    GaussianPrivacyLoss,
    gaussian_trade_off,
    largest_gaussian_epsilon,
    log_gaussian_delta,
)
from vecveil.accounting.privacy_loss import PrivacyLoss
from vecveil.accounting.quadrature import Array
from vecveil.errors import InvalidInputError
from vecveil.validation import check_count


class ComposedPrivacyLoss(PrivacyLoss):
    """A proved bound on the joint privacy loss of several releases, made by `compose`. Immutable."""

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

    Each loss is of one release of the same two inputs, with fresh noise. ``exact`` of the result is True for
    Gaussian releases alone.
    """
    owner = "compose"
    parts = list(losses)
    count = check_count(times, owner=owner, param="times")
    if not parts or not all(isinstance(part, PrivacyLoss) for part in parts):
        raise InvalidInputError("`losses` holds one or more privacy losses, and nothing else.", param="losses")
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
    """Return the μ of pure ε-DP: that of equal total variation (the proof is in `two_centre`)."""
    if worst == math.inf:
        return math.inf
    if worst < 1:
        # tanh(ε/2) is the total variation; near 1 its complement 1/(1 + e^ε) is used in log form.
        return 2 * math.sqrt(2) * float(special.erfinv(math.tanh(worst / 2)))
    return -2 * float(special.ndtri_exp(-np.logaddexp(0.0, worst)))
