"""Metrics of token inference: R-precision, top-5 accuracy, AUC, Leakage, Confidence.

An attack gives each text a score per token of the vocabulary; the labels say which tokens the text
holds. Ties are shared out: with equal scores a token counts with the probability that a
random order would put it among the best, so a constant score earns exactly chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.stats takes a second

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.metrics.estimates import Estimate, cluster_normal, group_index, share_estimate
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_PRESENT = 0.5  # probability above which a token counts as reconstructed


@dataclass(frozen=True, slots=True)
class TermTable:
    """Counts and hits per token, in the order of the vocabulary.

    Attributes:
        counts: (V,) texts that hold the token.
        hits: (V,) how many of these the attack ranked among the text's k best (ties as fractions).
        chance: (V,) the same for a ranking by base rates; None without base rates.
    """

    counts: npt.NDArray[np.int64]
    hits: FloatArray
    chance: FloatArray | None = None

    def to_records(self) -> list[dict[str, Any]]:
        """Return one object per token that occurs, most frequent first, named by its index."""
        # A stable sort: equal counts stay in the order of the vocabulary.
        order = np.argsort(-self.counts, kind="stable")
        return [
            {
                "token": int(i),
                "count": int(self.counts[i]),
                "value": float(self.hits[i] / self.counts[i]),
                "chance": None if self.chance is None else float(self.chance[i] / self.counts[i]),
            }
            for i in order
            if self.counts[i] > 0
        ]


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
        raise InvalidInputError(f"{owner}: `{param}` holds 0 and 1 only.", code="E-INPUT-VALUES", param=param)
    return labels.astype(np.bool_)


def top_credit(scores: FloatArray, k: npt.NDArray[np.integer[Any]]) -> FloatArray:
    """Return, for each row and token, the probability of being among the row's ``k`` best.

    It is 1 above the k-th best score, 0 below it, and an equal share of the places left at a tie. ``scores`` are
    (N, V), ``k`` is (N,), 0 to V.
    """
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


def r_precision(scores: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0) -> Estimate:
    """Return the share of true tokens among each text's k best, k being how many tokens it holds.

    Micro-averaged over token instances (n counts them); texts without a token are left out.

    Args:
        scores: (N, V) scores, higher is likelier.
        labels: (N, V) 0/1.
        groups: (N,) text groups for the interval; None if every text stands alone.
        base_rates: (V,) training base rates; ranking by them gives the chance level.
    """
    s, true, index = _check(scores, labels, groups, owner="r_precision")
    return _share_at("R-precision", s, true, true.sum(axis=1), index, base_rates, seed)


def top_accuracy(
    scores: Any, labels: Any, groups: Any = None, *, k: int = 5, base_rates: Any = None, seed: int = 0
) -> Estimate:
    """Return the share of true token instances that rank among their text's ``k`` best.

    Arguments as in `r_precision`; a text with more than ``k`` tokens cannot reach 1.
    """
    s, true, index = _check(scores, labels, groups, owner="top_accuracy")
    places = np.full(len(s), check_count(k, owner="top_accuracy", param="k"))
    return _share_at(f"top-{k}", s, true, places, index, base_rates, seed)


def macro_auc(scores: Any, labels: Any, groups: Any = None) -> Estimate:
    """Return the mean area under the ROC curve over tokens that some texts hold and some do not.

    n counts these tokens. The interval is the normal one from the placement values summed by group
    (DeLong, DeLong and Clarke-Pearson 1988; for groups Obuchowski 1997).
    """
    owner = "macro_auc"
    s, true, index = _check(scores, labels, groups, owner=owner)
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
    """Return, for each token, whether some texts hold it and some do not."""
    held = labels.sum(axis=0)
    both: BoolArray = (held > 0) & (held < len(labels))
    return both


def leakage(probabilities: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0) -> Estimate:
    """Return the share of true token instances with a probability above 0.5.

    Formula: SPARSE Eq. 13; the reconstruction of a text is every token with a probability above 0.5. Tokens that
    it invents are not counted.
    """
    s, true, index = _check(probabilities, labels, groups, owner="leakage", bounded=True)
    rates = _check_rates(base_rates, true.shape[1], owner="leakage")
    # Chance calls every token present whose base rate is above it.
    guess = None if rates is None else (rates > _PRESENT).astype(np.float64)
    return _mean_at_true("Leakage", (s > _PRESENT).astype(np.float64), true, index, guess, seed)


def confidence(
    probabilities: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0
) -> Estimate:
    """Return the mean probability that the attack gives to the true token instances (SPARSE Eq. 14)."""
    s, true, index = _check(probabilities, labels, groups, owner="confidence", bounded=True)
    rates = _check_rates(base_rates, true.shape[1], owner="confidence")
    return _mean_at_true("Confidence", s, true, index, rates, seed)


def term_table(scores: Any, labels: Any, *, base_rates: Any = None) -> TermTable:
    """Return counts and hits per token, by the rule of `r_precision`."""
    s, true, _ = _check(scores, labels, None, owner="term_table")
    k = true.sum(axis=1)
    rates = _check_rates(base_rates, true.shape[1], owner="term_table")
    chance = None
    if rates is not None:
        chance = np.where(true, top_credit(np.broadcast_to(rates, s.shape), k), 0.0).sum(axis=0)
    hits = np.where(true, top_credit(s, k), 0.0).sum(axis=0)
    return TermTable(true.sum(axis=0), hits, chance)


def _share_at(
    metric: str,
    scores: FloatArray,
    true: BoolArray,
    k: npt.NDArray[np.integer[Any]],
    index: npt.NDArray[np.intp],
    base_rates: Any,
    seed: int,
) -> Estimate:
    held = true.sum(axis=1)
    hits = np.where(true, top_credit(scores, k), 0.0).sum(axis=1)
    rates = _check_rates(base_rates, true.shape[1], owner=metric)
    chance = None
    if rates is not None:
        # Ranking by base rates needs no vector: every text gets the same order.
        guess = top_credit(np.broadcast_to(rates, scores.shape), k)
        chance = float(guess[true].sum()) / int(held.sum())
    return share_estimate(metric, hits, held, index, chance=chance, seed=seed)


def _mean_at_true(
    metric: str, values: FloatArray, true: BoolArray, index: npt.NDArray[np.intp], guess: FloatArray | None, seed: int
) -> Estimate:
    # A micro-average: every token instance weighs the same.
    held = true.sum(axis=1)
    sums = np.where(true, values, 0.0).sum(axis=1)
    chance = None if guess is None else float((true @ guess).sum()) / int(held.sum())
    return share_estimate(metric, sums, held, index, chance=chance, seed=seed)


def _check(
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
        raise InvalidInputError(f"{owner}: `{param}` holds numbers from 0 to 1.", param=param)
    if not true.any():
        raise InvalidInputError(f"{owner}: `labels` holds zeros only.", code="E-INPUT-CLASSES", param="labels")
    index, _ = group_index(groups, len(s), owner=owner)
    return s, true, index


def _check_rates(base_rates: Any, width: int, *, owner: str) -> FloatArray | None:
    if base_rates is None:
        return None
    rates = np.asarray(base_rates, dtype=np.float64)
    if rates.shape != (width,) or not np.isfinite(rates).all():
        text = f"{owner}: `base_rates` holds {width} finite numbers, one for each token."
        raise InvalidInputError(text, param="base_rates")
    return rates


# Leakage per subject, the person that texts are about: the texts of one subject are pooled. As in SPIA (arXiv
# 2604.21211), an attribute of a subject counts once, in however many texts it occurs. Its individual protection rate
# (IPR) is 1 - `MEAN`, its collective protection rate (CPR) 1 - `SHARE`. Intervals resample subjects.
ANY = "subjects with a word read"
MEAN = "words of a subject read, mean"
SHARE = "words of all subjects read"
FOUND = "subjects singled out"


def subjects_read(
    evidence: FloatArray, labels: npt.NDArray[Any], subjects: Rows, *, base_rates: FloatArray, seed: int = 0
) -> dict[str, Estimate]:
    """Return by name how much of each subject's words an attack reads who knows which texts are of one subject.

    For each subject the tokens are ranked by the sum of their evidence over the texts; of A tokens that the subject's
    texts hold, those among the A best count as read. Chance ranks by base rates, for every subject alike. The result is
    empty if no subject's text holds a token.

    Args:
        evidence: (N, V) evidence that a text holds a token; higher is likelier.
        labels: (N, V) 0/1.
        subjects: (N,) number of each text's subject; below 0: of no subject.
        base_rates: (V,) share of the training subjects that hold each token.
    """
    own = subjects >= 0
    names, index = np.unique(subjects[own], return_inverse=True)
    held = pooled_labels(labels, subjects)
    pooled = np.zeros((len(names), evidence.shape[1]))
    np.add.at(pooled, index, evidence[own])
    some = held.any(axis=1)
    if not some.any():
        return {}
    held, pooled = held[some], pooled[some]
    count = held.sum(axis=1)
    credit, guess = (
        np.where(held, top_credit(scores, count), 0.0) for scores in (pooled, np.broadcast_to(base_rates, pooled.shape))
    )

    def any_of(credits: FloatArray) -> FloatArray:
        # Ties count by fractions: the probability that at least one is among the best.
        some_read: FloatArray = 1 - np.prod(1 - credits, axis=1)
        return some_read

    read, guessed = credit.sum(axis=1), guess.sum(axis=1)
    return {
        "subjects": share_estimate(ANY, any_of(credit), chance=float(any_of(guess).mean()), seed=seed),
        "subject_mean": share_estimate(MEAN, read / count, chance=float((guessed / count).mean()), seed=seed),
        "subject_share": share_estimate(SHARE, read, count, chance=float(guessed.sum() / count.sum()), seed=seed),
    }


def pooled_labels(labels: npt.NDArray[Any], subjects: Rows) -> npt.NDArray[np.bool_]:
    """Return (P, V): the tokens that any text of each subject holds, subjects in the order of their numbers."""
    own = subjects >= 0
    names, index = np.unique(subjects[own], return_inverse=True)
    held = np.zeros((len(names), labels.shape[1]), dtype=bool)
    np.logical_or.at(held, index, labels[own].astype(bool))
    return held


def subjects_found(hits: FloatArray, subjects: Rows, *, candidates: int, seed: int = 0) -> dict[str, Estimate]:
    """Return the share of subjects of whom at least one row was matched to its text; empty without subjects.

    Args:
        hits: (M,) credit of each row's match, in [0, 1].
        subjects: (M,) number of each row's subject; below 0: of no subject.
        candidates: texts among which each row is matched; chance is a random match for each row.
    """
    own = subjects >= 0
    if not own.any():
        return {}
    _, index, rows = np.unique(subjects[own], return_inverse=True, return_counts=True)
    missed = np.ones(len(rows))
    np.multiply.at(missed, index, 1 - hits[own])
    chance = float((1 - (1 - 1 / candidates) ** rows).mean())
    return {"subjects": share_estimate(FOUND, 1 - missed, chance=chance, seed=seed)}
