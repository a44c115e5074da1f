"""Candidate matching in an audit: which of some known texts is it?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks import (
    CandidateAttack,
    CandidateVectors,
    CosineMatching,
    FixedNormMatching,
    LikelihoodMatching,
    PairedVectors,
)
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job
from vecveil.auditing.substitution import Substitutes

__all__ = ["decoys_of", "jobs"]

FAMILY = "candidates"
MOST_DECOYS = 5000
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


def decoys_of(case: Case) -> npt.NDArray[np.intp]:
    """Return the rows of the store that is searched: the texts that are judged on, at most 5,000 at random."""
    rows = np.concatenate([case.test, case.ordinary_test])
    rng = np.random.default_rng([case.options.seed, 8])
    return np.sort(rng.permutation(rows)[:MOST_DECOYS])


def jobs(
    case: Case, side: Side, substitutes: Substitutes | None
) -> tuple[list[Job], list[Skipped]]:
    """Return matching among decoys and among substituted terms, by cosine, likelihood and norm."""
    clean = case.embeddings
    if clean is None:
        names = [f"{what}-{how}" for what in ("decoys", "substitution") for how, _ in MATCHERS]
        return [], [Skipped(name, FAMILY, NO_CLEAN) for name in names]
    rows = np.sort(np.concatenate([case.train, case.ordinary_train]))
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    decoys = decoys_of(case)
    among = CandidateVectors(
        side.judged[decoys], clean[decoys], np.arange(len(decoys)), groups=case.groups[decoys]
    )
    tests: list[tuple[str, CandidateVectors | None, float]] = [("decoys", among, 4.0)]
    exchanged = None
    if substitutes is not None:
        exchanged = CandidateVectors(
            side.judged[substitutes.rows], substitutes.pool, substitutes.truth,
            substitutes.options, case.groups[substitutes.rows],
        )  # fmt: skip
    tests.append(("substitution", exchanged, 3.0))
    found: list[Job] = []
    skipped: list[Skipped] = []
    for what, test, weight in tests:
        for how, maker in MATCHERS:
            name = f"{what}-{how}"
            if test is None:
                skipped.append(Skipped(name, FAMILY, NO_VARIANTS))
            elif maker is FixedNormMatching and side.judged.shape[1] != clean.shape[1]:
                skipped.append(Skipped(name, FAMILY, OTHER_SPACE))
            else:
                found.append(
                    attack_job(maker(), side, train, test, case.options, name=name, weight=weight)
                )
    return found, skipped
