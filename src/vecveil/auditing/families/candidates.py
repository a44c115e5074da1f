"""Candidate matching in an audit: which of some known texts is it?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks import CandidateVectors, CosineMatching, LikelihoodMatching, PairedVectors
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


def decoys_of(case: Case) -> npt.NDArray[np.intp]:
    """Return the rows of the store that is searched: the texts that are judged on, at most 5,000 at random."""
    rows = np.concatenate([case.test, case.ordinary_test])
    rng = np.random.default_rng([case.options.seed, 8])
    return np.sort(rng.permutation(rows)[:MOST_DECOYS])


def jobs(
    case: Case, side: Side, substitutes: Substitutes | None
) -> tuple[list[Job], list[Skipped]]:
    """Return matching among decoys and among substituted terms, by cosine and by likelihood."""
    matchers = (("cosine", CosineMatching), ("likelihood", LikelihoodMatching))
    clean = case.embeddings
    if clean is None:
        names = [f"{what}-{how}" for what in ("decoys", "substitution") for how, _ in matchers]
        return [], [Skipped(name, FAMILY, NO_CLEAN) for name in names]
    rows = np.sort(np.concatenate([case.train, case.ordinary_train]))
    train = PairedVectors(side.learn[rows], clean[rows], case.groups[rows])
    decoys = decoys_of(case)
    among = CandidateVectors(
        side.judged[decoys], clean[decoys], np.arange(len(decoys)), groups=case.groups[decoys]
    )
    found = [
        attack_job(maker(), side, train, among, case.options, name=f"decoys-{how}", weight=4.0)
        for how, maker in matchers
    ]
    skipped: list[Skipped] = []
    for how, maker in matchers:
        name = f"substitution-{how}"
        if substitutes is None:
            skipped.append(Skipped(name, FAMILY, NO_VARIANTS))
            continue
        test = CandidateVectors(
            side.judged[substitutes.rows], substitutes.pool, substitutes.truth,
            substitutes.options, case.groups[substitutes.rows],
        )  # fmt: skip
        found.append(attack_job(maker(), side, train, test, case.options, name=name, weight=3.0))
    return found, skipped
