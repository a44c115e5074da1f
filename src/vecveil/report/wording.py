"""What the audited vectors are called: protected ones, or those of a store that nothing is known of."""

from __future__ import annotations

from dataclasses import dataclass

from vecveil.report.figures import count
from vecveil.report.record import Attack, Audit

__all__ = ["FAMILY_WORDS", "Wording", "adaptivity", "heading", "judged_on", "wording"]

FAMILY_WORDS = {
    "token-inference": ("Token inference", "Which concept words are in it?"),
    "probe": ("Concept probe", "Does the text hold the concept?"),
    "candidates": ("Candidate matching", "Which known text is it?"),
    "averaging": ("Averaging", "What do several releases of one text give away?"),
    "alignment": ("Alignment", "Can the vectors be mapped back to clean ones?"),
    "reconstruction": ("Reconstruction", "Can the text be written down again?"),
    "held-out-terms": ("Held-out terms", "What of words that the protection was not fitted on?"),
}
"""Title and question of each family."""

COUNTS_WORDS = ("token-inference", "averaging", "held-out-terms")
"""Families whose main figure is a share of word occurrences; those of the others are of texts."""


@dataclass(frozen=True, slots=True)
class Wording:
    """What the two sides of a comparison are called.

    Attributes:
        side: Name of the audited side: ``protected`` or ``stored``.
        vectors: What was attacked, in words.
    """

    side: str
    vectors: str


def wording(audit: Audit) -> Wording:
    """Return what this audit calls the vectors it attacked."""
    side = "stored" if audit.is_store else "protected"
    return Wording(side, f"{side} vectors")


def heading(audit: Audit) -> tuple[str, str]:
    """Return the heading of a report in two parts: the words, and the concept in quotes."""
    if audit.is_store:
        return "What leaks from this store about ", f"“{audit.concept}”"
    return "What protected vectors still say about ", f"“{audit.concept}”"


def judged_on(attack: Attack) -> str:
    """Return on how many words or texts the main figure was measured."""
    unit = "word occurrences" if attack.family in COUNTS_WORDS else "texts"
    return f"{count(attack.n)} {unit}"


def adaptivity(attack: Attack) -> str:
    """Return what the attack learns from."""
    if attack.adaptive:
        return "draws fresh releases while training"
    return "learns from released pairs only"
