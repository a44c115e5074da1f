"""Token inference and concept probes: find the concept words of a text, and detect the concept."""

from __future__ import annotations

import numpy as np

from vecveil.attacks import (
    FurtherKernelAttack,
    KernelProbe,
    LabelledVectors,
    LinearProbe,
    MLPProbe,
    TransplantAttack,
)
from vecveil.attacks.token_inference.ladder import ladder_attacks
from vecveil.auditing.case import MIN_TEST_TEXTS, Case, Rows, Side
from vecveil.auditing.jobs import Job, attack_job
from vecveil.records.audit import SkippedAttack

__all__ = ["jobs", "labelled", "probe_jobs"]

NO_TRANSPLANT = (
    "It learns from texts with the concept removed: that needs an encoder, and clean vectors or the means "
    "to protect them. It often finds most."
)
NO_FURTHER = (
    "It learns from texts that the attacker makes by exchanging concept words, or finds in a corpus: that needs "
    "an encoder, and clean vectors or the means to protect them."
)
NO_OTHERS = f"It needs texts without the concept, at least {MIN_TEST_TEXTS} to judge on, and there are too few."
PROBES = ("probe-linear", "probe-kernel", "probe-mlp")


def labelled(case: Case, side: Side) -> tuple[LabelledVectors, LabelledVectors]:
    """Return training and test evidence of the texts that hold an attacked word."""
    train, test = case.train, case.test
    # Both are clean vectors: they may join released training vectors only through an oracle.
    without = case.without_train if side.learns_from_clean else None
    further = case.further if side.learns_from_clean else None
    return (
        LabelledVectors(
            side.learn[train], case.labels[train], case.groups[train], without, further
        ),
        LabelledVectors(side.judged[test], case.labels[test], case.groups[test]),
    )


def jobs(case: Case, side: Side) -> tuple[list[Job], list[SkippedAttack]]:
    """Return the token-inference attacks of the tier."""
    train, test = labelled(case, side)
    runnable: list[Job] = []
    skipped: list[SkippedAttack] = []
    for i, attack in enumerate(ladder_attacks(case.options.tier, device=case.options.device)):
        if isinstance(attack, TransplantAttack) and train.without is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_TRANSPLANT))
        elif isinstance(attack, FurtherKernelAttack) and train.further is None:
            skipped.append(SkippedAttack(attack.name, "token-inference", NO_FURTHER))
        else:
            runnable.append(attack_job(attack, side, train, test, case.options, weight=10.0 + i))
    return runnable, skipped


def probe_jobs(case: Case, side: Side) -> tuple[list[Job], list[SkippedAttack]]:
    """Return the probes: texts with the concept against texts without it, or one label against the other."""
    positive, negative, test_positive, test_negative = parts = _probed(case)
    # Both classes must be on both sides of the split: a threshold needs negatives, a rate needs positives.
    if min(map(len, parts)) < MIN_TEST_TEXTS:
        return [], [SkippedAttack(name, "probe", NO_OTHERS) for name in PROBES]

    def evidence(X: np.ndarray, positive: Rows, negative: Rows) -> LabelledVectors:
        rows = np.concatenate([positive, negative])
        labels = np.repeat([1, 0], [len(positive), len(negative)])[:, None].astype(np.uint8)
        return LabelledVectors(X[rows], labels, case.groups[rows])

    train = evidence(side.learn, positive, negative)
    test = evidence(side.judged, test_positive, test_negative)
    attacks = (LinearProbe(), KernelProbe(), MLPProbe(device=case.options.device))
    return [
        attack_job(attack, side, train, test, case.options, name=name, weight=weight)
        for attack, name, weight in zip(attacks, PROBES, (1.0, 10.0, 12.0), strict=True)
    ], []


def _probed(case: Case) -> tuple[Rows, Rows, Rows, Rows]:
    """Return training rows of both classes, then test rows of both."""
    ordinary = (case.ordinary_train, case.ordinary_test)
    # Where every text has one of two labels there are no ordinary texts: the labels are the classes.
    if case.matches.labels is None or len(case.vocabulary) != 2 or min(map(len, ordinary)) > 0:
        return case.train, ordinary[0], case.test, ordinary[1]
    is_first = case.labels[:, 0].astype(bool)
    train, test = is_first[case.train], is_first[case.test]
    return case.train[train], case.train[~train], case.test[test], case.test[~test]
