"""Lower bounds on the privacy parameter from attack scores.

If a mechanism is (ε, δ)-DP for a pair of inputs, no event may have P(E) > e^ε Q(E) + δ. Scores of an
attack, drawn under either input, make events: a score at or above a threshold, or below it. With
Clopper–Pearson bounds on both probabilities, ε ≥ log((P_low − δ) / Q_high) holds at the stated
confidence (Jagielski, Ullman & Oprea 2020). The bound says nothing about better attacks.

`CanaryScoreAuditor` has the interface of ``jax_privacy.auditing.CanaryScoreAuditor``, on NumPy and SciPy. Two things
differ: the Bonferroni correction counts all thresholds that the scores offer, not the corners of the observed ROC
curve (whose number depends on the scores), and δ may be 0 in `epsilon_one_run`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from vecveil.errors import InvalidInputError, wrong_type
from vecveil.types import Vector
from vecveil.validation import check_count, check_probability

__all__ = [
    "Bonferroni",
    "CanaryScoreAuditor",
    "Explicit",
    "LowerBound",
    "Split",
    "check_scores",
    "clopper_pearson",
    "epsilon_lower_bound",
]

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
        record = {k: _finite(v) if isinstance(v, float) else v for k, v in vars(self).items()}
        return record | {"samples": list(self.samples)}


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
    x = check_scores(scores_x, owner=owner, param="scores_x", minimum=4)
    y = check_scores(scores_y, owner=owner, param="scores_y", minimum=4)
    delta = check_probability(delta, owner=owner, param="delta")
    confidence = check_probability(confidence, owner=owner, param="confidence", open_interval=True)
    rng = np.random.default_rng(check_count(seed, owner=owner, param="seed", minimum=0))
    significance = (1 - confidence) / 4  # two bounds, of two probabilities each

    # Selection and bound on disjoint halves: no correction for the selection.
    choose_x, bound_x = np.array_split(rng.permutation(x), 2)
    choose_y, bound_y = np.array_split(rng.permutation(y), 2)
    thresholds = _candidates(choose_x, choose_y)
    tried = _epsilons(choose_x, choose_y, thresholds, delta, significance)
    direction = max(tried, key=lambda name: float(tried[name].max()))
    threshold = thresholds[int(tried[direction].argmax())]
    advantages = _shares(choose_x, thresholds) - _shares(choose_y, thresholds)
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


def check_scores(value: Any, *, owner: str, param: str, minimum: int = 1) -> Vector:
    """Return ``value`` as a float64 array of shape (N,) without NaN."""
    try:
        scores = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise wrong_type(owner, param, "an array of numbers", value) from None
    if scores.ndim != 1 or len(scores) < minimum or np.isnan(scores).any():
        nan = ", with NaN" if np.isnan(scores).any() else ""
        raise InvalidInputError.of(owner, param, f"of shape (N,) with N ≥ {minimum} and without NaN",
                                   f"shape {scores.shape}{nan}")  # fmt: skip
    return scores


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


def _shares(scores: Vector, thresholds: Vector) -> Any:
    return _counts(scores, thresholds) / len(scores)


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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Bonferroni:
    """Try every threshold, each at its share of the significance."""


@dataclass(frozen=True)
class Explicit:
    """Use one threshold, which must have been fixed without looking at these scores."""

    threshold: float


@dataclass(frozen=True)
class Split:
    """Choose the threshold on ``fraction`` of the canaries, bound ε with the others."""

    fraction: float = 0.5
    seed: int = 0


Strategy: TypeAlias = Bonferroni | Explicit | Split


class CanaryScoreAuditor:
    """Lower bounds of ε from attack scores of held-in (N,) and held-out (M,) canaries.

    A score at or above a threshold means "in".
    """

    def __init__(self, in_scores: Vector, out_scores: Vector) -> None:
        owner = type(self).__name__
        self._in = np.sort(check_scores(in_scores, owner=owner, param="in_scores"))
        self._out = np.sort(check_scores(out_scores, owner=owner, param="out_scores"))

    def __repr__(self) -> str:
        return f"CanaryScoreAuditor({len(self._in)} in, {len(self._out)} out)"

    def epsilon_clopper_pearson(
        self,
        significance: float,
        delta: float = 0.0,
        one_sided: bool = True,
        *,
        threshold_strategy: Strategy | None = None,
    ) -> float:
        """Return a lower bound of ε by Clopper–Pearson bounds on TPR and FPR (arXiv:2101.04535).

        The canaries must be independent: one for each run, or nearly so.

        Args:
            significance: largest chance that the bound is wrong.
            delta: δ of (ε, δ)-DP.
            one_sided: True for TPR/FPR alone; False also tries TNR/FNR.
            threshold_strategy: `Bonferroni` (the default), `Explicit` or `Split`.
        """
        level = self._level(significance, delta, "epsilon_clopper_pearson")
        match threshold_strategy or Bonferroni():
            case Explicit(threshold):
                return float(self._bounds([threshold], level, delta, one_sided)[0])
            case Split(fraction, seed):
                first, second = self._parts(fraction, seed)
                at = first._thresholds()
                best = at[int(first._bounds(at, level, delta, one_sided).argmax())]
                return float(second._bounds([best], level, delta, one_sided)[0])
            case Bonferroni():
                # The number of ranks is fixed before the scores are seen, unlike that of distinct scores.
                tried = len(self._in) + len(self._out)
                return float(
                    self._bounds(self._thresholds(), level / tried, delta, one_sided).max()
                )

    def epsilon_one_run(
        self,
        significance: float,
        delta: float = 0.0,
        *,
        threshold_strategy: Strategy | None = None,
    ) -> float:
        """Return a lower bound of ε from one run (Steinke, Nasr & Jagielski 2023, Theorem 5.2).

        An independent fair coin put each canary in or out. The attacker guesses "in" for scores at or above
        a threshold and abstains on the others. `Bonferroni` runs over the number of guesses; see
        `epsilon_clopper_pearson` for the arguments.
        """
        level = self._level(significance, delta, "epsilon_one_run")
        match threshold_strategy or Bonferroni():
            case Explicit(threshold):
                return self._one_run([threshold], level, delta)[0]
            case Split(fraction, seed):
                first, second = self._parts(fraction, seed)
                best = first._one_run(first._thresholds(), level, delta)[1]
                return second._one_run([best], level, delta)[0]
            case Bonferroni():
                tried = len(self._in) + len(self._out)
                return self._one_run(self._thresholds(), level / tried, delta)[0]

    def _level(self, significance: float, delta: float, method: str) -> float:
        owner = f"{type(self).__name__}.{method}"
        check_probability(delta, owner=owner, param="delta")
        return check_probability(
            significance, owner=owner, param="significance", open_interval=True
        )

    def _thresholds(self) -> Any:
        return np.unique(np.concatenate([self._in, self._out]))

    def _parts(self, fraction: float, seed: int) -> tuple[CanaryScoreAuditor, CanaryScoreAuditor]:
        owner = "Split"
        share = check_probability(fraction, owner=owner, param="fraction", open_interval=True)
        rng = np.random.default_rng(check_count(seed, owner=owner, param="seed", minimum=0))
        pairs = []
        for scores in (self._in, self._out):
            cut = round(share * len(scores))
            if not 0 < cut < len(scores):
                raise InvalidInputError.of(owner, "fraction", "such that both parts have canaries",
                                           f"a share that leaves {cut} of {len(scores)}")  # fmt: skip
            shuffled = rng.permutation(scores)
            pairs.append((shuffled[:cut], shuffled[cut:]))
        (in_first, in_second), (out_first, out_second) = pairs
        return CanaryScoreAuditor(in_first, out_first), CanaryScoreAuditor(in_second, out_second)

    def _bounds(self, thresholds: Any, level: float, delta: float, one_sided: bool) -> Any:
        """Return the bound on ε at each threshold, each wrong with chance at most ``level``."""
        at = np.asarray(thresholds, dtype=np.float64)
        n, m = len(self._in), len(self._out)
        tp, fp = _counts(self._in, at), _counts(self._out, at)
        sides = [(tp, n, fp, m)] if one_sided else [(tp, n, fp, m), (m - fp, m, n - tp, n)]
        share = level / (2 * len(sides))  # two bounds for each side
        best = np.zeros(len(at))
        for hits, trials, false_hits, false_trials in sides:
            low, _ = clopper_pearson(hits, trials, significance=share)
            _, high = clopper_pearson(false_hits, false_trials, significance=share)
            with np.errstate(divide="ignore"):
                best = np.maximum(best, np.log(np.maximum(low - delta, 0)) - np.log(high))
        return best

    def _one_run(self, thresholds: Any, level: float, delta: float) -> tuple[float, float]:
        """Return the largest bound over the thresholds, and its threshold."""
        from scipy import optimize  # slow to import

        at = np.asarray(thresholds, dtype=np.float64)
        correct, canaries = _counts(self._in, at), len(self._in) + len(self._out)
        guesses = correct + _counts(self._out, at)
        best, where = 0.0, float(at[0])
        open_ = np.ones(len(at), dtype=bool)
        # Raise ε from threshold to threshold: only those still significant at the best ε can improve it.
        while True:
            # δ only adds to the p-value, and ε raises it: a threshold that fails without δ stays out.
            p = _at_least(correct, guesses, special.expit(best))
            open_ &= p <= level
            if not open_.any():
                return best, where
            i = int(np.where(open_, p, np.inf).argmin())
            open_[i] = False
            k, v = int(guesses[i]), int(correct[i])

            def excess(epsilon: float, k: int = k, v: int = v) -> float:
                return _one_run_p(epsilon, k, v, canaries, delta) - level

            if excess(best) <= 0:
                high = best + 1.0
                while excess(high) <= 0:
                    high *= 2
                root = float(optimize.bisect(excess, best, high, xtol=1e-9))
                # below the root: the p-value there is at most the level
                best, where = max(best, root - 1e-9), float(at[i])


def _one_run_p(epsilon: float, guesses: int, correct: int, canaries: int, delta: float) -> float:
    """Return the p-value of ``correct`` guesses out of ``guesses`` under (ε, δ)-DP (ibid., Theorem 5.2)."""
    q = special.expit(epsilon)
    p = float(_at_least(correct, guesses, q))
    # The theorem's α: δ moves probability to the worst number of canaries, hence the maximum.
    if delta > 0 and correct > 0:
        steps = np.arange(1, correct + 1)
        slack = (_at_least(correct - steps, guesses, q) - p) / steps
        p += 2 * canaries * delta * float(slack.max())
    return min(p, 1.0)


def _at_least(successes: Any, trials: Any, q: Any) -> Any:
    """Return the probability of at least ``successes`` in ``trials`` of a binomial with probability q."""
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(k > 0, special.betainc(np.maximum(k, 1e-300), n - k + 1, q), 1.0)[()]
