"""Token inference in an audit: the ladder, on the texts that hold an attacked word."""

from __future__ import annotations

from vecveil.attacks import FurtherKernelAttack, LabelledVectors, TransplantAttack
from vecveil.attacks.token_inference.ladder import ladder_attacks
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.jobs import Job, attack_job

__all__ = ["jobs", "labelled"]

FAMILY = "token-inference"
NO_TRANSPLANT = (
    "It learns from texts with the concept removed: that needs an encoder, and clean vectors or the means "
    "to protect them. It often finds most."
)
NO_FURTHER = (
    "It learns from texts that the attacker makes by exchanging concept words, or finds in a corpus: that needs "
    "an encoder, and clean vectors or the means to protect them."
)


def labelled(case: Case, side: Side) -> tuple[LabelledVectors, LabelledVectors]:
    """Return training and test evidence."""
    train, test = case.train, case.test
    without = case.without_train if side.learns_from_clean else None
    further = case.further if side.learns_from_clean else None
    return (
        LabelledVectors(
            side.learn[train], case.labels[train], case.groups[train], without, further
        ),
        LabelledVectors(side.judged[test], case.labels[test], case.groups[test]),
    )


def jobs(case: Case, side: Side) -> tuple[list[Job], list[Skipped]]:
    """Return one job for each attack of the tier."""
    train, test = labelled(case, side)
    found: list[Job] = []
    skipped: list[Skipped] = []
    for i, attack in enumerate(ladder_attacks(case.options.tier, device=case.options.device)):
        if isinstance(attack, TransplantAttack) and train.without is None:
            skipped.append(Skipped(attack.name, FAMILY, NO_TRANSPLANT))
        elif isinstance(attack, FurtherKernelAttack) and train.further is None:
            skipped.append(Skipped(attack.name, FAMILY, NO_FURTHER))
        else:
            found.append(attack_job(attack, side, train, test, case.options, weight=10.0 + i))
    return found, skipped
