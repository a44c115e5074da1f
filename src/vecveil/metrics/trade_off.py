"""The trade-off rate: leakage removed per utility lost."""

from __future__ import annotations

import math

from vecveil.errors import InvalidInputError
from vecveil.metrics.estimates import Estimate


def trade_off_rate(
    clean_leakage: Estimate | float,
    leakage: Estimate | float,
    clean_utility: Estimate | float,
    utility: Estimate | float,
) -> Estimate:
    """Return R, the drop in leakage over the drop in utility, both against unprotected vectors.

    Greater is better while utility falls. Read the signs: a negative R means that leakage and
    utility moved in opposite directions (utility gained, or leakage added). No utility lost at all
    has no finite rate: R is then infinite with the sign of the leakage removed, NaN if that is zero
    too, and the interval is the whole line.

    The interval is Fieller's (1954) for a ratio of two independent differences, from the ends of
    the four intervals given (the longer side of each). It is the whole line where the utility's
    change cannot be distinguished from zero: no finite interval would be honest there. Clean and protected
    figures of the same texts are taken as independent, which is too wide if, as usual, they rise
    and fall together.

    Formula: SPARSE, appendix F.3, R = ΔLeakage / ΔUtility. The paper *assumes* that text-level
    methods leak nothing: pass ``leakage=0.0`` for that reading, the measured one for the other.

    Args:
        clean_leakage, leakage: Of the unprotected and of the protected vectors, in one unit.
        clean_utility, utility: The same of utility. A bare number anywhere counts as without error.

    n is that of the smallest estimate among the arguments, 0 if there is none; chance is None.
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
