"""Detect signs of protection in vectors alone, without protector, texts or encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_MIN_VALUES = 2_000  # fewer values may share trailing zeros by chance
_BITS = 24  # significand of a float32
_MAX_BELOW = 18  # significant bits of the smallest value; full float32 precision has 24
# On a grid large values have more significant bits than small ones; in a float format all have equally many.
_MIN_ABOVE = 4
_MIN_BITS = 13  # bfloat16 has 8, float16 has 11
_SINGULAR = 1e-5  # relative to the largest; rounding noise of float32 is about 1e-7
_UNIT = 1e-3
_MIN_DIMENSIONS = 8
_MIN_CLEAN = 5
_MIN_CLEAN_SHARE = 0.01  # of the rows
_CONCENTRATED = 0.95
_APART = 4  # bits between the grid and the finest value of a row off the grid
_NEAR_UNIT = (1e-5, 1e-3)  # deviation of norms from 1, for float32 and for half precision
_AROUND = 5.0  # a smooth density has 4 times as many rows between d and 5 d as within d


@dataclass(frozen=True)
class Signs:
    """Signs of protection in some vectors.

    Attributes:
        grid_step: power of two that divides all values, if no float format explains it; else None.
        rank: rank of the vectors if it is not full; else None.
        unit: all norms are 1 within 0.001.
        rows: number of vectors.
        clean: number of rows that look clean among others that do not.
        beside: the other rows show signs, if ``clean`` is not 0.
    """

    grid_step: float | None
    rank: int | None
    unit: bool
    rows: int
    clean: int = 0
    beside: bool = False

    @property
    def verdict(self) -> str:
        """``mixed``: only some rows look clean. ``seen``: signs. ``none``: plain unit vectors. Else ``unknown``."""
        if self.clean:
            return "mixed"
        if self.grid_step is not None or self.rank is not None:
            return "seen"
        return "none" if self.unit and self.rows else "unknown"

    def to_record(self) -> dict[str, Any]:
        """Return the signs as JSON values."""
        return {
            "verdict": self.verdict,
            "grid_step": self.grid_step,
            "rank": self.rank,
            "rows": self.rows,
            "clean_rows": self.clean,
        }


def signs_of_protection(vectors: npt.NDArray[np.float32]) -> Signs:
    """Return the signs of protection in ``vectors`` (N, n), finite float32.

    vecveil rounds noise to a grid, and maps that erase directions reduce the rank. Neither is proof: other programs
    round and project too, and some methods do neither.
    """
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    unit = bool(len(norms)) and bool(np.all(np.abs(norms - 1) < _UNIT))
    clean, beside = (0, False) if unit else _mixed(vectors)
    if clean:  # clean rows would hide the signs of the others by a finer grid and a higher rank
        return Signs(None, None, unit, len(vectors), clean, beside)
    return Signs(_grid(vectors), _rank(vectors), unit, len(vectors))


def _mixed(vectors: npt.NDArray[np.float32]) -> tuple[int, bool]:
    """Return the number of clean-looking rows in a mixture, and whether the other rows show signs."""
    # First by the grid, which is sharper; then by unit norms, which any noise destroys.
    on_grid = _on_grid(vectors)
    if on_grid is not None and _enough(clean := ~on_grid) and _grid(vectors[clean]) is None:
        return int(clean.sum()), True
    clean = _unit_spike(vectors)
    others = vectors[~clean & vectors.any(axis=1)]
    if not _enough(clean) or len(others) < max(_MIN_CLEAN, _MIN_CLEAN_SHARE * len(vectors)):
        return 0, False
    return int(clean.sum()), _rank(others) is not None or _grid(others) is not None


def _enough(clean: npt.NDArray[np.bool_]) -> bool:
    return int(clean.sum()) >= max(_MIN_CLEAN, _MIN_CLEAN_SHARE * len(clean))


def _on_grid(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the rows on a common grid, or None without one."""
    lowest = _lowest_bits(vectors)
    for step in np.unique(lowest):
        rows = np.asarray(lowest >= step, dtype=bool)
        # A noise grid is the finest step of nearly all its rows; rows of float formats have many neighbouring steps.
        concentrated = (lowest[rows] == step).mean() >= _CONCENTRATED
        apart = lowest[~rows].max(initial=step - _APART) <= step - _APART
        if concentrated and apart and _grid(vectors[rows]) is not None:
            return rows
    return None


def _grid(vectors: npt.NDArray[np.float32]) -> float | None:
    values = vectors[vectors != 0]
    if len(values) < _MIN_VALUES:
        return None
    # value = significand * 2^(exponent - 24): the lowest set bit of a value is exponent - 24 + trailing zeros.
    exponent, trailing = _binary(values)
    lowest = int((exponent - _BITS + trailing).min())
    below = int(exponent.min()) - lowest
    most = int((_BITS - trailing).max())
    if below > _MAX_BELOW or most < max(_MIN_BITS, below + _MIN_ABOVE):
        return None
    return float(2.0**lowest)


def _lowest_bits(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return per row the largest e such that 2^e divides all values; 1024 for a row of zeros."""
    exponent, trailing = _binary(vectors)
    bits = np.where(vectors == 0, 1024, exponent - _BITS + trailing)
    return np.asarray(bits.min(axis=1, initial=1024), dtype=np.int64)


def _binary(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return exponents and the numbers of trailing zero bits of the significands."""
    fraction, exponent = np.frexp(np.abs(values).astype(np.float64))
    significand = np.ldexp(fraction, _BITS).astype(np.int64)
    lowest = np.where(significand == 0, 1, significand & -significand)  # the lowest set bit
    return exponent.astype(np.int64), np.log2(lowest.astype(np.float64)).astype(np.int64)


def _unit_spike(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of norm 1, empty if a smooth density of norms explains their number."""
    distance = np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1)
    spike = np.zeros(len(vectors), dtype=bool)
    for near in _NEAR_UNIT:
        unit = np.asarray(distance < near, dtype=bool)
        around = int((distance < _AROUND * near).sum() - unit.sum())
        # A smooth density gives around = 4 * unit; a spike has less than a sixteenth of that. The wider distance
        # replaces the narrow one only if it adds a tenth more rows.
        if 4 * around < unit.sum() and unit.sum() > 1.1 * spike.sum():
            spike = unit
    return spike


def _rank(vectors: npt.NDArray[np.float32]) -> int | None:
    rows = np.unique(vectors, axis=0).astype(np.float64)
    spreads = rows.std(axis=0) if len(rows) else np.zeros(0)
    rows = rows[
        :, spreads > _SINGULAR * spreads.max(initial=0.0)
    ]  # some encoders have constant coordinates
    most = min(len(rows) - 1, rows.shape[1])
    if most < _MIN_DIMENSIONS:
        return None
    singular = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    rank = int((singular > _SINGULAR * singular[0]).sum())
    return rank if rank < most else None
