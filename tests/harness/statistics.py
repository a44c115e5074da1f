"""The chance of a false failure that statistical tests share."""

from __future__ import annotations

FALSE_FAILURE = 1e-6
"""Chance that a whole module of statistical tests fails although the software is right."""


def threshold(tests: int) -> float:
    """Return the level of one test of ``tests`` (Bonferroni)."""
    return FALSE_FAILURE / tests
