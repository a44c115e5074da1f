"""The noise that a wanted figure needs: its inverse, by monotone root finding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from vecveil.accounting.laplace_loss import LaplacePrivacyLoss
from vecveil.accounting.remaining_cosine import expected_cosine
from vecveil.errors import CalibrationError, InvalidInputError, message
from vecveil.types import Vector
from vecveil.validation import check_count, check_probability

__all__ = ["epsilon_of_advantage", "epsilon_of_cosine", "sigma_of_advantage"]


def epsilon_of_cosine(n: int, target_cosine: float) -> float:
    """Return the ε at which Laplace noise leaves a unit vector this mean cosine with itself.

    A higher target means more utility and less privacy. The inverse of `expected_cosine`, to 1e-9.

    Args:
        n: dimension, ≥ 1.
        target_cosine: in (0, 1).
    """
    owner = "epsilon_of_cosine"
    count = check_count(n, owner=owner, param="n")
    target = check_probability(
        target_cosine, owner=owner, param="target_cosine", open_interval=True
    )
    guess = count * target / math.sqrt((1 - target) * (1 + target))
    root = _root(lambda s: expected_cosine(count, math.exp(s)) - target, math.log(guess))
    if root is None:
        raise _unreachable(owner, "target_cosine", target)
    return math.exp(root)


def epsilon_of_advantage(
    distances: Vector, *, n: int, target_advantage: float, quantile: float = 0.95
) -> float:
    """Return the ε of Laplace noise at which the best attacker's advantage over a pair is the target.

    The pair is the one at this quantile of the distances: that share of the pairs is protected at least
    as well. A higher target, like a lower quantile, means a larger ε: less noise.

    Args:
        distances: (N,), of the pairs' two inputs in the mechanism's norm (at ε = 1 per unit of it).
        n: dimension of the noise, ≥ 1.
        target_advantage: in (0, 1); the total variation at that distance.
        quantile: in [0, 1]; 1 is the farthest pair.

    Raises:
        CalibrationError: the distance at that quantile is 0, so no noise is needed at all.
    """
    owner = "epsilon_of_advantage"
    count = check_count(n, owner=owner, param="n")
    target = _target(target_advantage, owner)
    rho = _distance_at(distances, quantile, owner)
    # the total variation depends on ερ alone; in Gaussian terms ερ is near μ√n
    guess = math.log(2 * math.sqrt(2 * count) * float(special.erfinv(target)))
    root = _root(
        lambda s: LaplacePrivacyLoss(count, 1.0, math.exp(s)).total_variation - target, guess
    )
    if root is None:
        raise _unreachable(owner, "target_advantage", target)
    return math.exp(root) / rho


def sigma_of_advantage(
    distances: Vector, *, target_advantage: float, quantile: float = 0.95
) -> float:
    """Return the σ of Gaussian noise at which the best attacker's advantage over a pair is the target.

    σ = ρ/(2Φ⁻¹((1 + target)/2)), ρ the distance at this quantile. For arguments and errors see
    `epsilon_of_advantage`.
    """
    owner = "sigma_of_advantage"
    target = _target(target_advantage, owner)
    rho = _distance_at(distances, quantile, owner)
    return rho / (2 * math.sqrt(2) * float(special.erfinv(target)))


def _target(value: Any, owner: str) -> float:
    return check_probability(value, owner=owner, param="target_advantage", open_interval=True)


def _distance_at(distances: Vector, quantile: float, owner: str) -> float:
    share = check_probability(quantile, owner=owner, param="quantile")
    found = np.asarray(distances, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or (found < 0).any():
        raise InvalidInputError.of(owner, "distances", "finite and ≥ 0, of shape (N,), N ≥ 1",
                                   f"shape {found.shape} with other values" if found.size else "no pairs")  # fmt: skip
    rho = float(np.quantile(found, share))
    if rho == 0:
        raise CalibrationError.of(owner, "distances", f"above 0 at the quantile {share:g}", "0",
                                  "Pairs at distance 0 cannot be told apart with any noise or none.",
                                  "Raise the quantile, or check that the concept changes the vectors.")  # fmt: skip
    return rho


def _root(f: Callable[[float], float], guess: float) -> float | None:
    """Return the root of an increasing function, or None if it has none where numbers can be told apart."""
    from scipy import optimize  # slow to import, and not needed to protect

    low, high, width = guess, guess, 0.25
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
    return CalibrationError(
        message(owner, param, "far enough from 0 and 1 to be reached in floating point", target)
    )
