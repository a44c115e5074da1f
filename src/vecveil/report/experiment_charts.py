"""Inline SVG of curves with interval bands. Across, lengths are per cent of the width; down, they are pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from vecveil.report.experiment_parts import Picture, Point, Series
from vecveil.report.experiment_scale import (
    Across,
    across,
    bottom_scale,
    colour,
    mark,
    per_cent,
    stretched,
    svg,
)
from vecveil.report.markup import Safe, tag
from vecveil.report.training_charts import scale_ticks, shown

__all__ = ["curve_chart"]

HEIGHT, EDGE = 220, 8
MOST_MARKS = 30


def curve_chart(picture: Picture, name: str) -> Safe:
    """Return the curves of a figure with their intervals, a scale beside and one below.

    The bands lie below the lines, and the first series is drawn last, over the others. A line runs through all points
    of its series, by rising x.

    Args:
        picture: of kind ``curve``, with a point or more.
        name: of the drawing; unique on the page.
    """
    points = [point for series in picture.series for point in series.points]
    held = [point.y for point in points]
    held += [end for point in points for end in (point.low, point.high) if end is not None]
    ticks = scale_ticks(held if picture.chance is None else [*held, picture.chance])
    bottom, top = ticks[0][0], ticks[-1][0]
    scale = across([point.x for point in points], picture.log)

    def down(value: float) -> float:
        return EDGE + (HEIGHT - 2 * EDGE) * (top - value) / (top - bottom)

    grid = [_level(down(at), "grid") for at, _ in ticks]
    if picture.chance is not None:
        grid.append(_level(down(picture.chance), "chance"))
    bands, lines, marks = [], [], []
    words: list[str] = []
    for i, series in reversed(list(enumerate(picture.series))):
        bands += _bands(series, i, scale, down)
        lines += _line(series, i, scale, down)
        marks += _marks(series, i, scale, down)
        words.insert(0, _from_to(series, picture))
    if picture.chance is not None:
        words.append(f"chance {shown(picture.chance)}")
    drawing = svg(
        name,
        picture.title,
        f"{picture.y} against {picture.x}. {'; '.join(words)}.",
        HEIGHT,
        *grid,
        *[part for part in (stretched([*bands, *lines], HEIGHT),) if part is not None],
        *marks,
        kind="curve",
    )
    numbers = [
        tag("text", said, x="100%", y=f"{down(at) + 4:.2f}", text_anchor="end")
        for at, said in ticks
    ]
    left = tag("svg", *numbers, class_="chart scale", width="100%", height=HEIGHT, aria_hidden="true")  # fmt: skip
    return tag("div", left, drawing, tag("div", bottom_scale(scale), class_="below"), class_="plot")


def _level(y: float, kind: str) -> Safe:
    return tag("line", x1="0", x2="100%", y1=f"{y:.2f}", y2=f"{y:.2f}", class_=kind)


Down = Callable[[float], float]


def _runs(series: Series) -> list[list[Point]]:
    """Return the runs of neighbours that have an interval."""
    parts = itertools.groupby(series.points, lambda point: point.low is not None)
    return [list(run) for there, run in parts if there]


def _bands(series: Series, index: int, scale: Across, down: Down) -> list[Safe]:
    """Return the intervals as bands, and as upright lines where a point stands alone."""
    shapes = []
    for run in _runs(series):
        ends = [
            (scale.place(p.x), down(p.low), down(p.high))
            for p in run
            if p.low is not None and p.high is not None
        ]
        if len(run) == 1:
            x, low, high = ends[0]
            corners = [(x, low), (x, high)]
            shapes.append(tag("polyline", points=_pairs(corners), class_=f"line {colour(index)}"))
            continue
        corners = [(x, low) for x, low, _ in ends] + [(x, high) for x, _, high in reversed(ends)]
        shapes.append(tag("polygon", points=_pairs(corners), class_=f"band {colour(index)}"))
    return shapes


def _line(series: Series, index: int, scale: Across, down: Down) -> list[Safe]:
    if len(series.points) < 2:
        return []
    points = _pairs([(scale.place(p.x), down(p.y)) for p in series.points])
    dashed = " dashed" if series.dashed else ""
    return [tag("polyline", points=points, class_=f"line {colour(index)}{dashed}")]


def _pairs(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.6g},{y:.2f}" for x, y in points)


def _marks(series: Series, index: int, scale: Across, down: Down) -> list[Safe]:
    if len(series.points) > MOST_MARKS:
        return []
    return [mark(index, per_cent(scale.place(p.x)), f"{down(p.y):.2f}") for p in series.points]


def _from_to(series: Series, picture: Picture) -> str:
    first, last = series.points[0], series.points[-1]
    said = f"{series.name}: {shown(first.y)} at {picture.x} {shown(first.x)}"
    return said if first is last else f"{said}, {shown(last.y)} at {shown(last.x)}"
