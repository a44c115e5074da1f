"""Metrics of detection (AUC, advantage, TPR at a low FPR) and of candidate matching (top-1 accuracy, MRR).

Detection is a yes-or-no attack (membership, a binary attribute). Thresholds are chosen on validation scores
of other rows, never on the reported ones, so that the choice biases no figure. Ties in matching are shared out: the
credit is the average over random orders of equal scores, so a constant score earns exactly chance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.metrics.estimates import LEVEL, Estimate, group_index, share_estimate, share_interval
from vecveil.metrics.token_inference import check_binary, macro_auc
from vecveil.validation import check_count, check_probability

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def auc(scores: Any, labels: Any, groups: Any = None) -> Estimate:
    """Return the area under the ROC curve, ties counting half; n counts rows, chance is 0.5.

    The interval is DeLong's, by groups where they are given, as in `macro_auc`.

    Args:
        scores: (N,) higher is likelier a member.
        labels: (N,) 0/1, both of which occur.
        groups: (N,) groups of the rows, for the interval; None if every row stands alone.
    """
    s, true = _check(scores, labels, owner="auc")
    return replace(macro_auc(s[:, None], true[:, None], groups), n=len(s))


def advantage(scores: Any, labels: Any, validation_scores: Any, validation_labels: Any, groups: Any = None) -> Estimate:
    """Return TPR - FPR, in [-1, 1], at the threshold that maximises it on validation scores.

    The rule says "member" at scores of at least the threshold; of equally good thresholds the
    highest is taken, and where none gains anything no row is called a member (advantage 0).
    The interval takes both rates' Clopper–Pearson intervals at 97.5 % and their worst combination,
    so it covers at least 95 % (Bonferroni); for groups by the effective counts of `share_interval`.
    It holds for the chosen threshold; a better one may exist. n counts rows, chance is 0.

    Args:
        validation_scores: (M,) scores of other rows by the same attack.
        validation_labels: (M,) 0/1, both of which occur.

    Other arguments as in `auc`.
    """
    owner = "advantage"
    s, true = _check(scores, labels, owner=owner)
    known, member = _check(validation_scores, validation_labels, owner=owner, part="validation_")
    index, _ = group_index(groups, len(s), owner=owner)
    flagged = (s >= _best_threshold(known, member)).astype(np.float64)
    level = 1 - (1 - LEVEL) / 2  # Bonferroni: two intervals must hold at once
    tpr_low, tpr_high = share_interval(flagged[true], index[true], level=level)
    fpr_low, fpr_high = share_interval(flagged[~true], index[~true], level=level)
    value = float(flagged[true].mean() - flagged[~true].mean())
    return Estimate("advantage", value, tpr_low - fpr_high, tpr_high - fpr_low, len(s), 0.0)


def tpr_at_fpr(
    scores: Any,
    labels: Any,
    validation_scores: Any,
    validation_labels: Any,
    groups: Any = None,
    *,
    false_positive_rate: float,
) -> Estimate | None:
    """Return the true-positive rate where at most a given share of the others is accused.

    The rule says "member" at scores above the k-th largest of the m validation negatives,
    k = floor(rate · (m + 1)). A new negative is then accused with probability at most k / (m + 1)
    (exchangeable scores, on average over validation sets; equality without ties), so chance is the
    rate itself. With m < 1 / rate there is no figure, and the result is None: the threshold would
    lie beyond all scores seen.

    The interval is Clopper–Pearson's (`share_interval` for groups), given the threshold; it leaves out the
    variation of the threshold between validation sets. n counts members.

    Args:
        false_positive_rate: In (0, 1); lower is the stricter test and needs more negatives.

    Other arguments as in `advantage`.
    """
    owner = "tpr_at_fpr"
    s, true = _check(scores, labels, owner=owner)
    known, member = _check(validation_scores, validation_labels, owner=owner, part="validation_")
    index, _ = group_index(groups, len(s), owner=owner)
    rate = check_probability(false_positive_rate, owner=owner, param="false_positive_rate", open_interval=True)
    negatives = np.sort(known[~member])[::-1]  # the threshold is an order statistic of these
    slack = 1e-9  # 0.01 · 100 and the like, which floats may put just below a whole number
    if rate * negatives.size < 1 - slack:
        return None
    allowed = math.floor(rate * (negatives.size + 1) + slack)
    # Strictly above: ties with the k-th largest negative are not accused.
    hits = (s[true] > negatives[allowed - 1]).astype(np.float64)
    ends = share_interval(hits, index[true])
    return Estimate(f"TPR at {100 * rate:g} % FPR", float(hits.mean()), *ends, hits.size, rate)


def _best_threshold(scores: FloatArray, labels: BoolArray) -> float:
    """Return the score whose rule ">=" has the greatest TPR - FPR; infinity if none has any."""
    thresholds = np.unique(scores)[::-1]
    held, free = np.sort(scores[labels]), np.sort(scores[~labels])
    # Shares of members and of the others below each threshold: 1 − TPR and 1 − FPR.
    missed = np.searchsorted(held, thresholds) / held.size
    spared = np.searchsorted(free, thresholds) / free.size
    gain = spared - missed  # TPR - FPR
    best = int(gain.argmax())
    return float(thresholds[best]) if gain[best] > 0 else math.inf


def _check(scores: Any, labels: Any, *, owner: str, part: str = "") -> tuple[FloatArray, BoolArray]:
    s, given = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if s.ndim != 1 or given.shape != s.shape:
        raise wrong_shape(owner, f"{part}labels", f"(N,) like `{part}scores`, which has {s.shape}", given.shape)
    if not np.isfinite(s).all():
        raise not_finite(owner, f"{part}scores")
    true = check_binary(given, owner=owner, param=f"{part}labels")
    if true.all() or not true.any():
        text = f"{owner}: `{part}labels` has one class only in {len(s)} rows."
        raise InvalidInputError(text, code="E-INPUT-CLASSES", param=f"{part}labels")
    return s, true


def candidate_matching(scores: Any, truth: Any, groups: Any = None, *, seed: int = 0) -> dict[str, Estimate]:
    """Return "top-1 accuracy" and "MRR" (mean reciprocal rank) by name; n counts rows.

    Chance is 1/C and H_C/C, H_C being the harmonic number: a random order. The accuracy's interval
    is Clopper–Pearson's without groups and resampled by group with them; MRR's is resampled.

    Args:
        scores: (M, C) a score for each candidate, higher is likelier; M >= 1, C >= 2.
        truth: (M,) the column of the right candidate.
        groups: (M,) groups of the rows; None if every row stands alone.
    """
    owner = "candidate_matching"
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim != 2 or len(s) < 1 or s.shape[1] < 2:
        raise wrong_shape(owner, "scores", "(M, C) with M of at least 1 and C of at least 2", s.shape)
    if not np.isfinite(s).all():
        raise not_finite(owner, "scores")
    columns = s.shape[1]
    right = _integers(truth, len(s), 0, columns - 1, owner=owner, param="truth")
    target = np.take_along_axis(s, right[:, None], axis=1)
    above, tied = (s > target).sum(axis=1), (s == target).sum(axis=1)
    return _matching_estimates(above, tied, columns, groups, seed, owner)


def candidate_matching_of_ranks(
    ranks: Any, candidates: int, groups: Any = None, *, seed: int = 0
) -> dict[str, Estimate]:
    """Return the same as `candidate_matching` from the right candidates' ranks.

    Args:
        ranks: (M,) whole numbers from 1 (best) to ``candidates``; ties must be broken at random
            already, or they flatter the attack.
        candidates: C, at least 2.
    """
    owner = "candidate_matching_of_ranks"
    count = check_count(candidates, owner=owner, param="candidates", minimum=2)
    given = _integers(ranks, None, 1, count, owner=owner, param="ranks")
    return _matching_estimates(given - 1, np.ones_like(given), count, groups, seed, owner)


def _matching_estimates(
    above: IntArray, tied: IntArray, candidates: int, groups: Any, seed: int, owner: str
) -> dict[str, Estimate]:
    index, _ = group_index(groups, len(above), owner=owner)
    # Sums of 1/rank over tied places, as differences of harmonic numbers.
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, candidates + 1))])
    # The credit for first place is shared by the candidates tied for it.
    first = (above == 0) / tied
    reciprocal = (harmonic[above + tied] - harmonic[above]) / tied
    name, chance = "top-1 accuracy", 1 / candidates
    # Without groups the rows are independent, and the exact interval applies.
    if groups is None:
        ends = share_interval(first)
        top = Estimate(name, float(first.mean()), *ends, len(above), chance)
    else:
        top = share_estimate(name, first, groups=index, chance=chance, seed=seed)
    chance = float(harmonic[-1]) / candidates
    return {name: top, "MRR": share_estimate("MRR", reciprocal, groups=index, chance=chance, seed=seed)}


def _integers(value: Any, rows: int | None, low: int, high: int, *, owner: str, param: str) -> IntArray:
    given = np.asarray(value)
    if given.ndim != 1 or not given.size or (rows is not None and given.size != rows):
        raise wrong_shape(owner, param, f"({'M' if rows is None else rows},)", given.shape)
    if given.dtype.kind not in "iu" or given.min() < low or given.max() > high:
        text = f"{owner}: `{param}` holds whole numbers from {low} to {high}."
        raise InvalidInputError(text, code="E-INPUT-VALUES", param=param)
    return given.astype(np.int64)
