"""Averaging in an audit: what is left of the noise when a text is released again and again."""

from __future__ import annotations

import numpy as np

from vecveil.attacks import AveragingAttack, KernelAttack, LabelledVectors, mean_of_releases
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.families.token_inference import labelled
from vecveil.auditing.jobs import Job, attack_job
from vecveil.types import Release

__all__ = ["jobs"]

FAMILY = "averaging"
RELEASES = (4, 16)
KEYED = f"averaging-{RELEASES[-1]}-keyed"
ROWS = (
    4096  # of the kernel attack that reads the means: it is the one that reads most behind erasure
)
NO_ORACLE = "It needs several releases of the same texts, and the store holds one."


def jobs(case: Case, side: Side, keyed: Release | None) -> tuple[list[Job], list[Skipped]]:
    """Return the attack on means of several releases, with fresh noise and with keyed noise.

    Args:
        keyed: releases the given clean rows with a secret key, so that every release of a row is the same.
    """
    names = [f"averaging-{k}" for k in RELEASES] + [KEYED]
    train, test = labelled(case, side)
    reader = KernelAttack(rows=ROWS)
    if side.name == "clean":  # a clean vector has no noise: one is as good as many
        once = attack_job(AveragingAttack(1, reader), side, train, test, case.options, name=FAMILY)
        return [once], []
    if side.release is None:
        return [], [Skipped(name, FAMILY, NO_ORACLE) for name in names]
    rng = np.random.default_rng([case.options.seed, 4])
    X = side.learn[case.test]

    def judged(release: Release, k: int) -> LabelledVectors:
        mean = mean_of_releases(release, k)(X, rng)
        return LabelledVectors(mean, case.labels[case.test], case.groups[case.test])

    found = [
        attack_job(
            AveragingAttack(k, reader), side, train, judged(side.release, k), case.options,
            name=name, weight=5.0,
        )
        for k, name in zip(RELEASES, names, strict=False)
    ]  # fmt: skip
    if keyed is None:
        return found, [Skipped(KEYED, FAMILY, "The method draws no noise that a key could fix.")]
    test = judged(keyed, RELEASES[-1])
    found.append(
        attack_job(AveragingAttack(1, reader), side, train, test, case.options, name=KEYED)
    )
    return found, []
