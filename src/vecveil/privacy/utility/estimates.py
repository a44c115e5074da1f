"""Estimates: a figure with its confidence interval; shares, means, correlations, permutations, the trade-off rate.

Texts of one group (duplicates, a pair, one document) are not independent, so shares over texts are resampled by group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.stats takes a second
from scipy.special import ndtri

from vecveil.errors import InvalidInputError
from vecveil.validation import (
    check_count,
    check_groups,
    check_probability,
    check_same_length,
    check_seed,
    number_groups,
)

LEVEL = 0.95
DRAWS = 2000
_BLOCK = 4_000_000  # weights held at once: 32 MB
NORMAL = float(ndtri((1 + LEVEL) / 2))  # standard deviations of a normal interval
_ROUNDING = 1e-18  # squared differences between groups below this are rounding errors


@dataclass(frozen=True, slots=True)
class Estimate:
    """One measured figure with its 95 % interval, ``low`` to ``high``.

    Attributes:
        metric: Name of the metric, such as ``"R-precision"``.
        n: Units that the figure is a mean or share of (the metric's docstring names them).
        chance: The figure without knowledge of the vectors; None if undefined.
    """

    metric: str
    value: float
    low: float
    high: float
    n: int
    chance: float | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the estimate as a JSON object; a figure that is not finite becomes None."""
        return {
            "metric": self.metric,
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "n": self.n,
            "chance": None if self.chance is None else _finite(self.chance),
        }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def share_estimate(
    metric: str,
    numerator: npt.NDArray[Any],
    denominator: npt.NDArray[Any] | None = None,
    groups: Any = None,
    *,
    chance: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Return sum(numerator) / sum(denominator), or the mean, with its `cluster_bootstrap` interval."""
    rows = len(numerator)
    below = np.ones(rows) if denominator is None else denominator
    n = rows if denominator is None else int(denominator.sum())
    ends = cluster_bootstrap(numerator, below, groups, seed=seed)
    return Estimate(metric, float(numerator.sum()) / n, *ends, n, chance)


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """Return the exact binomial interval of ``successes`` out of ``trials`` (Clopper and Pearson 1934)."""
    owner = "clopper_pearson"
    trials = check_count(trials, owner=owner, param="trials")
    successes = check_count(successes, owner=owner, param="successes", minimum=0, maximum=trials)
    return _beta_interval(successes, trials, LEVEL)


def share_interval(credits: Any, groups: Any = None, *, level: float = LEVEL) -> tuple[float, float]:
    """Return the Clopper–Pearson interval of a mean of credits, with an effective count for groups.

    Exact for credits 0 and 1 of independent rows; for fractions (shared ties) the beta quantiles interpolate, which is
    conservative.

    Formula: for groups n becomes p (1 - p) / var(p) · (t_{n-1} / t_{G-1})², var(p) being the variance between the G
    groups, and at most n (Korn and Graubard 1998); if no group differs from the others it becomes G.

    Args:
        credits: (N,) numbers in [0, 1], N >= 1.
        groups: (N,) group ids; None if all rows are independent.
    """
    owner = "share_interval"
    level = check_probability(level, owner=owner, param="level", open_interval=True)
    given = np.asarray(credits, dtype=np.float64)
    if given.ndim != 1 or not given.size or not bool(((given >= 0) & (given <= 1)).all()):
        raise InvalidInputError(f"{owner}: `credits` takes one or more numbers in [0, 1].", param="credits")
    rows = given.size
    index, count = group_index(groups, rows, owner=owner)
    total = float(given.sum())
    if count == rows:
        return _beta_interval(total, rows, level)
    if count == 1:
        return 0.0, 1.0
    share = total / rows
    sums = np.bincount(index, weights=given - share, minlength=count)
    spread = float(sums @ sums)
    effective = float(count)
    if spread > _ROUNDING:
        variance = count / (count - 1) * spread / rows**2
        tail = (1 + level) / 2
        wider = float(scipy.stats.t.ppf(tail, rows - 1)) / float(scipy.stats.t.ppf(tail, count - 1))
        # Fewer effective rows where groups differ more than chance; never more rows than there are.
        effective = min(float(rows), share * (1 - share) / variance * wider**2)
    return _beta_interval(share * effective, effective, level)


def _beta_interval(successes: float, trials: float, level: float) -> tuple[float, float]:
    # The exact ends at 0 and at n successes are 0 and 1, where the beta quantiles are undefined.
    tail = (1 - level) / 2
    missed = trials - successes
    low = 0.0 if successes <= 0 else float(scipy.stats.beta.ppf(tail, successes, missed + 1))
    high = 1.0 if missed <= 0 else float(scipy.stats.beta.ppf(1 - tail, successes + 1, missed))
    return low, high


def group_index(groups: Any, rows: int, *, owner: str) -> tuple[npt.NDArray[np.intp], int]:
    """Return each row's group as 0..G-1, and G; without groups or an id, a row is its own group."""
    if groups is None:
        return np.arange(rows), rows
    if isinstance(groups, np.ndarray) and groups.dtype.kind in "iu" and groups.shape == (rows,):
        values, index = np.unique(groups, return_inverse=True)
        return index, len(values)
    (index,) = number_groups(check_groups(groups, rows, owner=owner))
    return index, int(index.max(initial=-1)) + 1


def other_rows(groups: Any, rows: int, *, owner: str, seed: int = 0) -> npt.NDArray[np.intp] | None:
    """Return a random permutation that sends no row to itself; None for a single row.

    No row goes to its own group either, except the surplus of a group with more than half of the rows. ``groups``
    contains (N,) ids, or None for independent rows; errors name ``owner``.
    """
    index, count = group_index(groups, rows, owner=owner)
    seed = check_seed(seed, owner=owner)
    if rows < 2:
        return None
    rng = np.random.default_rng(seed)
    # In an order that keeps groups together, a step as long as the largest leaves every group.
    # Random order of the groups, then of the rows within a group.
    order = np.lexsort((rng.random(rows), rng.permutation(count)[index]))
    step = int(np.bincount(index).max()) if count > 1 else int(rng.integers(1, rows))
    chosen = np.empty(rows, dtype=np.intp)
    chosen[order] = np.roll(order, -step)
    return chosen


def bootstrap_weights(groups: int, *, seed: int = 0) -> Iterator[npt.NDArray[np.float64]]:
    """Yield blocks (rows, groups), `DRAWS` rows in all, of how often each bootstrap sample draws each group."""
    step = max(1, _BLOCK // groups)
    if step >= DRAWS:
        yield _few_weights(groups, seed).astype(np.float64)
        return
    rng = np.random.default_rng(seed)
    for start in range(0, DRAWS, step):
        yield _multinomial(rng, groups, min(step, DRAWS - start)).astype(np.float64)


# The attacks of an audit draw the same samples of the same groups; together the draws take seconds.
@functools.lru_cache(maxsize=8)
def _few_weights(groups: int, seed: int) -> npt.NDArray[np.uint16]:
    return _multinomial(np.random.default_rng(seed), groups, DRAWS).astype(np.uint16)


def _multinomial(rng: np.random.Generator, groups: int, size: int) -> npt.NDArray[np.int64]:
    # Multinomial counts are the same bootstrap as drawing rows, in far less memory.
    return rng.multinomial(groups, np.full(groups, 1.0 / groups), size=size)


def bootstrap_interval(values: npt.NDArray[np.float64], value: float, groups: int) -> tuple[float, float]:
    """Return the percentile interval of bootstrapped ``values`` with ``value``; exact binomial if all draws agree."""
    if np.ptp(values) ** 2 <= _ROUNDING:
        return _exact_interval(value, groups)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(min(low, value)), float(max(high, value))


def cluster_bootstrap(
    numerator: npt.NDArray[Any], denominator: npt.NDArray[Any], groups: Any = None, *, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of sum(numerator) / sum(denominator), resampled by group.

    The ratio must be a share in [0, 1]. If no group differs from the others, the interval is the exact binomial one
    over the groups, since a bootstrap interval would have width zero.

    ``groups`` are (N,) ids; None: all rows are independent. The denominators are at least 0.
    """
    owner = "cluster_bootstrap"
    rows = check_same_length(owner, numerator=numerator, denominator=denominator)
    index, count = group_index(groups, rows, owner=owner)
    above = np.bincount(index, weights=numerator, minlength=count)
    below = np.bincount(index, weights=denominator, minlength=count)
    # Groups without a unit of the denominator cannot change the ratio.
    above, below = above[below > 0], below[below > 0]
    count = len(below)
    if count == 0:
        raise InvalidInputError(f"{owner}: `denominator` is 0 in every row.", param="denominator")
    ratios = [(weights @ above) / (weights @ below) for weights in bootstrap_weights(count, seed=seed)]
    return bootstrap_interval(np.concatenate(ratios), float(above.sum() / below.sum()), count)


def _exact_interval(share: float, groups: int) -> tuple[float, float]:
    if groups == 1:  # one group carries no information on the variance between groups
        return 0.0, 1.0
    low, high = clopper_pearson(round(share * groups), groups)
    return min(low, share), max(high, share)


def cluster_normal(value: float, influence: npt.NDArray[np.float64], groups: Any = None) -> tuple[float, float]:
    """Return the normal interval of a statistic in [0, 1] from each row's influence (N,), whose sum is zero."""
    index, count = group_index(groups, len(influence), owner="cluster_normal")
    sums = np.bincount(index, weights=influence, minlength=count)
    variance = float(sums @ sums)
    if variance <= _ROUNDING:  # no group differs from the others, so they give no variance
        return _exact_interval(value, count)
    half = NORMAL * math.sqrt(variance)
    return max(0.0, value - half), min(1.0, value + half)


def fisher_z(correlation: float, n: int, *, variance_factor: float = 1.0) -> tuple[float, float]:
    """Return the interval of a correlation of ``n`` independent pairs: Fisher's z, variance 1 / (n - 3).

    For Spearman's coefficient pass ``variance_factor=1 + correlation**2 / 2`` (Bonett and Wright, 2000).
    """
    if n <= 3:  # the variance 1 / (n - 3) does not exist
        return -1.0, 1.0
    if abs(correlation) >= 1.0:  # z is infinite
        return correlation, correlation
    half = NORMAL * math.sqrt(variance_factor / (n - 3))
    z = math.atanh(correlation)
    return math.tanh(z - half), math.tanh(z + half)


def trade_off_rate(
    clean_leakage: Estimate | float,
    leakage: Estimate | float,
    clean_utility: Estimate | float,
    utility: Estimate | float,
) -> Estimate:
    """Return R, the drop in leakage over the drop in utility, both against unprotected vectors.

    Greater is better while utility falls. A negative R means that leakage and utility moved in opposite directions. If
    utility does not fall, R is infinite with the sign of the removed leakage, NaN if that is zero too, and the interval
    is the whole line.

    The interval is Fieller's (1954) for a ratio of two independent differences, from the longer side of each of the
    four intervals. It is the whole line if the utility's change is not distinguishable from zero. Treating clean and
    protected figures of the same texts as independent is too wide if, as usual, they rise and fall together.

    Formula: SPARSE, appendix F.3, R = ΔLeakage / ΔUtility. The paper *assumes* that text-level methods leak nothing:
    pass ``leakage=0.0`` for that reading, the measured one for the other.

    Args:
        clean_leakage, leakage: Of the unprotected and of the protected vectors, in one unit.
        clean_utility, utility: The same of utility. A bare number counts as exact.

    n is the least n of the arguments, 0 if none has one; chance is None.
    """
    removed, leakage_error = _drop(clean_leakage, leakage, "clean_leakage", "leakage")
    lost, utility_error = _drop(clean_utility, utility, "clean_utility", "utility")
    given = (clean_leakage, leakage, clean_utility, utility)
    n = min((each.n for each in given if isinstance(each, Estimate)), default=0)
    low, high = _fieller(removed, leakage_error, lost, utility_error)
    if lost != 0.0:
        value = removed / lost
    else:
        value = math.copysign(math.inf, removed) if removed != 0.0 else math.nan
    return Estimate("trade-off rate", value, low, high, n)


def _fieller(above: float, above_error: float, below: float, below_error: float) -> tuple[float, float]:
    """Return all r with (above - r·below)² <= above_error² + r²·below_error², as an interval."""
    square = below**2 - below_error**2
    # If the drop in utility is within its error, no finite interval covers the ratio.
    if below == 0.0 or square <= 0.0 or math.isinf(above_error):
        return -math.inf, math.inf
    # The ends are the roots of square·r² − 2·middle·r + above² − above_error².
    middle = above * below
    root = math.sqrt(max(0.0, middle**2 - square * (above**2 - above_error**2)))
    ratio = above / below
    # Rounding must not put the rate outside of its interval.
    return min((middle - root) / square, ratio), max((middle + root) / square, ratio)


def _drop(clean: Estimate | float, protected: Estimate | float, clean_name: str, name: str) -> tuple[float, float]:
    """Return the difference, and half the length of its 95 % interval."""
    before, before_error = _figure(clean, clean_name)
    after, after_error = _figure(protected, name)
    return before - after, math.hypot(before_error, after_error)


def _figure(given: Estimate | float, param: str) -> tuple[float, float]:
    if isinstance(given, Estimate):
        value, error = given.value, max(given.value - given.low, given.high - given.value)
    else:
        try:
            value, error = float(given), 0.0
        except (TypeError, ValueError):
            value, error = math.nan, 0.0
    if not math.isfinite(value) or math.isnan(error) or error < 0:
        raise InvalidInputError(f"trade_off_rate: `{param}` is a finite number or Estimate.", param=param)
    return value, error
