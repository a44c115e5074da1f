"""Alignment in an audit: an attacker without the protector who knows some texts of the store."""

from __future__ import annotations

import numpy as np

from vecveil.attacks import (
    CandidateVectors,
    PairedVectors,
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
    split_groups,
)
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.families.candidates import NO_CLEAN, decoys_of
from vecveil.auditing.jobs import Job, attack_job

__all__ = ["jobs"]

FAMILY = "alignment"
_PAIRED = (
    ("alignment-permutation", PermutationAlignment),
    ("alignment-procrustes", ProcrustesAlignment),
    ("alignment-ridge", RidgeAlignment),
)


def jobs(case: Case, side: Side) -> tuple[list[Job], list[Skipped]]:
    """Return the known-plaintext attacks, and in tier full the one without known pairs."""
    clean = case.embeddings
    full = case.options.tier == "full"
    if clean is None:
        names = [name for name, _ in _PAIRED] + ["alignment-unpaired"] * full
        return [], [Skipped(name, FAMILY, NO_CLEAN) for name in names]
    rows = np.sort(np.concatenate([case.train, case.ordinary_train]))
    decoys = decoys_of(case)
    known = PairedVectors(side.judged[rows], clean[rows], case.groups[rows])
    store = CandidateVectors(
        side.judged[decoys], clean[decoys], np.arange(len(decoys)), groups=case.groups[decoys]
    )
    found = [
        attack_job(maker(), side, known, store, case.options, name=name, weight=4.0, oracle=False)
        for name, maker in _PAIRED
    ]
    if full:  # the attacker's own texts are others than those of the store
        halves = split_groups(case.groups[rows], (0.5, 0.5), seed=case.options.seed)
        count = min(map(len, halves))
        stolen, own = (rows[half[:count]] for half in halves)
        apart = PairedVectors(side.judged[stolen], clean[own])
        found.append(
            attack_job(
                UnpairedAlignment(), side, apart, store, case.options,
                name="alignment-unpaired", weight=30.0, oracle=False,
            )
        )  # fmt: skip
    return found, []
