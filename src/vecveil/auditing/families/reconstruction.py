"""Reconstruction in an audit, tier full: attacks that write the text anew."""

from __future__ import annotations

from vecveil.auditing.case import Case, Side, Skipped
from vecveil.auditing.jobs import Job

__all__ = ["jobs"]

FAMILY = "reconstruction"
NAMES = ("geia", "vec2text", "algen")
QUICK = "Attacks that write the text anew take minutes to an hour: tier full runs them."


def jobs(case: Case, side: Side) -> tuple[list[Job], list[Skipped]]:
    """Return the attacks that write texts."""
    if case.options.tier == "quick":
        return [], [Skipped(name, FAMILY, QUICK) for name in NAMES]
    return [], []
