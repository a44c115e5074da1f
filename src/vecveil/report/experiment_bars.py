"""Inline SVG of bars in groups, one below the other, each with its interval."""

from __future__ import annotations

from vecveil.report.experiment_parts import Picture
from vecveil.report.experiment_scale import (
    Across,
    bottom_scale,
    colour,
    named,
    per_cent,
    svg,
    tick_words,
)
from vecveil.report.markup import Safe, tag
from vecveil.report.training_charts import scale_ticks, shown

__all__ = ["bar_chart", "group_name"]

NAME, BAR, GAP, SPACE = 16, 12, 3, 10
LONGEST = 44  # letters of a name: as wide as a phone


def group_name(picture: Picture, x: float) -> str:
    """Return what a group of bars is called: the column of that number, or the number."""
    return picture.columns[int(x)] if picture.columns else tick_words(x)


def bar_chart(picture: Picture, name: str) -> Safe:
    """Return a group of bars for each x, a bar for each series that has it; bars start at 0.

    Args:
        picture: of kind ``bars``, with a point or more.
        name: of the drawing; unique on the page.
    """
    groups = sorted({point.x for series in picture.series for point in series.points})
    points = [point for series in picture.series for point in series.points]
    held = [0.0, *(point.y for point in points)]
    held += [end for point in points for end in (point.low, point.high) if end is not None]
    ticks = scale_ticks(held if picture.chance is None else [*held, picture.chance])
    scale = Across(ticks[0][0], ticks[-1][0], False, tuple(ticks))
    shapes: list[Safe] = []
    words: list[str] = []
    top = 0.0
    for x in groups:
        called = group_name(picture, x)
        shapes.append(tag("text", *named(called, LONGEST), x="0", y=f"{top + 12:g}", class_="name"))
        top += NAME
        said = []
        for i, series in enumerate(picture.series):
            for point in series.points:
                if point.x == x:
                    shapes += _bar(point.y, point.low, point.high, top, i, scale)
                    said.append(f"{series.name} {shown(point.y)}")
                    top += BAR + GAP
        words.append(f"{called}: {', '.join(said)}")
        top += SPACE
    lines = [_upright(scale, at, top, "grid") for at, _ in ticks]
    if picture.chance is not None:
        lines.append(_upright(scale, picture.chance, top, "chance"))
        words.append(f"chance {shown(picture.chance)}")
    drawing = svg(
        name, picture.title, f"{picture.y}. {'; '.join(words)}.", top, *lines, *shapes, kind="bars"
    )
    return tag("div", drawing, bottom_scale(scale))


def _upright(scale: Across, at: float, bottom: float, kind: str) -> Safe:
    x = per_cent(scale.place(at))
    return tag("line", x1=x, x2=x, y1="0", y2=f"{bottom:g}", class_=kind)


def _bar(
    y: float, low: float | None, high: float | None, top: float, index: int, scale: Across
) -> list[Safe]:
    start, end = sorted((scale.place(0.0), scale.place(y)))
    shapes = [
        tag(
            "rect",
            x=per_cent(start),
            y=f"{top:g}",
            width=per_cent(end - start),
            height=BAR,
            class_=f"fill {colour(index)}",
        )
    ]
    if low is not None and high is not None:
        middle = f"{top + BAR / 2:g}"
        ends = {"x1": per_cent(scale.place(low)), "x2": per_cent(scale.place(high))}
        shapes += [
            tag("line", y1=middle, y2=middle, class_=kind, **ends) for kind in ("halo", "interval")
        ]
    return shapes
