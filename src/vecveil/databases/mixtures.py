"""Clean vectors among protected ones: told row by row, by the grid of values or by norm 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["lowest_bits", "unit_spike"]

_BITS = 24  # of a float32's significand
_UNITS = (1e-5, 1e-3)
"""Off norm 1: of vectors in float32, and of those that were kept in fewer bits."""
_AROUND = 5.0  # times as far: a smooth density has four times as many rows between the two


def lowest_bits(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return for each row the greatest power of two that all its values are multiples of; very large for zeros."""
    fraction, exponent = np.frexp(np.abs(vectors).astype(np.float64))
    significand = np.ldexp(fraction, _BITS).astype(np.int64)
    low = np.where(significand == 0, 1, significand & -significand)
    bits = exponent.astype(np.int64) - _BITS + np.log2(low.astype(np.float64)).astype(np.int64)
    bits[significand == 0] = 1024
    return np.asarray(bits.min(axis=1, initial=1024), dtype=np.int64)


def unit_spike(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return which rows have norm 1, if they stand out from lengths that only pass through 1; else none."""
    away = np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1)
    found = np.zeros(len(vectors), dtype=bool)
    for near in _UNITS:
        unit = np.asarray(away < near, dtype=bool)
        around = int((away < _AROUND * near).sum() - unit.sum())
        # A few more are others that happen to lie there.
        if 4 * around < unit.sum() and unit.sum() > 1.1 * found.sum():
            found = unit
    return found
