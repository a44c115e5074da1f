"""The linear map of a protector: erase, truncate, flatten, or a Wiener filter.

A quantised map gives the same result on every machine: its entries have 22 bits and releases lie on a grid, so
every product and every partial sum is exact in float64, in any order of summation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vecveil.types import Embeddings, Matrix

__all__ = ["LinearMap"]

_ENTRY_BITS = 22
_STEP_BITS = 20


def _power_of_two(value: float) -> float:
    return float(2.0 ** np.ceil(np.log2(value))) if value > 0 else 1.0


def _rounded(matrix: Matrix) -> Matrix:
    # A power of two: entries are integers of 22 bits times it, and products with the grid are exact.
    unit = _power_of_two(float(np.abs(matrix).max())) * 2.0**-_ENTRY_BITS
    rounded: Matrix = np.rint(matrix / unit) * unit
    return rounded


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    """T = up @ down, or T = down if ``up`` is None.

    Attributes:
        down: (m, n), from the encoder's space to the m kept coordinates.
        up: (n, m) with orthonormal columns, back into n dimensions; None for a square map.
        step: grid of the kept coordinates before ``up``; 0 for none.
    """

    down: Matrix
    up: Matrix | None = None
    step: float = 0.0

    @classmethod
    def quantised(cls, down: Matrix, up: Matrix | None, *, norm: float) -> LinearMap:
        """Return the map with entries of 22 bits and a grid 2⁻²⁰ of the largest kept coordinate.

        ``norm`` is the typical norm of an input vector.
        """
        # Cauchy-Schwarz: no kept coordinate exceeds the longest row of T times the norm.
        longest = float(np.sqrt((down**2).sum(axis=1).max())) * norm
        step = _power_of_two(longest) * 2.0**-_STEP_BITS
        return cls(_rounded(down), None if up is None else _rounded(up), step)

    def coarser_than(self, step: float) -> LinearMap:
        """Return the map with a grid of the kept coordinates 16 times coarser than inputs on ``step`` need.

        Inputs are rounded before the map, and inputs that differ in a hidden direction have different rounding
        errors; the coarser grid covers them.
        """
        if not self.step:
            return self
        longest = float(np.sqrt((self.down**2).sum(axis=1).max()))
        return replace(self, step=max(self.step, 16 * step * _power_of_two(longest)))

    def __repr__(self) -> str:
        return f"LinearMap(n={self.dimension}, rank={self.rank})"

    @property
    def dimension(self) -> int:
        return int(self.down.shape[1])

    @property
    def rank(self) -> int:
        """Return m, the number of kept coordinates."""
        return int(self.down.shape[0])

    @cached_property
    def matrix(self) -> Matrix:
        """T as (n, n) float64."""
        return self.down if self.up is None else self.up @ self.down

    def apply(self, X: Embeddings, *, reduced: bool = False) -> Embeddings:
        """Return the rows of ``X`` (N, n) through T: (N, n), or the (N, m) kept coordinates.

        Both forms have the same inner products, because ``up`` has orthonormal columns.
        """
        # float64 also for float32 rows: products of 22-bit entries and grid values fit its 53 bits.
        # Always in two steps: one product with T leaves rounding errors outside the kept directions,
        # and a linear reader recovers the erased part from them.
        kept = X.astype(np.float64, copy=False) @ self.down.T
        if self.step:
            kept = np.rint(kept / self.step) * self.step
        full: Embeddings = kept if reduced or self.up is None else kept @ self.up.T
        return full.astype(X.dtype, copy=False)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        arrays: dict[str, np.ndarray[Any, Any]] = {"map.down": self.down}
        if self.up is not None:
            arrays["map.up"] = self.up
        arrays["map.step"] = np.array([self.step])
        return arrays
