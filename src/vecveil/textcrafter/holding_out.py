"""Which vectors the curves of a policy are measured on: whole groups that it does not learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, message

if TYPE_CHECKING:
    import torch

__all__ = ["group_numbers", "hold_out"]

HELD_OUT = 0.1  # share of the vectors that the curves are measured on, at most HELD_OUT_ROWS
HELD_OUT_ROWS = 2000

Indices = npt.NDArray[np.int64]


def group_numbers(groups: Any, rows: int, *, owner: str) -> Indices | None:
    """Return each row's group as a number from 0 on; None where none are given and every row stands alone.

    Raises:
        InvalidInputError: not one group a row, or one group for all.
    """
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (rows,) or given.dtype.kind not in "iuU":
        raise InvalidInputError.of(owner, "groups", f"{rows} integers or strings, one for each row",
                                   f"shape {given.shape} of dtype {given.dtype}")  # fmt: skip
    values, numbers = np.unique(given, return_inverse=True)
    if len(values) < 2:
        raise InvalidInputError(
            message(owner, "groups", "of at least 2 groups", "1",
                    "Rows of one group are held out together, and others must be left to learn from.")
        )  # fmt: skip
    return numbers.reshape(-1).astype(np.int64)


def hold_out(
    rows: int, groups: Indices | None, generator: torch.Generator
) -> tuple[Indices, Indices]:
    """Return the rows to measure on and those to learn from, each in an order drawn from ``generator``.

    Groups are held out in the drawn order, each if it still fits into a tenth of the rows, `HELD_OUT_ROWS` at most;
    where none fits, the least of them.

    Args:
        rows: N ≥ 2.
        groups: (N,), numbers from 0 on, at least two; None lets every row stand alone.
        generator: gives one permutation, of the groups.
    """
    import torch

    most = min(HELD_OUT_ROWS, max(1, int(HELD_OUT * rows)))
    if groups is None:
        order = torch.randperm(rows, generator=generator).numpy()
        return order[:most], order[most:]
    sizes = np.bincount(groups)
    drawn = torch.randperm(len(sizes), generator=generator).numpy()
    held_out, left = np.zeros(len(sizes), dtype=bool), most
    for group in drawn:
        if sizes[group] <= left:
            held_out[group] = True
            left -= sizes[group]
    if not held_out.any():
        held_out[drawn[np.argmin(sizes[drawn])]] = True
    place = np.empty(len(sizes), dtype=np.int64)
    place[drawn] = np.arange(len(sizes))
    order = np.argsort(place[groups], kind="stable")
    out = held_out[groups[order]]
    return order[out], order[~out]
