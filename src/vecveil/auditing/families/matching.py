"""Candidate matching and alignment: identify the text of a vector, and map vectors back to clean ones."""

from __future__ import annotations

import numpy as np

from vecveil.attacks import (
    CandidateAttack,
    CandidateVectors,
    CosineMatching,
    FixedNormMatching,
    LikelihoodMatching,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
    split_groups,
)
from vecveil.auditing.case import Case, Rows, Side
from vecveil.auditing.jobs import Job, attack_job
from vecveil.records.audit import SkippedAttack
from vecveil.types import Embeddings

__all__ = ["alignment_jobs", "candidate_jobs"]

MOST_DECOYS = 5000  # every released vector is compared with every candidate
NO_CLEAN = (
    "It compares with clean vectors of the candidate texts, and there are none: give the encoder."
)
NO_VARIANTS = (
    "It needs the encoder, a concept of words, and texts whose word can be exchanged for others."
)
OTHER_SPACE = "It measures from clean vectors to released ones, and these have another dimension."
MATCHERS: tuple[tuple[str, type[CandidateAttack]], ...] = (
    ("cosine", CosineMatching),
    ("likelihood", LikelihoodMatching),
    ("norm", FixedNormMatching),
)
ALIGNMENTS = (
    ("alignment-permutation", PermutationAlignment),
    ("alignment-procrustes", ProcrustesAlignment),
    ("alignment-ridge", RidgeAlignment),
)
UNPAIRED = "alignment-unpaired"


def candidate_jobs(case: Case, side: Side) -> tuple[list[Job], list[SkippedAttack]]:
    """Return candidate matching among decoys and among substituted terms, by cosine, likelihood and norm."""
    clean = case.embeddings
    if clean is None:
        names = [f"{what}-{how}" for what in ("decoys", "substitution") for how, _ in MATCHERS]
        return [], [SkippedAttack(name, "candidates", NO_CLEAN) for name in names]
    rows = _training_rows(case)
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    versions, exchanged = case.substitutes, None
    if versions is not None:
        exchanged = CandidateVectors(
            side.judged[versions.rows], versions.pool, versions.truth, versions.options,
            case.groups[versions.rows],
        )  # fmt: skip
    tests = (("decoys", _decoys(case, side, clean), 4.0), ("substitution", exchanged, 3.0))
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    for what, test, weight in tests:
        for how, maker in MATCHERS:
            name = f"{what}-{how}"
            if test is None:
                skipped.append(SkippedAttack(name, "candidates", NO_VARIANTS))
            elif maker is FixedNormMatching and side.judged.shape[1] != clean.shape[1]:
                skipped.append(SkippedAttack(name, "candidates", OTHER_SPACE))
            else:
                runnable.append(
                    attack_job(maker(), side, train, test, case.options, name=name, weight=weight)
                )
    return runnable, skipped


def alignment_jobs(case: Case, side: Side) -> tuple[list[Job], list[SkippedAttack]]:
    """Return the known-plaintext attacks, and in tier full the one without known pairs."""
    clean, options = case.embeddings, case.options
    is_full = options.tier == "full"
    if clean is None:
        names = [name for name, _ in ALIGNMENTS] + [UNPAIRED] * is_full
        return [], [SkippedAttack(name, "alignment", NO_CLEAN) for name in names]
    rows = _training_rows(case)
    store = _decoys(case, side, clean)
    # These attack a secret map: the attacker knows texts of the store, and has no protector to query.
    known = PairedVectors(side.judged[rows], clean[rows], case.groups[rows])
    runnable = [
        attack_job(maker(), side, known, store, options, name=name, weight=4.0, oracle=False)
        for name, maker in ALIGNMENTS
    ]
    # Two disjoint halves of equal size: pairs that share a text would make the problem one of known pairs.
    if is_full:
        halves = split_groups(case.groups[rows], (0.5, 0.5), seed=options.seed)
        count = min(map(len, halves))
        stolen, own = (rows[half[:count]] for half in halves)
        apart = PairedVectors(side.judged[stolen], clean[own])
        runnable.append(
            attack_job(
                UnpairedAlignment(), side, apart, store, options,
                name=UNPAIRED, weight=30.0, oracle=False,
            )
        )  # fmt: skip
    return runnable, []


def _training_rows(case: Case) -> Rows:
    return np.sort(np.concatenate([case.train, case.ordinary_train]))


def _decoys(case: Case, side: Side, clean: Embeddings) -> CandidateVectors:
    """Return the candidates to search: the test texts, at most 5,000 at random."""
    every = np.concatenate([case.test, case.ordinary_test])
    rng = np.random.default_rng([case.options.seed, 8])
    rows = np.sort(rng.permutation(every)[:MOST_DECOYS])
    return CandidateVectors(
        side.judged[rows], clean[rows], np.arange(len(rows)), groups=case.groups[rows]
    )
