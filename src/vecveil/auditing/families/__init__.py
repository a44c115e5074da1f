"""Choose the attacks of an audit: the families to run on each side, and the data of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vecveil.attacks import AttackResult
from vecveil.auditing.case import Case, Side
from vecveil.auditing.families import (
    averaging,
    held_out_terms,
    matching,
    reconstruction,
    token_inference,
)
from vecveil.auditing.families.held_out_terms import Refit
from vecveil.auditing.jobs import Job, WorkFolder, run_jobs
from vecveil.records.audit import FAMILIES, SkippedAttack
from vecveil.types import Release

__all__ = ["run_families"]

LEFT_OUT = "You left this family out."


def run_families(
    case: Case,
    sides: Sequence[Side],
    work: WorkFolder | None = None,
    *,
    keyed: Release | None = None,
    refit: Refit | None = None,
) -> tuple[Mapping[tuple[str, str], AttackResult], list[SkippedAttack]]:
    """Return the results of the tier's attacks by (side, name), in order, and the attacks that were not run.

    Args:
        sides: the clean side, if there are clean vectors, and the protected one last.
        keyed: releases clean rows with keyed noise, or None.
        refit: fits the method again on half of the words, or None.
    """
    per_side = {
        "token-inference": token_inference.jobs,
        "probe": token_inference.probe_jobs,
        "candidates": matching.candidate_jobs,
        "averaging": lambda case, side: averaging.jobs(case, side, keyed),
        "alignment": matching.alignment_jobs,
    }
    # These share work between sides: a decoder trained on clean vectors, a protector fitted on half of the words.
    every_side = {
        "reconstruction": lambda: reconstruction.jobs(case, sides),
        "held-out-terms": lambda: held_out_terms.jobs(case, sides[0], refit),
    }
    chosen = [family for family in FAMILIES if family not in case.options.skip]
    plans = [per_side[f](case, side) for side in sides for f in chosen if f in per_side]
    # All plans before the first job: what the sides share is computed once, on the main thread.
    plans += [every_side[family]() for family in chosen if family in every_side]
    jobs: list[Job] = [job for plan, _ in plans for job in plan]
    # Both sides skip an attack for the same reason: a dict keeps one entry, and the order.
    skipped = dict.fromkeys(entry for _, entries in plans for entry in entries)
    order = {job.name: i for i, job in enumerate(jobs)}
    results = run_jobs(jobs, work, show_progress=case.options.show_progress)
    # Jobs finish in any order; the record must not depend on it.
    ordered = dict(sorted(results.items(), key=lambda item: order[item[0][1]]))
    left_out = [SkippedAttack(f, f, LEFT_OUT) for f in FAMILIES if f not in chosen]
    return ordered, [*skipped, *left_out]
