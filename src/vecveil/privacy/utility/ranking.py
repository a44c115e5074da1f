"""Credit of ranks with ties, and areas under ROC curves, with the checks of scores and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.stats takes a second

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.privacy.utility.estimates import Estimate, cluster_normal, group_index

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def check_labels(value: Any, *, owner: str, param: str = "labels") -> BoolArray:
    """Return ``value`` as booleans of shape (N, V), V >= 1; refuse numbers other than 0 and 1."""
    labels = np.asarray(value)
    if labels.ndim != 2 or labels.shape[1] == 0:
        raise wrong_shape(owner, param, "(N, V) with V of at least 1", labels.shape)
    return check_binary(labels, owner=owner, param=param)


def check_binary(labels: npt.NDArray[Any], *, owner: str, param: str) -> BoolArray:
    """Return ``labels`` as booleans; refuse numbers other than 0 and 1."""
    if labels.dtype == np.bool_:
        return labels
    if labels.dtype.kind not in "iuf" or not bool(((labels == 0) | (labels == 1)).all()):
        raise InvalidInputError(f"{owner}: `{param}` takes only 0 and 1.", code="E-INPUT-VALUES", param=param)
    return labels.astype(np.bool_)


def top_credit(scores: FloatArray, k: npt.NDArray[np.integer[Any]]) -> FloatArray:
    """Return (N, V) the probability of each token to be among the row's ``k`` (N,) best, with ties shared."""
    rows, width = scores.shape
    k = np.minimum(np.asarray(k, dtype=np.int64), width)
    # With k = 0 any threshold serves: the credit is set to 0 below.
    place = np.minimum(width - k, width - 1)
    ordered = np.partition(scores, np.unique(place), axis=1)
    threshold = ordered[np.arange(rows), place][:, None]
    above = scores > threshold
    tied = scores == threshold
    places = (k - above.sum(axis=1)) / tied.sum(axis=1)
    credit: FloatArray = above + tied * places[:, None]
    credit[k == 0] = 0.0
    return credit


def macro_auc(scores: Any, labels: Any, groups: Any = None) -> Estimate:
    """Return the mean area under the ROC curve over tokens that some texts contain and some do not.

    n counts these tokens. The interval is the normal one from the placement values summed by group (DeLong, DeLong and
    Clarke-Pearson 1988; for groups Obuchowski 1997).
    """
    owner = "macro_auc"
    s, true, index = checked_tokens(scores, labels, groups, owner=owner)
    tokens = np.flatnonzero(tokens_with_both_classes(true))
    if tokens.size == 0:
        raise InvalidInputError(f"{owner}: `labels` has one class only for every token.", param="labels")
    # A row's influence on the mean AUC: its centred placement values, over all tokens.
    influence = np.zeros(len(s))
    total = 0.0
    for token in tokens:
        column, positive = s[:, token], true[:, token]
        held, free = column[positive], column[~positive]
        # Placement values: ranks among all less ranks within the own class.
        ranks = scipy.stats.rankdata(column)
        over_free = (ranks[positive] - scipy.stats.rankdata(held)) / len(free)
        under_held = 1.0 - (ranks[~positive] - scipy.stats.rankdata(free)) / len(held)
        area = float(over_free.mean())
        total += area
        influence[positive] += (over_free - area) / len(held)
        influence[~positive] += (under_held - area) / len(free)
    value = total / tokens.size
    ends = cluster_normal(value, influence / tokens.size, index)
    return Estimate("AUC", value, *ends, int(tokens.size), 0.5)


def tokens_with_both_classes(labels: BoolArray) -> BoolArray:
    held = labels.sum(axis=0)
    both: BoolArray = (held > 0) & (held < len(labels))
    return both


def checked_tokens(
    scores: Any, labels: Any, groups: Any, *, owner: str, bounded: bool = False
) -> tuple[FloatArray, BoolArray, npt.NDArray[np.intp]]:
    param = "probabilities" if bounded else "scores"
    true = check_labels(labels, owner=owner)
    s = np.asarray(scores, dtype=np.float64)
    if s.shape != true.shape:
        raise wrong_shape(owner, param, f"{true.shape} like `labels`", s.shape)
    if not np.isfinite(s).all():
        raise not_finite(owner, param)
    if bounded and s.size and (s.min() < 0 or s.max() > 1):
        raise InvalidInputError(f"{owner}: `{param}` takes numbers from 0 to 1.", param=param)
    if not true.any():
        raise InvalidInputError(f"{owner}: `labels` contains only zeros.", code="E-INPUT-CLASSES", param="labels")
    index, _ = group_index(groups, len(s), owner=owner)
    return s, true, index


def auc(scores: Any, labels: Any, groups: Any = None) -> Estimate:
    """Return the area under the ROC curve, ties counting half; n counts rows, chance is 0.5.

    The interval is DeLong's, by groups if given, as in `macro_auc`.

    Args:
        scores: (N,); higher means more likely a member.
        labels: (N,) 0/1, both of which occur.
        groups: (N,) groups of the rows, for the interval; None for independent rows.
    """
    s, true = checked_scores(scores, labels, owner="auc")
    return replace(macro_auc(s[:, None], true[:, None], groups), n=len(s))


def checked_scores(scores: Any, labels: Any, *, owner: str, part: str = "") -> tuple[FloatArray, BoolArray]:
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
