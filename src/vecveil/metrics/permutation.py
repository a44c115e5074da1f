"""What a reconstruction earns that has nothing to do with its text: the one of another text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics.intervals import group_index
from vecveil.validation import check_count

__all__ = ["other_rows"]


def other_rows(groups: Any, rows: int, *, owner: str, seed: int = 0) -> npt.NDArray[np.intp] | None:
    """Return a random permutation that sends no row to itself; None where there is one row only.

    No row goes to its own group either, as far as this is possible: where one group holds more than
    half of the rows, its surplus stays inside it, and no other row does.

    Args:
        groups: (N,) group ids; None if every row stands alone.
        rows: N.
        owner: Whose error it is if ``groups`` does not fit.
        seed: Seed of the permutation.
    """
    index, count = group_index(groups, rows, owner=owner)
    seed = check_count(seed, owner=owner, param="seed", minimum=0)
    if rows < 2:
        return None
    rng = np.random.default_rng(seed)
    # In an order that keeps groups together, a step as long as the largest leaves every group.
    order = np.lexsort((rng.random(rows), rng.permutation(count)[index]))
    step = int(np.bincount(index).max()) if count > 1 else int(rng.integers(1, rows))
    chosen = np.empty(rows, dtype=np.intp)
    chosen[order] = np.roll(order, -step)
    return chosen
