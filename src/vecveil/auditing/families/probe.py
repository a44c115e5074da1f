"""Concept probes in an audit: does a text hold the concept at all?"""

from __future__ import annotations

import numpy as np

from vecveil.attacks import KernelProbe, LabelledVectors, LinearProbe, MLPProbe
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job

__all__ = ["jobs"]

FAMILY = "probe"
NO_OTHERS = f"It needs texts without the concept, at least {MIN_TEST_TEXTS} to judge on, and there are too few."


def jobs(case: Case, side: Side) -> tuple[list[Job], list[Skipped]]:
    """Return the probes, on texts with the concept against texts without it."""
    names = ("probe-linear", "probe-kernel", "probe-mlp")
    if min(len(case.ordinary_train), len(case.ordinary_test)) < MIN_TEST_TEXTS:
        return [], [Skipped(name, FAMILY, NO_OTHERS) for name in names]

    def evidence(held: np.ndarray, free: np.ndarray, *, judged: bool) -> LabelledVectors:
        rows = np.concatenate([held, free])
        labels = np.repeat([1, 0], [len(held), len(free)])[:, None].astype(np.uint8)
        vectors = side.judged if judged else side.learn
        return LabelledVectors(vectors[rows], labels, case.groups[rows])

    train = evidence(case.train, case.ordinary_train, judged=False)
    test = evidence(case.test, case.ordinary_test, judged=True)
    attacks = (LinearProbe(), KernelProbe(), MLPProbe(device=case.options.device))
    return [
        attack_job(attack, side, train, test, case.options, name=name, weight=weight)
        for attack, name, weight in zip(attacks, names, (1.0, 10.0, 12.0), strict=True)
    ], []
