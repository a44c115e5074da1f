"""Integrate positive functions with one mode in logarithms, so that small tails keep their digits.

A tail of probability 1e-200 is as smooth as the bulk once it is summed at its own scale. The support is
located first: the mode, then the two points where the integrand is e⁻⁴⁵ of its peak. Gauss–Legendre
panels are graded towards the near end, where a second, much shorter scale can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_CUT = 45.0  # e⁻⁴⁵ = 3e-20: what lies outside the support is below rounding
_SHORTEST = -700.0  # log of the shortest distance from t = 0; e⁻⁷⁰⁰ is still a normal float64
_GRID = np.linspace(0.0, 1.0, 97)
_ROWS = 128  # integrals per block: bounds the memory


def log_integral(log_integrand: Callable[[Array, Any], Array], limits: Array, *, levels: int = 12) -> Array:
    """Return log ∫₀^limit exp(log_integrand(t)) dt for many integrals; −∞ where it is zero.

    Args:
        log_integrand: takes t (k, m) and the indices (k,) of the integrals; returns (k, m). It must
            rise to one mode and fall from there; −∞ is allowed at t = 0.
        limits: (N,), > 0 and finite.
        levels: number of halvings towards t = 0. Scales shorter than 2^-levels of the support are
            not resolved.
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
    # Panels of length 0 stand where a part is absent, so that every row has the same number.
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
