"""Which rows a protector takes, told before any of them is released."""

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
    """Return for each row of ``X`` (N, n), finite, whether `Protector.protect` takes it: (N,).

    Not taken are rows longer than those of the fit, and rows that the mechanism refuses: most methods refuse none,
    some a row of zeros, or another norm than 1. Protectors that know no lengths, fitted on an earlier version, take
    rows here that may be too long for their noise; what comes out is checked then.
    """
    taken = within_lengths(protector, X)
    if protector.before.kind == "normalise":
        taken &= X.any(axis=1)
    rows = np.flatnonzero(taken)
    if len(rows):
        x = protector.before.apply(np.ascontiguousarray(X[rows]), owner="taken_rows")
        taken[rows] = protector.mechanism.takes(x)
    return taken
