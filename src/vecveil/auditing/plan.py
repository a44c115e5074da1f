"""Which attacks an audit runs, on which side, and in which order they stand in the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vecveil.attacks import FAMILIES, AttackResult
from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.families import (
    alignment,
    averaging,
    candidates,
    held_out_terms,
    probe,
    reconstruction,
    token_inference,
)
from vecveil.auditing.families.held_out_terms import Refit
from vecveil.auditing.jobs import Job, run_jobs
from vecveil.auditing.kept import KeptResults
from vecveil.auditing.substitution import substitutes
from vecveil.types import Release

__all__ = ["run_plan"]

ASKED = "You left this family out."


def run_plan(
    case: Case,
    sides: Sequence[Side],
    kept: KeptResults | None = None,
    *,
    keyed: Release | None = None,
    refit: Refit | None = None,
) -> tuple[Mapping[tuple[str, str], AttackResult], list[Skipped]]:
    """Return what every attack of the tier found on each side, and what was not run and why.

    Args:
        sides: the clean side, where there are clean vectors, and the protected one.
        keyed: releases clean rows with keyed noise, or None.
        refit: fits the method again on half of the words, or None.
    """
    wanted = [family for family in FAMILIES if family not in case.options.skip]
    found: list[Job] = []
    skipped: list[Skipped] = []

    def add(part: tuple[list[Job], list[Skipped]]) -> None:
        found.extend(part[0])
        skipped.extend(part[1])

    versions = substitutes(case) if "candidates" in wanted else None
    for side in sides:
        for family in wanted:
            if family == "token-inference":
                add(token_inference.jobs(case, side))
            elif family == "probe":
                add(probe.jobs(case, side))
            elif family == "candidates":
                add(candidates.jobs(case, side, versions))
            elif family == "averaging":
                add(averaging.jobs(case, side, keyed))
            elif family == "alignment":
                add(alignment.jobs(case, side))
    if "reconstruction" in wanted:
        add(reconstruction.jobs(case, sides))
    if "held-out-terms" in wanted:
        add(held_out_terms.jobs(case, sides[0], refit))
    order = {job.name: i for i, job in enumerate(found)}
    results = run_jobs(found, kept, show_progress=case.options.show_progress)
    ordered = dict(sorted(results.items(), key=lambda item: order[item[0][1]]))
    left_out = [Skipped(family, family, ASKED) for family in FAMILIES if family not in wanted]
    return ordered, [*dict.fromkeys(skipped), *left_out]
