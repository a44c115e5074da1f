"""The section with the figures of an experiment: each drawn, with its numbers in a table folded away below."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.report.experiment_bars import bar_chart, group_name
from vecveil.report.experiment_charts import curve_chart
from vecveil.report.experiment_heat import heat_chart, heat_key
from vecveil.report.experiment_parts import Picture, Point
from vecveil.report.experiment_scale import legend, tick_words
from vecveil.report.markup import Safe, prose, tag
from vecveil.report.parts import cell, section, table
from vecveil.report.training_charts import shown

__all__ = ["figures"]


def figures(pictures: Sequence[Picture]) -> Safe | None:
    """Return the section of all figures; None where there are none."""
    if not pictures:
        return None
    panels = [_panel(picture, f"figure-{i}") for i, picture in enumerate(pictures, start=1)]
    return section("figures", "Figures", tag("div", *panels, class_="curves"))


def _panel(picture: Picture, name: str) -> Safe:
    wide = picture.kind != "curve"
    return tag(
        "div",
        tag("h3", picture.title),
        tag("p", prose(picture.caption), class_="meta") if picture.caption else None,
        *_drawn(picture, name),
        class_="panel wide" if wide else "panel",
    )


def _drawn(picture: Picture, name: str) -> list[Safe | None]:
    if not (picture.series or (picture.rows and picture.columns)):
        return [tag("p", "Nothing was measured.")]
    if picture.kind == "heat":
        axes = tag("p", f"Down: {picture.y}. Across: {picture.x}.", class_="meta")
        return [axes, heat_key(picture), heat_chart(picture, name), _heat_numbers(picture)]
    if not picture.series:
        return [tag("p", "Nothing was measured.")]
    chart = curve_chart if picture.kind == "curve" else bar_chart
    across = f"{picture.x}{', on a logarithmic scale' if picture.log else ''}"
    axes = tag("p", f"Up: {picture.y}. Across: {across}." if picture.kind == "curve" else f"Across: {picture.y}.",
               class_="meta")  # fmt: skip
    return [axes, legend(picture), chart(picture, name), _numbers(picture)]


def _folded(picture: Picture, heads: Sequence[str], rows: Sequence[Safe]) -> Safe:
    held = table(f"The numbers of “{picture.title}”.", heads, "numbers", rows)
    label = f"Numbers of {picture.title}"
    box = tag("div", held, class_="scroll", tabindex="0", role="region", aria_label=label)
    return tag("details", tag("summary", "Numbers"), box)


def _numbers(picture: Picture) -> Safe:
    places = sorted({point.x for series in picture.series for point in series.points})
    rows = []
    for x in places:
        called = group_name(picture, x) if picture.kind == "bars" else tick_words(x)
        cells = [_point([p for p in series.points if p.x == x]) for series in picture.series]
        rows.append(tag("tr", tag("th", called, scope="row"), *cells))
    first = picture.x or picture.y
    return _folded(picture, (first, *(series.name for series in picture.series)), rows)


def _point(points: Sequence[Point]) -> Safe:
    """Return the cell of one series at one place, which may hold several points or none."""
    values = "; ".join(shown(point.y) for point in points) or shown(None)
    ends = [
        f"{shown(p.low)} to {shown(p.high)}" for p in points if p.low is not None and p.high is not None
    ]  # fmt: skip
    return cell(values, "; ".join(ends) or None)


def _heat_numbers(picture: Picture) -> Safe:
    rows = [
        tag("tr", tag("th", name, scope="row"), *(cell(shown(value)) for value in row))
        for name, row in zip(picture.rows, picture.values, strict=True)
    ]
    return _folded(picture, (picture.y, *picture.columns), rows)
