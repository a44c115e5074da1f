"""What the figures of an experiment share: the place of a number across, the marks and colours of series, a key."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from vecveil.report.experiment_parts import Picture
from vecveil.report.markup import Safe, tag

__all__ = [
    "Across",
    "across",
    "bottom_scale",
    "colour",
    "legend",
    "mark",
    "named",
    "per_cent",
    "stretched",
    "svg",
    "tick_words",
]

INSET = 3.0  # per cent of the width on each side, for the marks at the ends
MOST_TICKS = 7
LEAST_GAP = 0.09  # of the width: closer numbers would run into each other on a phone
COLOURS = 8
_SHAPES = (
    ("circle", {"r": "3.6"}),
    ("rect", {"x": "-3.4", "y": "-3.4", "width": "6.8", "height": "6.8"}),
    ("path", {"d": "M0 -4.4 L4.2 3.4 L-4.2 3.4 Z"}),
    ("path", {"d": "M0 -4.7 L4.7 0 L0 4.7 L-4.7 0 Z"}),
)


@dataclass(frozen=True, slots=True)
class Across:
    """A scale from left to right.

    Attributes:
        low, high: the numbers at its ends.
        log: whether equal ratios are equally far apart.
        ticks: numbers that are written below, and how.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...] = ()

    def place(self, number: float) -> float:
        """Return where a number lies, in per cent of the width."""
        low, high = (math.log(e) if self.log else e for e in (self.low, self.high))
        at = math.log(number) if self.log else number
        share = 0.5 if high == low else (at - low) / (high - low)
        return INSET + (100 - 2 * INSET) * share


def tick_words(number: float) -> str:
    """Return a number below a scale, as short as it can be said."""
    words = f"{number:.4g}" if abs(number) < 1e4 else f"{number:,.0f}"
    return words.replace("-", "\u2212")


def across(numbers: Sequence[float], log: bool) -> Across:
    """Return the scale of these numbers, with the numbers themselves written where they are few and far apart."""
    held = sorted(set(numbers))
    scale = Across(held[0], held[-1], log)
    places = [scale.place(number) for number in held]
    gaps = [b - a for a, b in itertools.pairwise(places)]
    if len(held) <= MOST_TICKS and min(gaps, default=100.0) >= 100 * LEAST_GAP:
        ticks = [(number, tick_words(number)) for number in held]
    elif log:
        ticks = _log_ticks(scale)
    else:
        ticks = _linear_ticks(scale)
    return Across(held[0], held[-1], log, tuple(ticks))


def _linear_ticks(scale: Across) -> list[tuple[float, str]]:
    """Return round numbers between the ends, three to nine of them."""
    rough = (scale.high - scale.low) / 4
    power = math.floor(math.log10(rough) + 1e-9)
    step = next(s for s in (5, 2, 1) if s * 10.0**power <= rough * (1 + 1e-9)) * 10.0**power
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [(i * step, tick_words(i * step)) for i in range(first, last + 1)]


def _log_ticks(scale: Across) -> list[tuple[float, str]]:
    first, last = (math.floor(math.log10(end)) for end in (scale.low, scale.high))
    for steps in ((1, 2, 5), (1,)):
        found = [s * 10.0**power for power in range(first, last + 1) for s in steps]
        inside = [at for at in found if scale.low <= at * (1 + 1e-9) and at <= scale.high * (1 + 1e-9)]  # fmt: skip
        if 2 <= len(inside) <= MOST_TICKS:
            return [(at, tick_words(at)) for at in inside]
    # Less than a decade between 1, 2 and 5, or very many of them: the ends say enough.
    return [(end, tick_words(end)) for end in dict.fromkeys((scale.low, scale.high))]


def named(name: str, longest: int) -> list[Safe | str]:
    """Return a name, cut if it has more letters than these; a cut one shows itself whole under the mouse."""
    if len(name) <= longest:
        return [name]
    return [f"{name[: longest - 1]}…", tag("title", name)]


def per_cent(number: float) -> str:
    """Return a coordinate across."""
    return f"{number:.6g}%"


def colour(index: int) -> str:
    """Return the class that gives a series its colour."""
    return f"series-{index % COLOURS}"


def mark(index: int, x: str, y: str) -> Safe:
    """Return the mark of a series at a place; neighbours in order differ in form as well as in colour."""
    shape, lengths = _SHAPES[index % len(_SHAPES)]
    return tag("svg", tag(shape, class_=f"mark {colour(index)}", **lengths), x=x, y=y)


def svg(name: str, title: str, description: str, height: float, *shapes: Safe, kind: str) -> Safe:
    """Return a drawing with a title and a description that a screen reader says."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *shapes,
        class_=f"chart {kind}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=f"{height:g}",
    )


def stretched(lines: Sequence[Safe], height: float) -> Safe | None:
    """Return shapes in per cent and pixels as a drawing that is as wide as its place."""
    if not lines:
        return None
    return tag(
        "svg",
        *lines,
        viewBox=f"0 0 100 {height:g}",
        preserveAspectRatio="none",
        width="100%",
        height=f"{height:g}",
    )


def bottom_scale(scale: Across) -> Safe:
    """Return the numbers below a figure, hidden from screen readers, to which the description says them."""
    words = [
        tag("text", said, x=per_cent(scale.place(at)), y="12", text_anchor="middle")
        for at, said in scale.ticks
    ]
    return tag("svg", *words, class_="chart axis", width="100%", height="16", aria_hidden="true")


def legend(picture: Picture) -> Safe | None:
    """Return a key with the mark of each series, and of chance; None where the figure has neither."""
    keys = []
    for i, series in enumerate(picture.series):
        drawn = _bar_sample(i) if picture.kind == "bars" else _line_sample(i, series.dashed)
        sample = tag("svg", *drawn, class_="chart", width="24", height="12", aria_hidden="true")
        keys.append(tag("span", sample, series.name, class_="key"))
    if picture.chance is not None:
        keys.append(tag("span", tag("i", class_="chance"), "chance", class_="key"))
    return tag("p", *keys, class_="legend") if keys else None


def _line_sample(index: int, dashed: bool) -> list[Safe]:
    kind = f"line {colour(index)}{' dashed' if dashed else ''}"
    line = tag("line", x1="0", x2="24", y1="6", y2="6", class_=kind)
    return [line, mark(index, "12", "6")]


def _bar_sample(index: int) -> list[Safe]:
    return [tag("rect", x="4", y="0", width="16", height="12", class_=f"fill {colour(index)}")]
