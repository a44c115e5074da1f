"""Lower bounds on the privacy parameter from attack scores.

If a mechanism is (ε, δ)-DP for a pair of inputs, no event may have P(E) > e^ε Q(E) + δ. Scores of an
attack, drawn under either input, make events: a score at or above a threshold, or below it. With
Clopper–Pearson bounds on both probabilities, ε ≥ log((P_low − δ) / Q_high) holds at the stated
confidence (Jagielski, Ullman & Oprea 2020). The bound says nothing about better attacks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from vecveil.errors import InvalidInputError, wrong_type
from vecveil.types import Vector
from vecveil.validation import check_count, check_probability

_THRESHOLDS = 1000  # at each end of the scores


@dataclass(frozen=True)
class LowerBound:
    """The bounds that scores prove; both hold together at the stated confidence.

    Attributes:
        epsilon_lower_bound: the pair is not (ε, δ)-DP for any smaller ε.
        advantage_low: lower bound of the pair's total variation.
        threshold: score threshold of the bound on ε.
        direction: event and sides of that bound: ``x≥`` compares the scores of x at or above the
            threshold with those of y.
        advantage_threshold: score threshold of the advantage.
        samples: number of scores of x and of y behind the bounds, without those that selected thresholds.
    """

    epsilon_lower_bound: float
    advantage_low: float
    threshold: float
    direction: str
    advantage_threshold: float
    delta: float
    confidence: float
    samples: tuple[int, int]

    def to_record(self) -> dict[str, Any]:
        """Return the bound as JSON-ready values; an infinite threshold as None."""
        finite = {k: None if v in (math.inf, -math.inf) else v for k, v in vars(self).items()}
        return finite | {"samples": list(self.samples)}


def clopper_pearson(
    successes: Any, trials: Any, *, significance: float
) -> tuple[Any, Any]:  # numbers or arrays, as given
    """Return the lower and upper bound of a binomial probability, each wrong with chance ``significance``."""
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        # Quantiles of Beta(k, n − k + 1) and Beta(k + 1, n − k): the exact tails, no normal approximation.
        low = special.betaincinv(k, n - k + 1, significance)
        high = special.betainccinv(k + 1, n - k, significance)
    return np.where(k > 0, low, 0.0)[()], np.where(k < n, high, 1.0)[()]


def epsilon_lower_bound(
    scores_x: Vector,
    scores_y: Vector,
    *,
    delta: float = 0.0,
    confidence: float = 0.999999,
    seed: int = 0,
) -> LowerBound:
    """Return the bounds on ε and on the advantage that scores of releases of x and of y prove.

    A random half of the scores selects thresholds and direction; the other half gives the bounds, so
    the selection needs no correction. Four directions are tried: scores above and below, x against y and
    y against x. A log-likelihood ratio gives the strongest bound; any score gives a valid one.

    Args:
        scores_x, scores_y: (N,) and (M,) scores of independent releases of x and of y; no NaN.
        confidence: of both bounds together. N samples cannot prove an ε beyond about
            log(N/2) − log log(4/(1 − confidence)).
        seed: of the split into halves; independent of the scores.
    """
    owner = "epsilon_lower_bound"
    x = _check_scores(scores_x, owner=owner, param="scores_x", minimum=4)
    y = _check_scores(scores_y, owner=owner, param="scores_y", minimum=4)
    delta, confidence = _checked_levels(delta, confidence, owner)
    rng = np.random.default_rng(check_count(seed, owner=owner, param="seed", minimum=0))
    significance = (1 - confidence) / 4  # two bounds, of two probabilities each

    # Selection and bound on disjoint halves: no correction for the selection.
    choose_x, bound_x = np.array_split(rng.permutation(x), 2)
    choose_y, bound_y = np.array_split(rng.permutation(y), 2)
    thresholds = _candidates(choose_x, choose_y)
    tried = _epsilons(choose_x, choose_y, thresholds, delta, significance)
    direction = max(tried, key=lambda name: float(tried[name].max()))
    threshold = thresholds[int(tried[direction].argmax())]
    advantages = _counts(choose_x, thresholds) / len(choose_x)
    advantages -= _counts(choose_y, thresholds) / len(choose_y)
    advantage_threshold = thresholds[int(np.abs(advantages).argmax())]

    # One threshold and one direction remain, so each bound is a single test.
    at = _epsilons(bound_x, bound_y, np.array([threshold]), delta, significance)
    return LowerBound(
        epsilon_lower_bound=float(at[direction][0]),
        advantage_low=_advantage(bound_x, bound_y, advantage_threshold, significance),
        threshold=float(threshold),
        direction=direction,
        advantage_threshold=float(advantage_threshold),
        delta=delta,
        confidence=confidence,
        samples=(len(bound_x), len(bound_y)),
    )


def _check_scores(value: Any, *, owner: str, param: str, minimum: int = 1) -> Vector:
    """Return ``value`` as a float64 array of shape (N,) without NaN; infinite scores are allowed."""
    try:
        scores = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise wrong_type(owner, param, "an array of numbers", value) from None
    if scores.ndim != 1 or len(scores) < minimum or np.isnan(scores).any():
        nan = ", with NaN" if np.isnan(scores).any() else ""
        raise InvalidInputError.of(owner, param, f"of shape (N,) with N ≥ {minimum} and without NaN",
                                   f"shape {scores.shape}{nan}")  # fmt: skip
    return scores


def _checked_levels(delta: float, confidence: float, owner: str) -> tuple[float, float]:
    delta = check_probability(delta, owner=owner, param="delta")
    return delta, check_probability(confidence, owner=owner, param="confidence", open_interval=True)


def _candidates(x: Vector, y: Vector) -> Any:
    """Return at most about 2,000 of the scores, densely towards both ends, where ε is large."""
    # Events change only at scores, so these are all the thresholds that differ.
    pooled = np.unique(np.concatenate([x, y]))
    if len(pooled) <= _THRESHOLDS:
        return pooled
    share = np.linspace(0, 1, _THRESHOLDS) ** 2 / 2  # dense towards both ends
    places = np.concatenate([share, 1 - share]) * (len(pooled) - 1)
    return pooled[np.unique(places.astype(int))]


def _counts(scores: Vector, thresholds: Vector) -> Any:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


def _epsilons(
    x: Vector, y: Vector, thresholds: Vector, delta: float, significance: float
) -> dict[str, Any]:
    """Return the bound on ε at each threshold, by direction."""
    above = {"x": _counts(x, thresholds), "y": _counts(y, thresholds)}
    trials = {"x": len(x), "y": len(y)}
    bounds = {}
    for name, other in (("x", "y"), ("y", "x")):
        for sign in ("≥", "<"):
            event = {k: above[k] if sign == "≥" else trials[k] - above[k] for k in above}
            low, _ = clopper_pearson(event[name], trials[name], significance=significance)
            _, high = clopper_pearson(event[other], trials[other], significance=significance)
            with np.errstate(divide="ignore"):
                bound = np.log(np.maximum(low - delta, 0.0)) - np.log(high)
            bounds[f"{name}{sign}"] = np.maximum(bound, 0.0)
    return bounds


def _advantage(x: Vector, y: Vector, threshold: float, significance: float) -> float:
    """Return a lower bound of |P(score ≥ threshold) − Q(score ≥ threshold)|.

    At most one of the two differences is positive. A false bound needs one of two tail bounds to fail on
    its side; each side has its own two.
    """
    at = np.array([threshold])
    k, m = int(_counts(x, at)[0]), int(_counts(y, at)[0])
    x_low, x_high = clopper_pearson(k, len(x), significance=significance / 2)
    y_low, y_high = clopper_pearson(m, len(y), significance=significance / 2)
    return float(max(x_low - y_high, y_low - x_high, 0.0))
