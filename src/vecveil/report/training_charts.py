"""Inline SVG of measures over epochs. Across, lengths are percentages of the width; down, they are pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from vecveil.report.figures import MISSING
from vecveil.report.markup import Safe, tag
from vecveil.report.training_record import Panel, Training

__all__ = ["SIDES", "curve_chart", "scale_ticks", "shown"]

SIDES = {"protected": "protected", "clean": "clean", "training": "while training"}
HEIGHT, EDGE = 132, 8
INSET = 2.0  # per cent of the width on each side, for the dots at the ends
MOST_DOTS = 30


def shown(value: float | None) -> str:
    """Return a measure with four significant digits."""
    # + 0.0: what is written as 0 has no sign.
    return MISSING if value is None else f"{value + 0.0:.4g}".replace("-", "\u2212")


def scale_ticks(
    values: Sequence[float], bounds: tuple[float, float] | None = None
) -> list[tuple[float, str]]:
    """Return three to seven round numbers that hold all values, rising, and how each is written.

    Within ``bounds``, where the values are, the scale is that of the bounds.
    """
    low, high = min(values), max(values)
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    # A measure that hardly moves must not be blown up to fill a chart.
    least = 0.01 * max(abs(low), abs(high)) or 1.0
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    rough = (high - low) / 3
    power = math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * 10.0**power >= rough * 0.999) * 10.0**power
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [
        (i * step, f"{i * step:,.{decimals}f}".replace("-", "\u2212"))
        for i in range(first, last + 1)
    ]


def curve_chart(panel: Panel, training: Training) -> Safe:
    """Return one panel: a scale, the curves of its measures, and the numbers of the epochs below."""
    held = [(m, values) for m in panel.measures if (values := training.of(m)) is not None]
    known = [value for _, values in held for value in values if value is not None]
    ticks = scale_ticks(known, panel.bounds)
    low, high = ticks[0][0], ticks[-1][0]

    def down(value: float) -> float:
        return EDGE + (HEIGHT - 2 * EDGE) * (high - value) / (high - low)

    shapes = [
        tag("line", x1="0", x2="100%", y1=_px(down(at)), y2=_px(down(at)), class_="grid")
        for at, _ in ticks
    ]
    words: list[str] = []
    lines: list[Safe] = []
    for measure, values in reversed(held):  # the first is drawn last, over the others
        points = [
            None if value is None else (_across(epoch, training), down(value))
            for epoch, value in zip(training.epochs, values, strict=True)
        ]
        lines += _lines(points, measure.side)
        shapes += _dots(points, measure.side)
        ends = [(e, v) for e, v in zip(training.epochs, values, strict=True) if v is not None]
        words.insert(0, f"{SIDES[measure.side]}: {_from_to(ends)}")
    picture = tag(
        "svg",
        tag("title", f"{panel.title} over the epochs", id=f"{panel.name}-title"),
        tag("desc", f"{'; '.join(words)}.", id=f"{panel.name}-desc"),
        *shapes[: len(ticks)],
        _stretched(lines),
        *shapes[len(ticks) :],
        class_="chart curve",
        role="img",
        aria_labelledby=f"{panel.name}-title {panel.name}-desc",
        width="100%",
        height=HEIGHT,
    )
    return tag("div", _scale(ticks, down), picture, _epochs(training), class_="plot")


def _across(epoch: int, training: Training) -> float:
    """Return where an epoch lies, in per cent of the width."""
    first, last = training.epochs[0], training.epochs[-1]
    share = 0.5 if last == first else (epoch - first) / (last - first)
    return INSET + (100 - 2 * INSET) * share


def _px(length: float) -> str:
    return f"{length:.2f}"


Point = tuple[float, float] | None


def _lines(points: Sequence[Point], side: str) -> list[Safe]:
    """Return a line through each run of neighbours that were measured."""
    runs = [list(run) for there, run in itertools.groupby(points, lambda p: p is not None) if there]
    return [
        tag(
            "polyline",
            points=" ".join(f"{point[0]:.6g},{point[1]:.2f}" for point in run if point is not None),
            class_=f"curve {side}",
        )
        for run in runs
        if len(run) > 1
    ]


def _stretched(lines: Sequence[Safe]) -> Safe | None:
    """Return lines in per cent and pixels as a drawing that is as wide as its place; strokes keep their width."""
    if not lines:
        return None
    return tag(
        "svg", *lines, viewBox=f"0 0 100 {HEIGHT}", preserveAspectRatio="none", width="100%", height=HEIGHT
    )  # fmt: skip


def _dots(points: Sequence[Point], side: str) -> list[Safe]:
    """Return dots where there are few, and wherever a point has no neighbour to draw a line to."""
    few = len(points) <= MOST_DOTS
    return [
        tag("circle", cx=f"{at[0]:.6g}%", cy=_px(at[1]), r="2.5", class_=f"point {side}")
        for before, at, after in zip([None, *points], points, [*points[1:], None], strict=False)
        if at is not None and (few or (before is None and after is None))
    ]


def _from_to(ends: Sequence[tuple[int, float]]) -> str:
    (first, start), (last, end) = ends[0], ends[-1]
    if first == last:
        return f"{shown(start)} at epoch {first:,}"
    return f"{shown(start)} at epoch {first:,}, {shown(end)} at epoch {last:,}"


def _scale(ticks: Sequence[tuple[float, str]], place: Callable[[float], float]) -> Safe:
    numbers = [
        tag("text", words, x="100%", y=_px(place(at) + 4), text_anchor="end") for at, words in ticks
    ]
    return tag(
        "svg", *numbers, class_="chart scale", width="100%", height=HEIGHT, aria_hidden="true"
    )


def _epochs(training: Training) -> Safe:
    first, last = training.epochs[0], training.epochs[-1]
    ends = [tag("span", f"{first:,}"), tag("span", "epoch"), tag("span", f"{last:,}")]
    held = ends if last > first else [tag("span", f"epoch {first:,}")]
    return tag("p", *held, class_="epochs meta" if last > first else "epochs meta one")
