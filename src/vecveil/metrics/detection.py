"""How well scores tell members from others: AUC, advantage, true-positive rate at a low FPR.

For yes-or-no attacks (membership, a binary attribute). Thresholds are chosen on validation scores
of other rows, never on those that are reported, so that no figure is flattered by the choice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import LEVEL, group_index, share_interval
from vecveil.metrics.token_inference import macro_auc
from vecveil.validation import check_probability

__all__ = ["FALSE_POSITIVE_RATES", "advantage", "auc", "detection_metrics", "tpr_at_fpr"]

FALSE_POSITIVE_RATES = (0.001, 0.01)

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def detection_metrics(
    scores: Any,
    labels: Any,
    validation_scores: Any,
    validation_labels: Any,
    groups: Any = None,
) -> dict[str, Estimate]:
    """Return "AUC", "advantage", "TPR at 0.1 % FPR" and "TPR at 1 % FPR" by name.

    A rate that the validation negatives are too few for is absent (see `tpr_at_fpr`).

    Args:
        scores: (N,) higher is likelier a member.
        labels: (N,) 0/1, both of which occur.
        validation_scores: (M,) scores of other rows by the same attack.
        validation_labels: (M,) 0/1, both of which occur.
        groups: (N,) groups of the rows, for the intervals; None if every row stands alone.
    """
    validation = (validation_scores, validation_labels)
    estimates: list[Estimate | None] = [
        auc(scores, labels, groups),
        advantage(scores, labels, *validation, groups),
        *(
            tpr_at_fpr(scores, labels, *validation, groups, false_positive_rate=rate)
            for rate in FALSE_POSITIVE_RATES
        ),
    ]
    return {one.metric: one for one in estimates if one is not None}


def auc(scores: Any, labels: Any, groups: Any = None) -> Estimate:
    """Return the area under the ROC curve, ties counting half; n counts rows, chance is 0.5.

    The interval is DeLong's, by groups where they are given, as in `macro_auc`. Arguments as in
    `detection_metrics`.
    """
    s, true = _check(scores, labels, owner="auc")
    return replace(macro_auc(s[:, None], true[:, None], groups), n=len(s))


def advantage(
    scores: Any,
    labels: Any,
    validation_scores: Any,
    validation_labels: Any,
    groups: Any = None,
) -> Estimate:
    """Return TPR - FPR, in [-1, 1], at the threshold that has most of it on validation scores.

    The rule says "member" at scores of at least the threshold; of equally good thresholds the
    highest is taken, and where none gains anything nothing is said to be a member (advantage 0).
    The interval takes both rates' Clopper–Pearson intervals at 97.5 % and their worst combination,
    so it covers at least 95 % (Bonferroni); for groups by the effective counts of `share_interval`.
    It holds for the chosen threshold; a better one may exist. n counts rows, chance is 0.

    Arguments as in `detection_metrics`.
    """
    owner = "advantage"
    s, true = _check(scores, labels, owner=owner)
    known, member = _check(validation_scores, validation_labels, owner=owner, part="validation_")
    index, _ = group_index(groups, len(s), owner=owner)
    flagged = (s >= _best_threshold(known, member)).astype(np.float64)
    level = 1 - (1 - LEVEL) / 2
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
    """Return the share of members found where at most a given share of the others is accused.

    The rule says "member" at scores above the k-th largest of the m validation negatives,
    k = floor(rate · (m + 1)). A new negative is then accused with probability at most k / (m + 1)
    (exchangeable scores, on average over validation sets; equality without ties), so chance is the
    rate itself. With m < 1 / rate there is no figure, and the answer is None: the threshold would
    lie beyond all scores seen.

    The interval is Clopper–Pearson's (`share_interval` for groups), given the threshold: how much
    another validation set would move the threshold is not in it. n counts members.

    Args:
        false_positive_rate: In (0, 1); lower is the stricter test and needs more negatives.

    Other arguments as in `detection_metrics`.
    """
    owner = "tpr_at_fpr"
    s, true = _check(scores, labels, owner=owner)
    known, member = _check(validation_scores, validation_labels, owner=owner, part="validation_")
    index, _ = group_index(groups, len(s), owner=owner)
    rate = check_probability(
        false_positive_rate, owner=owner, param="false_positive_rate", open_interval=True
    )
    negatives = np.sort(known[~member])[::-1]
    slack = 1e-9  # 0.01 · 100 and the like, which floats may put just below a whole number
    if rate * negatives.size < 1 - slack:
        return None
    allowed = math.floor(rate * (negatives.size + 1) + slack)
    found = (s[true] > negatives[allowed - 1]).astype(np.float64)
    low, high = share_interval(found, index[true])
    metric = f"TPR at {100 * rate:g} % FPR"
    return Estimate(metric, float(found.mean()), low, high, found.size, rate)


def _best_threshold(scores: FloatArray, labels: BoolArray) -> float:
    """Return the score whose rule ">=" has the greatest TPR - FPR; infinity if none has any."""
    thresholds = np.unique(scores)[::-1]
    held, free = np.sort(scores[labels]), np.sort(scores[~labels])
    missed = np.searchsorted(held, thresholds) / held.size
    spared = np.searchsorted(free, thresholds) / free.size
    gain = spared - missed
    best = int(gain.argmax())
    return float(thresholds[best]) if gain[best] > 0 else math.inf


def _check(scores: Any, labels: Any, *, owner: str, part: str = "") -> tuple[FloatArray, BoolArray]:
    s, given = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if s.ndim != 1 or given.shape != s.shape:
        raise InvalidInputError.of(owner, f"{part}labels", f"of the shape (N,) of `{part}scores`",
                                   f"shapes {given.shape} and {s.shape}")  # fmt: skip
    if not np.isfinite(s).all():
        raise InvalidInputError.of(owner, f"{part}scores", "finite", "NaN or infinity")
    if given.dtype.kind not in "biuf" or not bool(((given == 0) | (given == 1)).all()):
        raise InvalidInputError.of(
            owner, f"{part}labels", "0 or 1 throughout", f"dtype {given.dtype}"
        )
    true = given.astype(np.bool_)
    if true.all() or not true.any():
        raise InvalidInputError.of(owner, f"{part}labels", "0 in one row and 1 in another",
                                   f"one class only in {len(s)} rows")  # fmt: skip
    return s, true
