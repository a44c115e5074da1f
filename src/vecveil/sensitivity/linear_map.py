"""A linear map that is applied to noisy vectors: erase, truncate, flatten, or a Wiener filter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vecveil.types import Embeddings, Matrix

__all__ = ["LinearMap"]


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    """T = up @ down, or T = down alone when ``up`` is None.

    Attributes:
        down: (m, n), from the encoder's space to the m kept coordinates.
        up: (n, m) with orthonormal columns, back into n dimensions; None for a square map.
    """

    down: Matrix
    up: Matrix | None = None

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

    @cached_property
    def _float32(self) -> tuple[Matrix, Matrix | None]:
        up = None if self.up is None else self.up.T.astype(np.float32)
        return self.down.T.astype(np.float32), up

    def apply(self, X: Embeddings, *, reduced: bool = False) -> Embeddings:
        """Return the rows of ``X`` (N, n) through T: (N, n), or the (N, m) kept coordinates.

        Both forms have the same inner products, since ``up`` has orthonormal columns. The full form is
        computed from the kept coordinates and nothing else: one product with T itself would leave
        rounding errors outside the kept directions, and a linear reader finds the erased part in them.
        """
        if X.dtype == np.float32:
            down, up = self._float32
        else:
            down, up = self.down.T, None if self.up is None else self.up.T
        kept: Embeddings = X @ down
        if reduced or up is None:
            return kept
        full: Embeddings = kept @ up
        return full

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        arrays = {"map.down": self.down}
        if self.up is not None:
            arrays["map.up"] = self.up
        return arrays
