"""Two classes made equally large, and split so that no group is on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError

__all__ = ["balanced_rows", "row_groups", "split_by_group"]

Indices = npt.NDArray[np.int64]


def balanced_rows(positive: int, plain: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return row numbers of both classes, equally many: the larger is sampled down (TextCrafter, Eq. 8).

    Args:
        positive, plain: rows of each class.
        rng: draws the sample, without replacement; the rows keep their order.
    """
    size = min(positive, plain)
    chosen = [
        np.arange(rows) if rows == size else np.sort(rng.choice(rows, size, replace=False))
        for rows in (positive, plain)
    ]
    return chosen[0].astype(np.int64), chosen[1].astype(np.int64)


def row_groups(
    groups_positive: Any, groups_plain: Any, positive: int, plain: int, *, owner: str
) -> Indices:
    """Return each row's group as a number, positives first; rows without given groups stand alone.

    Raises:
        InvalidInputError: not one group a row, or the two are of different kinds.
    """
    given: list[npt.NDArray[Any] | None] = []
    names = ("groups_positive", "groups_plain")
    for name, groups, rows in zip(
        names, (groups_positive, groups_plain), (positive, plain), strict=True
    ):
        if groups is None:
            given.append(None)
            continue
        array = np.asarray(groups)
        if array.shape != (rows,) or array.dtype.kind not in "iuU":
            raise InvalidInputError.of(owner, name, f"{rows} integers or strings, one for each row",
                                       f"shape {array.shape} of dtype {array.dtype}")  # fmt: skip
        given.append(array)
    known = [array for array in given if array is not None]
    if len({array.dtype.kind == "U" for array in known}) > 1:
        raise InvalidInputError.of(owner, names[1], f"of the kind of `{names[0]}`",
                                   " and ".join(str(array.dtype) for array in known),
                                   "One name in both is one group.")  # fmt: skip
    numbers, count = np.empty(0, dtype=np.int64), 0
    if known:
        values, numbers = np.unique(np.concatenate(known), return_inverse=True)
        numbers, count = numbers.reshape(-1), len(values)
    result, start = [], 0
    for known_groups, rows in zip(given, (positive, plain), strict=True):
        if known_groups is None:
            result.append(np.arange(count, count + rows))
            count += rows
        else:
            result.append(numbers[start : start + rows])
            start += rows
    return np.concatenate(result).astype(np.int64)


def split_by_group(
    groups: Indices,
    labels: npt.NDArray[np.bool_],
    share: float,
    rng: np.random.Generator,
    *,
    owner: str,
) -> npt.NDArray[np.bool_]:
    """Return which rows are held out: whole groups, with both classes on both sides.

    The share is taken from groups with positives alone, with plain rows alone and with both, each apart.

    Args:
        groups: (N,) group numbers.
        labels: (N,) whether a row is positive.
        share: of the groups to hold out, in (0, 1).
        rng: draws which.

    Raises:
        InvalidInputError: the groups are too few to leave both classes on both sides.
    """
    values, index = np.unique(groups, return_inverse=True)
    index = index.reshape(-1)
    positives = np.bincount(index, weights=labels, minlength=len(values)) > 0
    plains = np.bincount(index, weights=~labels, minlength=len(values)) > 0
    out = np.zeros(len(values), dtype=bool)
    for kind in (positives & plains, positives & ~plains, ~positives & plains):
        members = rng.permutation(np.flatnonzero(kind))
        if len(members) >= 2:
            count = min(max(round(share * len(members)), 1), len(members) - 1)
            out[members[:count]] = True
    test: npt.NDArray[np.bool_] = out[index]
    sides = (labels[test], labels[~test])
    if any(side.all() or not side.any() for side in sides):
        raise InvalidInputError.of(owner, "groups_positive",
                                   "such that whole groups leave both classes on both sides",
                                   f"{int(positives.sum())} groups of positives and {int(plains.sum())} of plain rows",
                                   "Rows of one group are held out together.", "Give more groups.")  # fmt: skip
    return test
