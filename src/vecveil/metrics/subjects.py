"""Leakage per subject, the person that texts are about: the texts of one subject are pooled.

As in SPIA (arXiv 2604.21211), an attribute of a subject counts once, in however many texts it occurs. Its individual
protection rate (IPR) is 1 − `MEAN`, its collective protection rate (CPR) 1 − `SHARE`. Intervals resample subjects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.metrics.estimates import Estimate, share_estimate
from vecveil.metrics.token_inference import top_credit

ANY = "subjects with a word read"
MEAN = "words of a subject read, mean"
SHARE = "words of all subjects read"
FOUND = "subjects singled out"

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


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
