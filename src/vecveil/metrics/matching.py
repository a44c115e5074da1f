"""How often an attack picks the right one of some candidates: top-1 accuracy and MRR.

Ties are shared out: the credit is what a random order of equal scores earns on average, so a
constant score earns chance exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, message
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import cluster_bootstrap, group_index, share_interval
from vecveil.validation import check_count

__all__ = ["candidate_matching", "candidate_matching_of_ranks"]

IntArray = npt.NDArray[np.int64]


def candidate_matching(
    scores: Any, truth: Any, groups: Any = None, *, seed: int = 0
) -> dict[str, Estimate]:
    """Return "top-1 accuracy" and "MRR" (mean reciprocal rank) by name; n counts rows.

    Chance is 1/C and H_C/C, H_C being the harmonic number: a random order. The accuracy's interval
    is Clopper–Pearson's without groups and resampled by group with them; MRR's is resampled.

    Args:
        scores: (M, C) a score for each candidate, higher is likelier; M >= 1, C >= 2.
        truth: (M,) the column of the right candidate.
        groups: (M,) groups of the rows; None if every row stands alone.
        seed: Seed of the bootstrap.
    """
    owner = "candidate_matching"
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim != 2 or len(s) < 1 or s.shape[1] < 2:
        raise InvalidInputError.of(
            owner, "scores", "of shape (M, C), M >= 1 and C >= 2", f"shape {s.shape}"
        )
    if not np.isfinite(s).all():
        raise InvalidInputError.of(owner, "scores", "finite", "NaN or infinity")
    columns = s.shape[1]
    right = _integers(truth, len(s), 0, columns - 1, owner=owner, param="truth")
    target = np.take_along_axis(s, right[:, None], axis=1)
    above, tied = (s > target).sum(axis=1), (s == target).sum(axis=1)
    return _estimates(above, tied, columns, groups, seed, owner)


def candidate_matching_of_ranks(
    ranks: Any, candidates: int, groups: Any = None, *, seed: int = 0
) -> dict[str, Estimate]:
    """Return the same as `candidate_matching` from the right candidates' ranks.

    Args:
        ranks: (M,) whole numbers from 1 (best) to ``candidates``; ties must be broken at random
            already, or they flatter the attack.
        candidates: C, at least 2.
        groups: (M,) groups of the rows; None if every row stands alone.
        seed: Seed of the bootstrap.
    """
    owner = "candidate_matching_of_ranks"
    count = check_count(candidates, owner=owner, param="candidates", minimum=2)
    given = _integers(ranks, None, 1, count, owner=owner, param="ranks")
    return _estimates(given - 1, np.ones_like(given), count, groups, seed, owner)


def _estimates(
    above: IntArray, tied: IntArray, candidates: int, groups: Any, seed: int, owner: str
) -> dict[str, Estimate]:
    rows = len(above)
    index, _ = group_index(groups, rows, owner=owner)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, candidates + 1))])
    first = (above == 0) / tied
    reciprocal = (harmonic[above + tied] - harmonic[above]) / tied
    each = np.ones(rows)
    if groups is None:
        ends = share_interval(first)
    else:
        ends = cluster_bootstrap(first, each, index, seed=seed)
    top = Estimate("top-1 accuracy", float(first.mean()), *ends, rows, 1 / candidates)
    ends = cluster_bootstrap(reciprocal, each, index, seed=seed)
    chance = float(harmonic[-1]) / candidates
    mrr = Estimate("MRR", float(reciprocal.mean()), *ends, rows, chance)
    return {one.metric: one for one in (top, mrr)}


def _integers(
    value: Any, rows: int | None, low: int, high: int, *, owner: str, param: str
) -> IntArray:
    given = np.asarray(value)
    if given.ndim != 1 or not given.size or (rows is not None and given.size != rows):
        raise InvalidInputError.of(owner, param, f"of shape ({'M >= 1' if rows is None else rows},)",
                                   f"shape {given.shape}")  # fmt: skip
    if given.dtype.kind not in "iu" or given.min() < low or given.max() > high:
        raise InvalidInputError(
            message(owner, param, f"whole numbers from {low} to {high}",
                    f"dtype {given.dtype}" if given.dtype.kind not in "iu" else "one outside")
        )  # fmt: skip
    return given.astype(np.int64)
