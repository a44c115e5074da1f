"""Concept probes in an audit: does a text hold the concept at all, or which of two labels does it have?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks import KernelProbe, LabelledVectors, LinearProbe, MLPProbe
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job

__all__ = ["jobs"]

FAMILY = "probe"
NO_OTHERS = f"It needs texts without the concept, at least {MIN_TEST_TEXTS} to judge on, and there are too few."

Rows = npt.NDArray[np.intp]


def jobs(case: Case, side: Side) -> tuple[list[Job], list[Skipped]]:
    """Return the probes, on texts with the concept against texts without it, or on two labels."""
    names = ("probe-linear", "probe-kernel", "probe-mlp")
    sides = _sides(case)
    if min(map(len, sides)) < MIN_TEST_TEXTS:
        return [], [Skipped(name, FAMILY, NO_OTHERS) for name in names]

    def evidence(held: Rows, free: Rows, *, judged: bool) -> LabelledVectors:
        rows = np.concatenate([held, free])
        labels = np.repeat([1, 0], [len(held), len(free)])[:, None].astype(np.uint8)
        vectors = side.judged if judged else side.learn
        return LabelledVectors(vectors[rows], labels, case.groups[rows])

    train = evidence(*sides[:2], judged=False)
    test = evidence(*sides[2:], judged=True)
    attacks = (LinearProbe(), KernelProbe(), MLPProbe(device=case.options.device))
    return [
        attack_job(attack, side, train, test, case.options, name=name, weight=weight)
        for attack, name, weight in zip(attacks, names, (1.0, 10.0, 12.0), strict=True)
    ], []


def _sides(case: Case) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the rows that hold what is asked for and those that do not, to learn from and to judge on.

    Where every text has one of two labels, the question is which.
    """
    ordinary = (case.ordinary_train, case.ordinary_test)
    if case.matches.labels is None or len(case.vocabulary) != 2 or min(map(len, ordinary)) > 0:
        return case.train, ordinary[0], case.test, ordinary[1]
    first = case.labels[:, 0].astype(bool)
    train, test = first[case.train], first[case.test]
    return case.train[train], case.train[~train], case.test[test], case.test[~test]
