"""Compute the geometry of the drawings in ``templates/charts.html``.

Horizontal positions are per cent of the width, vertical ones pixels. Without a ``viewBox`` a drawing fills the width of
its place, and text, strokes and bar heights keep their size on a phone. Each drawing has a description with its
figures, for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vecveil.auditing.records.audit_record import AttackRecord, AuditRecord, LearningPoint
from vecveil.auditing.report.text import count, interval, percent

Ticks = Sequence[tuple[float, str]]
"""Numbers of a scale, each with its label."""


def share_at(share: float) -> str:
    """Return a share as a coordinate, clipped to the axis."""
    return f"{100 * min(max(share, 0.0), 1.0):.4g}%"


def leakage_words(attack: AttackRecord, side: str) -> str:
    """Return the description of an attack's bars; ``side`` is ``protected`` or ``stored``."""
    words = [
        f"on {of} vectors {percent(share)} ({interval(low, high)})"
        for of, share, low, high in (
            (side, attack.value, attack.low, attack.high),
            ("clean", attack.clean, attack.clean_low, attack.clean_high),
        )
        if share is not None
    ]
    if attack.chance is not None:
        words.append(f"chance {percent(attack.chance)}")
    return f"{'; '.join(words)}."


@dataclass(frozen=True)
class Across:
    """A horizontal scale from ``low`` to ``high``, with an ``inset`` in per cent for the marks at the ends."""

    low: float
    high: float
    log: bool = False
    inset: float = 3.0
    ticks: Ticks = ()

    def place(self, number: float) -> float:
        """Return the position of a number, in per cent of the width."""
        low, high, at = (math.log(each) if self.log else each for each in (self.low, self.high, number))
        # A scale of one number has no length: put the number in the middle.
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.inset + (100 - 2 * self.inset) * share


@dataclass(frozen=True)
class LearningChart:
    """Points of a learning curve and its forecast, each with its horizontal position; ``words`` describes it."""

    points: Sequence[tuple[float, LearningPoint]]
    ahead: tuple[float, LearningPoint] | None
    words: str


def learning_chart(audit: AuditRecord) -> LearningChart | None:
    """Return the drawing of the learning curve, or None without two points."""
    curve, forecast = audit.learning_curve, audit.forecast
    if len(curve) < 2:
        return None
    last = curve[-1] if forecast is None else forecast
    across = Across(curve[0].texts, last.texts, log=True, inset=6.0)
    words = [
        f"{count(point.texts)} texts: {percent(point.value)} ({interval(point.low, point.high)})"
        for point in (*curve, *([] if forecast is None else [forecast]))
    ]
    return LearningChart(
        [(across.place(point.texts), point) for point in curve],
        None if forecast is None else (across.place(forecast.texts), forecast),
        "; ".join(words) + ("." if forecast is None else ", continued."),
    )
