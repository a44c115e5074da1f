"""Noise of a continuous law does not repeat: two equal draws show a coarse or a reused generator.

A radius drawn in float32 takes one of a few million values, so that among thousands of releases some
agree to all digits, which a float64 radius does once in a billion pairs. A generator that is seeded
anew for each call repeats itself outright.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from vecveil.types import Embeddings, Vector

__all__ = ["Ties", "count_ties", "float32_share"]

_RESOLUTION = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7}


@dataclass(frozen=True)
class Ties:
    """Lengths that agree, and how many a continuous law allows.

    Attributes:
        observed: neighbours among the sorted lengths that agree within the resolution.
        expected: their mean number under any log-concave law of that spread, at most.
        allowed: more than this has a chance below the significance.
        resolution: relative difference below which two lengths agree.
    """

    observed: int
    expected: float
    allowed: int
    resolution: float

    @property
    def passed(self) -> bool:
        """Whether the lengths may come from a continuous law."""
        return self.observed <= self.allowed


def count_ties(lengths: Vector, *, dtype: object, significance: float, offset: float = 0.0) -> Ties:
    """Return how many of the lengths agree.

    Of M lengths with a log-concave density f, two agree within a gap g with probability at most
    2g · max f ≤ 2g/sd, so M²g/sd pairs are expected at most, nearly Poisson.

    Args:
        lengths: (M,) lengths of the noise of independent releases, also of different inputs.
        dtype: of the released vectors, which limits how finely lengths can be told apart.
        significance: chance of a false rejection.
        offset: length of the inputs; y − x loses the digits that x takes.
    """
    ordered = np.sort(np.asarray(lengths, dtype=np.float64))
    middle, spread = float(np.median(ordered)), float(ordered.std())
    resolution = _RESOLUTION[np.dtype(dtype)] * (1 + offset / middle if middle > 0 else 1.0)  # type: ignore[call-overload]
    gap = resolution * middle
    observed = int((np.diff(ordered) <= gap).sum())
    if spread <= gap:  # all alike
        return Ties(observed, 0.0, 0, resolution)
    expected = len(ordered) ** 2 * gap / spread
    return Ties(observed, expected, int(stats.poisson.isf(significance, expected)), resolution)


def float32_share(noise: Embeddings) -> float:
    """Return the share of float64 coordinates that are float32 numbers: 2⁻²⁹ or so by chance."""
    with np.errstate(over="ignore"):
        rounded = noise.astype(np.float32).astype(np.float64)
    return float((rounded == noise).mean())
