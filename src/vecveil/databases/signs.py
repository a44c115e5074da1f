"""Look for signs of protection in vectors alone, without protector, text or encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Signs", "signs_of_protection"]

_MIN_VALUES = 2_000
_BITS = 24  # of a float32's significand
_MAX_BELOW = 18  # bits of the smallest value: a float's own would be 24
_MIN_ABOVE = (
    4  # the largest values have more bits on a grid, and as many as others in any float format
)
_MIN_BITS = 13  # bfloat16 has 8, float16 has 11
_SINGULAR = 1e-5
_UNIT = 1e-3
_MIN_DIMENSIONS = 8
_MIN_CLEAN = 5
_MIN_CLEAN_SHARE = 0.01  # of the rows
_CONCENTRATED = 0.95
_APART = 4  # bits between the grid and the finest value of a row that is not on it
_NEAR_UNIT = (
    1e-5,
    1e-3,
)  # distance of norms from 1: vectors in float32, and those stored in fewer bits
_AROUND = 5.0  # times as far: a smooth density has four times as many rows between the two


@dataclass(frozen=True)
class Signs:
    """Signs of protection in some vectors.

    Attributes:
        grid_step: power of two that all values are multiples of, if no encoder gives such values; else None.
        rank: number of dimensions that the vectors span, if fewer than they could; else None.
        unit: whether all norms are 1 within 0.001.
        rows: number of vectors.
        clean: number of vectors that look clean beside others that do not.
        beside: whether the others show signs, where ``clean`` is not 0.
    """

    grid_step: float | None
    rank: int | None
    unit: bool
    rows: int
    clean: int = 0
    beside: bool = False

    @property
    def verdict(self) -> str:
        """``mixed`` if only some rows look clean; ``seen`` with signs; ``none`` for plain unit vectors, as encoders
        give them; else ``unknown``.
        """
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
    """Return the signs in ``vectors`` (N, n), finite float32.

    Noise that vecveil adds is rounded to a grid, and maps that erase directions leave fewer than n dimensions. Both
    are signs and no proof: other programs round and project too, and some methods do neither.
    """
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    unit = bool(len(norms)) and bool(np.all(np.abs(norms - 1) < _UNIT))
    clean, beside = (0, False) if unit else _mixed(vectors)
    if clean:  # clean rows hide the signs of the others: a finer grid, a higher rank
        return Signs(None, None, unit, len(vectors), clean, beside)
    return Signs(_grid(vectors), _rank(vectors), unit, len(vectors))


def _mixed(vectors: npt.NDArray[np.float32]) -> tuple[int, bool]:
    """Return the number of rows that look clean beside others that do not, and whether the others show signs."""
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
    """Return a mask of the rows on a common grid, if those rows alone show it; else None."""
    lowest = _lowest_bits(vectors)
    for step in np.unique(lowest):
        rows = np.asarray(lowest >= step, dtype=bool)
        # Noise puts nearly every row on the step itself; rows of other formats lie on many, close to each other.
        concentrated = (lowest[rows] == step).mean() >= _CONCENTRATED
        apart = lowest[~rows].max(initial=step - _APART) <= step - _APART
        if concentrated and apart and _grid(vectors[rows]) is not None:
            return rows
    return None


def _grid(vectors: npt.NDArray[np.float32]) -> float | None:
    values = vectors[vectors != 0]
    if len(values) < _MIN_VALUES:
        return None
    exponent, trailing = _binary(values)
    lowest = int((exponent - _BITS + trailing).min())
    below = int(exponent.min()) - lowest
    most = int((_BITS - trailing).max())
    if below > _MAX_BELOW or most < max(_MIN_BITS, below + _MIN_ABOVE):
        return None
    return float(2.0**lowest)


def _lowest_bits(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return for each row the largest exponent of a power of two that divides all its values; 1024 for zeros."""
    exponent, trailing = _binary(vectors)
    bits = np.where(vectors == 0, 1024, exponent - _BITS + trailing)
    return np.asarray(bits.min(axis=1, initial=1024), dtype=np.int64)


def _binary(values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the exponent of each value, and the number of trailing zeros of its significand."""
    fraction, exponent = np.frexp(np.abs(values).astype(np.float64))
    significand = np.ldexp(fraction, _BITS).astype(np.int64)
    lowest = np.where(significand == 0, 1, significand & -significand)
    return exponent.astype(np.int64), np.log2(lowest.astype(np.float64)).astype(np.int64)


def _unit_spike(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of norm 1, if more rows have it than a smooth density of norms would give."""
    distance = np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1)
    spike = np.zeros(len(vectors), dtype=bool)
    for near in _NEAR_UNIT:
        unit = np.asarray(distance < near, dtype=bool)
        around = int((distance < _AROUND * near).sum() - unit.sum())
        # A few more rows at the wider distance lie there by chance.
        if 4 * around < unit.sum() and unit.sum() > 1.1 * spike.sum():
            spike = unit
    return spike


def _rank(vectors: npt.NDArray[np.float32]) -> int | None:
    rows = np.unique(vectors, axis=0).astype(np.float64)
    spreads = rows.std(axis=0) if len(rows) else np.zeros(0)
    rows = rows[
        :, spreads > _SINGULAR * spreads.max(initial=0.0)
    ]  # some encoders leave coordinates constant
    most = min(len(rows) - 1, rows.shape[1])
    if most < _MIN_DIMENSIONS:
        return None
    singular = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    rank = int((singular > _SINGULAR * singular[0]).sum())
    return rank if rank < most else None
