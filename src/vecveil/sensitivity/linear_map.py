"""A linear map that is applied to noisy vectors: erase, truncate, flatten, or a Wiener filter.

A quantised map is the same on every machine: its entries have 22 bits and releases lie on a grid, so that
every product and every partial sum is exact in float64, in whatever order a library adds them up.
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
    """T = up @ down, or T = down alone when ``up`` is None.

    Attributes:
        down: (m, n), from the encoder's space to the m kept coordinates.
        up: (n, m) with orthonormal columns, back into n dimensions; None for a square map.
        step: grid that the kept coordinates are rounded to before they are mapped back; 0 for none.
    """

    down: Matrix
    up: Matrix | None = None
    step: float = 0.0

    @classmethod
    def quantised(cls, down: Matrix, up: Matrix | None, *, norm: float) -> LinearMap:
        """Return the map with entries of 22 bits and a grid 2⁻²⁰ of the largest kept coordinate.

        Args:
            norm: typical norm of the vectors that go in.
        """
        longest = float(np.sqrt((down**2).sum(axis=1).max())) * norm
        step = _power_of_two(longest) * 2.0**-_STEP_BITS
        return cls(_rounded(down), None if up is None else _rounded(up), step)

    def coarser_than(self, step: float) -> LinearMap:
        """Return the map with kept coordinates on a grid 16 times coarser than inputs on ``step`` give.

        Inputs are rounded before the map, and their rounding errors are not the same for inputs that differ in
        a hidden direction; a coarser grid behind the map covers what they leave.
        """
        if not self.step:
            return self
        longest = float(np.sqrt((self.down**2).sum(axis=1).max()))
        return replace(self, step=max(self.step, 16 * step * _power_of_two(longest)))

    def __repr__(self) -> str:
        return f"LinearMap(n={self.dimension}, rank={self.rank})"

    @property
    def dimension(self) -> int:
        """Return n, the dimension of what goes in."""
        return int(self.down.shape[1])

    @property
    def rank(self) -> int:
        """Return m, the number of kept coordinates."""
        return int(self.down.shape[0])

    @cached_property
    def matrix(self) -> Matrix:
        """T as an (n, n) float64 array."""
        return self.down if self.up is None else self.up @ self.down

    def apply(self, X: Embeddings, *, reduced: bool = False) -> Embeddings:
        """Return the rows of ``X`` (N, n) through T: (N, n), or the (N, m) kept coordinates.

        Both forms have the same inner products, since ``up`` has orthonormal columns. The full form is
        computed from the kept coordinates and nothing else: one product with T itself would leave
        rounding errors outside the kept directions, and a linear reader finds the erased part in them.
        """
        # float64 also for float32 rows: products of 22-bit entries and grid values fit its 53 bits.
        kept = X.astype(np.float64, copy=False) @ self.down.T
        if self.step:
            kept = np.rint(kept / self.step) * self.step
        full: Embeddings = kept if reduced or self.up is None else kept @ self.up.T
        return full.astype(X.dtype, copy=False)

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        arrays: dict[str, np.ndarray[Any, Any]] = {"map.down": self.down}
        if self.up is not None:
            arrays["map.up"] = self.up
        arrays["map.step"] = np.array([self.step])
        return arrays
