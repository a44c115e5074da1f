"""Metrics of leakage: token inference, detection and candidate matching.

Token inference gives each text a score per token of the vocabulary; the labels mark the tokens in the text. Detection
is a yes-or-no attack (membership, a binary attribute): validation scores of other rows choose its thresholds, so the
choice biases no figure. The credit for ties is the average over random orders of equal scores, so a constant score
earns exactly chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.privacy.utility.estimates import LEVEL, Estimate, group_index, share_estimate, share_interval
from vecveil.privacy.utility.ranking import checked_scores, checked_tokens, top_credit
from vecveil.validation import check_count, check_probability

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_PRESENT = 0.5  # probability above which a token counts as reconstructed


@dataclass(frozen=True, slots=True)
class TermTable:
    """Counts and hits per token, in the order of the vocabulary.

    ``counts`` (V,) are texts that contain the token, ``hits`` those where the attack ranks it among the k best (ties as
    fractions), ``chance`` the hits of a ranking by base rates, or None.
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


def r_precision(scores: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0) -> Estimate:
    """Return the share of true tokens among each text's k best, k being its number of tokens.

    Micro-averaged over token instances (n counts them); texts without a token are omitted.

    Args:
        scores: (N, V) scores; higher means more likely.
        labels: (N, V) 0/1.
        groups: (N,) text groups for the interval; None for independent texts.
        base_rates: (V,) training base rates; ranking by them gives the chance level.
    """
    s, true, index = checked_tokens(scores, labels, groups, owner="r_precision")
    return _share_at("R-precision", s, true, true.sum(axis=1), index, base_rates, seed)


def top_accuracy(
    scores: Any, labels: Any, groups: Any = None, *, k: int = 5, base_rates: Any = None, seed: int = 0
) -> Estimate:
    """Return the share of true token instances that rank among their text's ``k`` best.

    Arguments as in `r_precision`; a text with more than ``k`` tokens cannot reach 1.
    """
    s, true, index = checked_tokens(scores, labels, groups, owner="top_accuracy")
    places = np.full(len(s), check_count(k, owner="top_accuracy", param="k"))
    return _share_at(f"top-{k}", s, true, places, index, base_rates, seed)


def leakage(probabilities: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0) -> Estimate:
    """Return the share of true token instances with a probability above 0.5 (SPARSE Eq. 13)."""
    s, true, index = checked_tokens(probabilities, labels, groups, owner="leakage", bounded=True)
    rates = _check_rates(base_rates, true.shape[1], owner="leakage")
    # Chance calls every token present whose base rate is above it.
    guess = None if rates is None else (rates > _PRESENT).astype(np.float64)
    return _mean_at_true("Leakage", (s > _PRESENT).astype(np.float64), true, index, guess, seed)


def confidence(
    probabilities: Any, labels: Any, groups: Any = None, *, base_rates: Any = None, seed: int = 0
) -> Estimate:
    """Return the mean probability that the attack gives to the true token instances (SPARSE Eq. 14)."""
    s, true, index = checked_tokens(probabilities, labels, groups, owner="confidence", bounded=True)
    rates = _check_rates(base_rates, true.shape[1], owner="confidence")
    return _mean_at_true("Confidence", s, true, index, rates, seed)


def term_table(scores: Any, labels: Any, *, base_rates: Any = None) -> TermTable:
    """Return counts and hits per token, as `r_precision` counts them."""
    s, true, _ = checked_tokens(scores, labels, None, owner="term_table")
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


def _check_rates(base_rates: Any, width: int, *, owner: str) -> FloatArray | None:
    if base_rates is None:
        return None
    rates = np.asarray(base_rates, dtype=np.float64)
    if rates.shape != (width,) or not np.isfinite(rates).all():
        text = f"{owner}: `base_rates` takes {width} finite numbers, one for each token."
        raise InvalidInputError(text, param="base_rates")
    return rates


# Leakage per subject, the person that texts are about, with the subject's texts pooled. As in SPIA (arXiv
# 2604.21211), an attribute of a subject counts once, in however many texts it occurs. Its individual protection rate
# (IPR) is 1 - `MEAN`, its collective protection rate (CPR) 1 - `SHARE`. Intervals resample subjects.
ANY = "subjects with a word read"
MEAN = "words of a subject read, mean"
SHARE = "words of all subjects read"
FOUND = "subjects singled out"


def subjects_read(
    evidence: FloatArray, labels: npt.NDArray[Any], subjects: Rows, *, base_rates: FloatArray, seed: int = 0
) -> dict[str, Estimate]:
    """Return by name how much of each subject's words an attacker recovers who knows which texts share a subject.

    For each subject the tokens are ranked by the sum of their evidence over the texts; of A tokens that the subject's
    texts contain, those among the A best count as recovered. Chance ranks by base rates, for every subject alike. The
    result is empty if no subject's text contains a token.

    Args:
        evidence: (N, V) evidence that a text contains a token; higher means more likely.
        labels: (N, V) 0/1.
        subjects: (N,) number of each text's subject; below 0: of no subject.
        base_rates: (V,) share of the training subjects that contain each token.
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
    """Return (P, V): the tokens in any text of each subject, subjects in the order of their numbers."""
    own = subjects >= 0
    names, index = np.unique(subjects[own], return_inverse=True)
    held = np.zeros((len(names), labels.shape[1]), dtype=bool)
    np.logical_or.at(held, index, labels[own].astype(bool))
    return held


def subjects_found(hits: FloatArray, subjects: Rows, *, candidates: int, seed: int = 0) -> dict[str, Estimate]:
    """Return the share of subjects with at least one row matched to its text; empty without subjects.

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


IntArray = npt.NDArray[np.int64]


def advantage(scores: Any, labels: Any, validation_scores: Any, validation_labels: Any, groups: Any = None) -> Estimate:
    """Return TPR - FPR, in [-1, 1], at the threshold that maximises it on validation scores.

    Scores of at least the threshold mean "member"; of equally good thresholds the highest is taken, and if none gains
    anything no row is called a member (advantage 0). The interval is the worst combination of both rates'
    Clopper–Pearson intervals at 97.5 %, so it covers at least 95 % (Bonferroni); for groups by the effective counts of
    `share_interval`. It holds for the chosen threshold; a better one may exist. n counts rows, chance is 0.

    Args:
        validation_scores: (M,) scores of other rows by the same attack.
        validation_labels: (M,) 0/1, both of which occur.

    Other arguments as in `auc`.
    """
    owner = "advantage"
    s, true = checked_scores(scores, labels, owner=owner)
    known, member = checked_scores(validation_scores, validation_labels, owner=owner, part="validation_")
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
    """Return the true-positive rate at a given false-positive rate.

    Scores above the k-th largest of the m validation negatives mean "member", k = floor(rate · (m + 1)). A new negative
    is then a false positive with probability at most k / (m + 1) (exchangeable scores, on average over validation sets;
    equality without ties), so chance is the rate itself. With m < 1 / rate the result is None: the threshold would lie
    beyond all observed scores.

    The interval is Clopper–Pearson's (`share_interval` for groups), given the threshold; it excludes the variation of
    the threshold between validation sets. n counts members.

    Args:
        false_positive_rate: In (0, 1); lower is the stricter test and needs more negatives.

    Other arguments as in `advantage`.
    """
    owner = "tpr_at_fpr"
    s, true = checked_scores(scores, labels, owner=owner)
    known, member = checked_scores(validation_scores, validation_labels, owner=owner, part="validation_")
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
    """Return the score whose rule ">=" has the largest TPR - FPR; infinity if none is above 0."""
    thresholds = np.unique(scores)[::-1]
    held, free = np.sort(scores[labels]), np.sort(scores[~labels])
    # Shares of members and of the others below each threshold: 1 − TPR and 1 − FPR.
    missed = np.searchsorted(held, thresholds) / held.size
    spared = np.searchsorted(free, thresholds) / free.size
    gain = spared - missed  # TPR - FPR
    best = int(gain.argmax())
    return float(thresholds[best]) if gain[best] > 0 else math.inf


def candidate_matching(scores: Any, truth: Any, groups: Any = None, *, seed: int = 0) -> dict[str, Estimate]:
    """Return "top-1 accuracy" and "MRR" (mean reciprocal rank) by name; n counts rows.

    Chance is 1/C and H_C/C, H_C being the harmonic number: a random order. The accuracy's interval is Clopper–Pearson's
    without groups and resampled by group with them; MRR's is resampled.

    Args:
        scores: (M, C) a score for each candidate, higher means more likely; M >= 1, C >= 2.
        truth: (M,) the column of the true candidate.
        groups: (M,) groups of the rows; None for independent rows.
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
    """Return `candidate_matching` from the ranks (M,) of the true candidates, with ties broken at random."""
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
        text = f"{owner}: `{param}` takes whole numbers from {low} to {high}."
        raise InvalidInputError(text, code="E-INPUT-VALUES", param=param)
    return given.astype(np.int64)
