"""What a preview found: guesses for each text, and a curve of what is left against what is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vecveil.metrics.estimate import Estimate

__all__ = ["PreviewLevel", "PreviewResult"]


@dataclass(frozen=True, eq=False, repr=False)
class PreviewLevel:
    """What is left, and what is read, at one level of noise.

    Attributes:
        factor: times the protector's own noise; 0 for clean vectors.
        utility: Pearson correlation of pairs' cosines with the clean ones, noise on both sides.
        leakage: R-precision of the attacker on background texts that it has not seen.
        guesses: for each text the best guesses: (index of the word, score from 0 to 1), best first.
    """

    factor: float
    utility: Estimate
    leakage: Estimate
    guesses: tuple[tuple[tuple[int, float], ...], ...]

    def to_record(self) -> dict[str, Any]:
        """Return the level as JSON-ready values."""
        return {
            "factor": self.factor,
            "utility": self.utility.to_record(),
            "leakage": self.leakage.to_record(),
            "guesses": [[[word, score] for word, score in row] for row in self.guesses],
        }


@dataclass(frozen=True, eq=False, repr=False)
class PreviewResult:
    """What the attacker reads from clean and from protected vectors.

    Attributes:
        words: what it guesses from.
        held: for each text the words that are in it, as indices.
        clean: the same attack on clean vectors.
        levels: at growing noise; one alone where the method's noise has no scale.
        chosen: which of the levels is the protector as it is.
        practice: counts of texts: background, those of them with a listed word, learnt from, judged on.
        rewrites: whether texts are rewritten, and vectors left as they are.
    """

    words: tuple[str, ...]
    held: tuple[tuple[int, ...], ...]
    clean: PreviewLevel
    levels: tuple[PreviewLevel, ...]
    chosen: int
    practice: dict[str, int]
    rewrites: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON-ready values; it holds the words, and none of the texts."""
        return {
            "words": list(self.words),
            "held": [list(row) for row in self.held],
            "clean": self.clean.to_record(),
            "levels": [level.to_record() for level in self.levels],
            "chosen": self.chosen,
            "practice": dict(self.practice),
            "rewrites": self.rewrites,
        }
