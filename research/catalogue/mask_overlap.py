"""Do masks of words of one group share their highest dimensions more than masks of words of two groups?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.types import Vector

__all__ = ["Overlap", "mask_overlap", "shared", "top_dimensions", "union_of_top"]

PERMUTATIONS = 2000


@dataclass(frozen=True, slots=True)
class Overlap:
    """How far the highest dimensions of masks agree.

    Attributes:
        within, across: mean share of the highest dimensions that two words of one group, or of two, have in common.
        by_group: group -> (within, with words of other groups); a group of one word has no ``within``.
        p_value: share of groupings at random in which within − across is as large; 1 where there are none to compare.
    """

    within: float
    across: float
    by_group: dict[str, tuple[float, float]]
    p_value: float


def top_dimensions(mask: Vector, top: int) -> npt.NDArray[np.intp]:
    """Return the ``top`` dimensions with the highest values of a mask (n,), the highest first."""
    return np.argsort(-np.asarray(mask), kind="stable")[:top]


def union_of_top(masks: Sequence[Vector], top: int) -> list[int]:
    """Return the dimensions that are among the ``top`` of any mask, in ascending order."""
    return sorted({int(i) for mask in masks for i in top_dimensions(mask, top)})


def shared(one: Vector, other: Vector, top: int) -> float:
    """Return the share of the ``top`` dimensions that two masks have in common."""
    both = np.intersect1d(top_dimensions(one, top), top_dimensions(other, top))
    return len(both) / top


def mask_overlap(
    masks: Sequence[Vector], groups: Sequence[str], *, top: int, seed: int = 0
) -> Overlap:
    """Return how far masks agree within and across groups, with a permutation test of the difference.

    Args:
        masks: of N words, (n,) each.
        groups: of each word.
        top: how many of the highest dimensions of each are compared.
    """
    names = list(dict.fromkeys(groups))
    index = np.array([names.index(group) for group in groups])
    held = np.zeros((len(masks), len(masks[0])))
    for i, mask in enumerate(masks):
        held[i, top_dimensions(mask, top)] = 1
    pairs = held @ held.T / top
    upper = np.triu(np.ones_like(pairs, dtype=bool), 1)

    def means(of: npt.NDArray[np.intp]) -> tuple[float, float]:
        same = of[:, None] == of[None]
        parts = [pairs[upper & same], pairs[upper & ~same]]
        return tuple(float(part.mean()) if len(part) else np.nan for part in parts)  # type: ignore[return-value]

    within, across = means(index)
    by_group = {}
    for k, name in enumerate(names):
        own = index == k
        inside = pairs[np.ix_(own, own)][np.triu_indices(int(own.sum()), 1)]
        outside = pairs[np.ix_(own, ~own)]
        by_group[name] = (
            float(inside.mean()) if inside.size else np.nan,
            float(outside.mean()) if outside.size else np.nan,
        )
    if np.isnan([within, across]).any():
        return Overlap(within, across, by_group, 1.0)
    rng = np.random.default_rng(seed)
    drawn = [
        one - other for one, other in (means(rng.permutation(index)) for _ in range(PERMUTATIONS))
    ]
    reached = sum(difference >= within - across - 1e-12 for difference in drawn)
    return Overlap(within, across, by_group, (1 + reached) / (1 + PERMUTATIONS))
