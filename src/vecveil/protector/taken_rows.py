"""Which rows a protector takes and changes, told before any of them is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vecveil.protector.lengths import within_lengths
from vecveil.types import Embeddings

if TYPE_CHECKING:
    from vecveil.protector.protector import Protector

__all__ = ["taken_rows"]


def taken_rows(protector: Protector, X: Embeddings) -> npt.NDArray[np.bool_]:
    """Return for each row of ``X`` (N, n), finite, whether it can be released: (N,).

    Not taken are rows longer than those of the fit, rows that the mechanism refuses (most methods refuse none; some
    a row of zeros, or another norm than 1), and rows that come out as they went in, as zeros do from a shuffle.
    """
    taken = within_lengths(protector, X)
    if protector.before.kind == "normalise":
        taken &= X.any(axis=1)
    rows = np.flatnonzero(taken)
    if len(rows):
        x = protector.before.apply(np.ascontiguousarray(X[rows]), owner="taken_rows")
        taken[rows] = protector.mechanism.takes(x)
    return taken
