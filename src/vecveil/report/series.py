"""Leakage against the number of releases or of known pairs, read from the names of the metrics.

An attack writes one figure for each number, and says the number in the metric's name: ``R-precision
over 16 fresh releases``, ``top-1 with 200 known pairs``, ``R-precision, k = 16``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vecveil.report.record import Attack, Figure

__all__ = ["Point", "Series", "series"]

_COUNT = re.compile(
    r"\bk\s*=\s*(\d[\d,]*)"
    r"|(?<![\w.-])(\d[\d,]*)\s+(?:fresh |keyed |known |averaged )*(?:releases?|pairs?)\b"
)
_IN_NAME = re.compile(r"(?:^|[-_ (])(?:k=)?(\d+)(?:[-_ ]?(?:releases?|pairs?))?\)?$")
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Point:
    """One figure, and how many releases or pairs it took."""

    count: int
    figure: Figure


@dataclass(frozen=True, slots=True)
class Series:
    """The figures of one attack, or of several that differ in the number alone.

    Attributes:
        label: Whose figures they are: ``fresh noise``, ``keyed noise`` or the attack's name.
        unit: What is counted.
        points: By count.
    """

    label: str
    unit: str
    points: tuple[Point, ...]

    def at(self, count: int) -> Figure | None:
        """Return the figure for a number, or None."""
        return next((point.figure for point in self.points if point.count == count), None)


def _count(attack: Attack, figure: Figure) -> int | None:
    found = _COUNT.search(figure.metric)
    if found is None and figure is attack.figure:
        found = _IN_NAME.search(attack.name)
    digits = "" if found is None else next(group for group in found.groups() if group)
    digits = digits.replace(",", "")
    return int(digits) if 0 < len(digits) <= _MAX_DIGITS else None


def _stem(metric: str) -> str:
    """Return the metric without what comes after its first word: ``R-precision``, ``top-1``."""
    return re.split(r"[\s,(]", metric, maxsplit=1)[0]


def _label(attack: Attack, figure: Figure) -> str:
    words = f"{attack.name} {figure.metric}".lower()
    for kind in ("keyed", "fresh"):
        if kind in words:
            return f"{kind} noise"
    return re.sub(_IN_NAME, "", attack.name) or attack.name


def series(attacks: Sequence[Attack]) -> tuple[Series, ...]:
    """Return the series of averaging or alignment attacks; a single point is none."""
    found: dict[str, dict[int, Figure]] = {}
    pairs = any(attack.family == "alignment" for attack in attacks)
    for attack in attacks:
        if attack.family not in ("averaging", "alignment"):
            continue
        for figure in attack.figures:
            count = _count(attack, figure)
            if count is None or _stem(figure.metric) != _stem(attack.figure.metric):
                continue
            points = found.setdefault(_label(attack, figure), {})
            held = points.get(count)
            if held is None or (figure.value or 0.0) > (held.value or 0.0):  # the stronger one
                points[count] = figure
    unit = "known pairs" if pairs else "releases"
    return tuple(
        Series(label, unit, tuple(Point(k, points[k]) for k in sorted(points)))
        for label, points in found.items()
        if len(points) > 1
    )
