"""Signs by which protected vectors differ from those of an encoder, seen without protector, text or encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.mixtures import lowest_bits, unit_spike

__all__ = ["Signs", "signs_of_protection"]

FEWEST_VALUES = 2_000
_BITS = 24  # of a float32's significand
_MOST_BELOW = 18  # bits of the smallest value: a float's own would be 24
_MORE_ABOVE = (
    4  # the largest values have more bits on a grid, and as many as others in any float format
)
_FEWEST_BITS = 13  # bfloat16 has 8, float16 has 11
_SINGULAR = 1e-5
_UNIT = 1e-3
_FEWEST_DIMENSIONS = 8
_FEWEST_CLEAN = 5
_LEAST_CLEAN = 0.01  # of the rows
_CONCENTRATED = 0.95
_APART = 4  # bits between the grid and the finest value of a row that is not on it


@dataclass(frozen=True)
class Signs:
    """What was seen of protection in some vectors.

    Attributes:
        grid_step: the power of two that all values are multiples of, if no encoder gives such values; else None.
        rank: dimensions that the vectors span, if fewer than they could; else None.
        unit: whether all norms are 1 within 0.001.
        rows: vectors that were looked at.
        clean: of them, those that look clean beside others that do not.
        beside: signs in the others, where ``clean`` is not 0.
    """

    grid_step: float | None
    rank: int | None
    unit: bool
    rows: int
    clean: int = 0
    beside: bool = False

    @property
    def verdict(self) -> str:
        """``seen`` if there are signs; ``none`` for plain unit vectors, as encoders give them; else ``unknown``.

        ``mixed`` if some rows look clean and the others do not.
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

    Noise that vecveil adds is rounded to a grid, and maps that erase directions leave fewer than n. Both are signs
    and no proof: other programs round and project too; and there are methods without either.
    """
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    unit = bool(len(norms)) and bool(np.all(np.abs(norms - 1) < _UNIT))
    clean, beside = (0, False) if unit else _mixed(vectors)
    if clean:  # few clean rows leave signs of the whole that are none: a grid that is finer, a rank that is higher
        return Signs(None, None, unit, len(vectors), clean, beside)
    return Signs(_grid(vectors), _rank(vectors), unit, len(vectors))


def _mixed(vectors: npt.NDArray[np.float32]) -> tuple[int, bool]:
    """Return how many rows look clean beside others that do not, and whether the others show signs; else zero."""
    on_grid = _on_grid(vectors)
    if on_grid is not None and _enough(clean := ~on_grid) and _grid(vectors[clean]) is None:
        return int(clean.sum()), True
    clean = unit_spike(vectors)
    others = vectors[~clean & vectors.any(axis=1)]
    if not _enough(clean) or len(others) < max(_FEWEST_CLEAN, _LEAST_CLEAN * len(vectors)):
        return 0, False
    return int(clean.sum()), _rank(others) is not None or _grid(others) is not None


def _enough(clean: npt.NDArray[np.bool_]) -> bool:
    return int(clean.sum()) >= max(_FEWEST_CLEAN, _LEAST_CLEAN * len(clean))


def _on_grid(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_] | None:
    """Return the rows whose values are multiples of one power of two, if those rows alone show it; else None."""
    lowest = lowest_bits(vectors)
    for step in np.unique(lowest):
        rows = np.asarray(lowest >= step, dtype=bool)
        # Noise puts nearly every row on the very step; rows of other formats lie on many, close to each other.
        concentrated = (lowest[rows] == step).mean() >= _CONCENTRATED
        apart = lowest[~rows].max(initial=step - _APART) <= step - _APART
        if concentrated and apart and _grid(vectors[rows]) is not None:
            return rows
    return None


def _grid(vectors: npt.NDArray[np.float32]) -> float | None:
    values = np.abs(vectors[vectors != 0])
    if len(values) < FEWEST_VALUES:
        return None
    fraction, exponent = np.frexp(values.astype(np.float64))
    significand = np.ldexp(fraction, _BITS).astype(np.int64)
    trailing = np.log2((significand & -significand).astype(np.float64)).astype(np.int64)
    lowest = int((exponent.astype(np.int64) - _BITS + trailing).min())
    below = int(exponent.min()) - lowest
    most = int((_BITS - trailing).max())
    if below > _MOST_BELOW or most < max(_FEWEST_BITS, below + _MORE_ABOVE):
        return None
    return float(2.0**lowest)


def _rank(vectors: npt.NDArray[np.float32]) -> int | None:
    rows = np.unique(vectors, axis=0).astype(np.float64)
    spreads = rows.std(axis=0) if len(rows) else np.zeros(0)
    rows = rows[
        :, spreads > _SINGULAR * spreads.max(initial=0.0)
    ]  # some encoders leave coordinates constant
    most = min(len(rows) - 1, rows.shape[1])
    if most < _FEWEST_DIMENSIONS:
        return None
    spread = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    rank = int((spread > _SINGULAR * spread[0]).sum())
    return rank if rank < most else None
