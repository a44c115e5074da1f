"""Leakage against the number of releases or of known pairs, read from names of metrics and attacks.

An attack says the number in the metric's name (``top-1 with 200 pairs``, ``R-precision over 16
releases``, ``R-precision, k = 16``) or, for averaging, in its own (``averaging-16``). A main figure
without a number beside others that have one is that of the most pairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vecveil.report.record import Attack, Figure

__all__ = ["MOST", "Point", "Series", "series"]

MOST = "most"
UNITS = {"averaging": "releases", "alignment": "known pairs"}
_IN_METRIC = re.compile(
    r"\bk\s*=\s*(\d[\d,]*)"
    r"|(?<![\w.-])(\d[\d,]*)\s+(?:fresh |keyed |known |averaged )*(?:releases?|pairs?)\b"
)
_IN_NAME = re.compile(r"(?:^|[-_ ])(\d+)(?=$|[-_ ])")
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Point:
    """One figure, and how many releases or pairs it took; None: the most that were tried."""

    count: int | None
    figure: Figure


@dataclass(frozen=True, slots=True)
class Series:
    """The figures of one attack, or of several that differ in the number alone.

    Attributes:
        label: Whose figures they are: ``fresh noise``, ``keyed noise`` or the attack's name.
        unit: What is counted.
        points: By count, the most last.
    """

    label: str
    unit: str
    points: tuple[Point, ...]

    def at(self, count: int | None) -> Figure | None:
        """Return the figure for a number, or None."""
        return next((point.figure for point in self.points if point.count == count), None)


def by_count(count: int | None) -> tuple[bool, int]:
    """Return the key that puts counts in order, the most last."""
    return (count is None, count or 0)


def _number(found: re.Match[str] | None) -> int | None:
    digits = "" if found is None else next(group for group in found.groups() if group)
    digits = digits.replace(",", "")
    return int(digits) if 0 < len(digits) <= _MAX_DIGITS else None


def _points(attack: Attack) -> list[Point]:
    stem = _stem(attack.figure.metric)
    found = []
    for figure in attack.figures:
        count = _number(_IN_METRIC.search(figure.metric))
        if count is None and figure is attack.figure and attack.family == "averaging":
            count = _number(_IN_NAME.search(attack.name))
        if count is not None and _stem(figure.metric) == stem:
            found.append(Point(count, figure))
    if found and all(point.figure is not attack.figure for point in found):
        found.append(Point(None, attack.figure))
    return found


def _stem(metric: str) -> str:
    """Return the metric without what comes after its first word: ``R-precision``, ``top-1``."""
    return re.split(r"[\s,(]", metric, maxsplit=1)[0]


def _label(attack: Attack, figure: Figure) -> str:
    if attack.family == "averaging":
        keyed = "keyed" in f"{attack.name} {figure.metric}".lower()
        return "keyed noise" if keyed else "fresh noise"
    return attack.name


def series(attacks: Sequence[Attack]) -> tuple[Series, ...]:
    """Return the series of averaging or alignment attacks, unless there is one point in all."""
    found: dict[str, dict[int | None, Figure]] = {}
    units = [UNITS[attack.family] for attack in attacks if attack.family in UNITS]
    for attack in attacks:
        for point in _points(attack) if attack.family in UNITS else ():
            points = found.setdefault(_label(attack, point.figure), {})
            held = points.get(point.count)
            if held is None or (point.figure.value or 0.0) > (held.value or 0.0):  # the stronger
                points[point.count] = point.figure
    if sum(map(len, found.values())) < 2:
        return ()
    return tuple(
        Series(label, units[0], tuple(Point(k, points[k]) for k in sorted(points, key=by_count)))
        for label, points in found.items()
    )
