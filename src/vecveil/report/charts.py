"""Compute the geometry of the drawings in ``templates/charts.html``: scales, and curves over the epochs of a training.

Positions across are per cent of the width, positions down are pixels. Without a ``viewBox`` a drawing fills the width
of its place, and text, strokes and bar heights keep their size on a phone. Each drawing has a description that states
its figures, for screen readers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vecveil.records.audit import AttackRecord
from vecveil.report.text import interval, percent, rounded

EDGE = 8  # pixels above and below a curve
MOST_MARKS = 30  # points: more of them would hide the line

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
    """A horizontal scale, linear or logarithmic.

    Attributes:
        low, high: the numbers at its ends.
        inset: per cent of the width on each side, for the marks at the ends.
        ticks: the numbers below it.
    """

    low: float
    high: float
    log: bool = False
    inset: float = 3.0
    ticks: Ticks = ()

    def place(self, number: float) -> float:
        """Return the position of a number, in per cent of the width."""
        low, high, at = (
            math.log(each) if self.log else each for each in (self.low, self.high, number)
        )
        # A scale of one number has no length: the number stands in the middle.
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.inset + (100 - 2 * self.inset) * share


def scale_ticks(
    values: Sequence[float], bounds: tuple[float, float] | None = None
) -> list[tuple[float, str]]:
    """Return three to seven round numbers, rising, that enclose all values and ``bounds``, each with its label."""
    low, high = min(values), max(values)
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    # A measure that hardly moves must not be blown up to fill a chart.
    least = 0.01 * max(abs(low), abs(high)) or 1.0
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    # The smallest round step of which three cover the span; ends are then moved out to multiples of it.
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * power >= rough * 0.999) * power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # As many decimals as the step needs: 0.5 takes one, 20 none.
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [
        (i * step, f"{i * step:,.{decimals}f}".replace("-", "\u2212"))
        for i in range(first, last + 1)
    ]


@dataclass(frozen=True)
class Plot:
    """Curves over a scale.

    Attributes:
        grid: position down of each number of the scale, and its label.
        chance: position down of chance, or None.
        lines: CSS class and corners of each line, the back one first.
        bands: the same for intervals, drawn behind all lines.
        marks: CSS class or index of the series, and position across and down.
        below: the numbers below, with their position across.
    """

    title: str
    description: str
    height: int
    grid: Sequence[tuple[float, str]]
    chance: float | None
    lines: Sequence[tuple[str, str]]
    marks: Sequence[tuple[str | int, float, float]]
    bands: Sequence[tuple[str, str]] = ()
    below: Sequence[tuple[float, str]] = ()


def down_in(ticks: Ticks, height: int) -> Callable[[float], float]:
    """Return the function from values to pixels, which grow downwards."""
    bottom, top = ticks[0][0], ticks[-1][0]
    return lambda value: round(EDGE + (height - 2 * EDGE) * (top - value) / (top - bottom), 2)


def corners(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.6g},{y:.2f}" for x, y in points)


def measures(
    title: str,
    epochs: Sequence[int],
    curves: Sequence[tuple[str, str, Sequence[float | None]]],
    bounds: tuple[float, float] | None = None,
) -> Plot:
    """Return the curves of measures over the epochs of a training.

    Args:
        curves: CSS class, name and a value for each epoch; the first is drawn on top.
        bounds: of the scale, for measures with natural bounds.
    """
    known = [value for *_, values in curves for value in values if value is not None]
    scale, ticks, height = Across(epochs[0], epochs[-1], inset=2.0), scale_ticks(known, bounds), 132
    down = down_in(ticks, height)
    lines: list[tuple[str, str]] = []
    dots: list[tuple[str | int, float, float]] = []
    for kind, _, values in reversed(curves):
        points = [
            None if value is None else (scale.place(epoch), down(value))
            for epoch, value in zip(epochs, values, strict=True)
        ]
        # Runs of measured epochs: a line across a gap would show values that nobody measured.
        for _, group in itertools.groupby(points, lambda point: point is None):
            run = [point for point in group if point is not None]
            if len(run) > 1:
                lines.append((f"curve {kind}", corners(run)))
            # A run of one point has no line: without a dot it would be invisible.
            if len(run) == 1 or len(points) <= MOST_MARKS:
                dots += [(f"point {kind}", x, y) for x, y in run]

    def ends(values: Sequence[float | None]) -> str:
        held = [(e, v) for e, v in zip(epochs, values, strict=True) if v is not None]
        shown = [f"{rounded(value)} at epoch {epoch:,}" for epoch, value in (held[0], held[-1])]
        return ", ".join(dict.fromkeys(shown))

    words = "; ".join(f"{label}: {ends(values)}" for _, label, values in curves)
    return Plot(title, f"{words}.", height, [(down(at), label) for at, label in ticks], None, lines, dots)
