"""Inline SVG. Lengths are percentages of the width, so a bar's ``width`` is the figure itself.

There is no ``viewBox``: the drawing is as wide as its place on the page, and text, strokes and bar
heights keep their size on a phone. Colours come from the page's style sheet.
"""

from __future__ import annotations

from vecveil.report.figures import MISSING, interval, percent
from vecveil.report.markup import Safe, tag
from vecveil.report.record import Attack, Term, Utility
from vecveil.report.wording import Wording

__all__ = ["attack_chart", "axis", "kept_bar", "term_chart"]

GRID = (0, 25, 50, 75, 100)
BAR, GAP, TOP = 13, 9, 5


def position(share: float) -> str:
    """Return a share as a coordinate, cut at the ends of the axis."""
    return f"{100 * min(max(share, 0.0), 1.0):.4g}%"


def _picture(
    name: str, title: str, description: str, height: int, *shapes: Safe, kind: str
) -> Safe:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *shapes,
        class_=f"chart {kind}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=height,
    )


def _line(x: float, top: float, bottom: float, kind: str) -> Safe:
    return tag("line", x1=position(x), x2=position(x), y1=f"{top:g}", y2=f"{bottom:g}", class_=kind)


def _grid(height: int) -> list[Safe]:
    return [_line(tick / 100, 0, height, "grid") for tick in GRID]


def _bar(share: float, y: int, kind: str) -> Safe:
    return tag("rect", x="0", y=y, width=position(share), height=BAR, class_=f"bar {kind}")


def _whisker(low: float | None, high: float | None, y: float, kind: str) -> list[Safe]:
    """Return an interval as a line with end caps, over a halo that parts it from the bar below."""
    if low is None or high is None:
        return []
    ends = {"x1": position(low), "x2": position(high), "y1": f"{y:g}", "y2": f"{y:g}"}
    return [
        tag("line", class_="halo", **ends),
        *(_line(end, y - 5, y + 5, "halo") for end in (low, high)),
        tag("line", class_=f"interval {kind}", **ends),
        *(_line(end, y - 4, y + 4, "cap") for end in (low, high)),
    ]


def axis(name: str) -> Safe:
    """Return the scale above charts, hidden from screen readers, as each chart says its figures."""
    anchors = {0: "start", 100: "end"}
    ticks = [
        tag(
            "text",
            f"{tick}{'' if tick < 100 else ' %'}",
            x=f"{tick}%",
            y="11",
            text_anchor=anchors.get(tick, "middle"),
        )
        for tick in GRID
    ]
    return tag(
        "svg", *ticks, class_="chart axis", id=name, width="100%", height=16, aria_hidden="true"
    )


def attack_chart(attack: Attack, name: str, said: Wording) -> Safe:
    """Return the bars of one attack, clean above protected, with intervals and chance.

    Without a clean figure there is one bar alone.
    """
    figure = attack.figure
    second = TOP if figure.clean is None else TOP + BAR + GAP
    height = second + BAR + TOP
    bars, intervals, lines, words = [], [], [], []
    if figure.value is not None:
        bars.append(_bar(figure.value, second, "protected"))
        bounds = interval(figure.low, figure.high)
        words.append(f"on {said.vectors} {percent(figure.value)} ({bounds})")
        intervals += _whisker(figure.low, figure.high, second + BAR / 2, "protected")
    if figure.clean is not None:
        bars.append(_bar(figure.clean, TOP, "clean"))
        bounds = interval(figure.clean_low, figure.clean_high)
        words.append(f"on clean vectors {percent(figure.clean)} ({bounds})")
        intervals += _whisker(figure.clean_low, figure.clean_high, TOP + BAR / 2, "clean")
    if figure.chance is not None:
        lines += [_line(figure.chance, 0, height, kind) for kind in ("halo", "chance")]
        words.append(f"chance {percent(figure.chance)}")
    shapes = [*_grid(height), *bars, *lines, *intervals]
    beside = "with and without protection" if said.side == "protected" else "in the store"
    title = f"{attack.name}: {figure.metric} {beside}"
    return _picture(name, title, "; ".join(words) + ".", height, *shapes, kind="attack")


def kept_bar(utility: Utility, name: str) -> Safe | None:
    """Return a bar of the share of clean utility that is kept, if it was recorded."""
    if utility.relative is None:
        return None
    words = f"{percent(utility.relative)} of the clean value."
    track = tag("rect", x="0", y="0", width="100%", height=6, class_="track")
    bar = tag(
        "rect", x="0", y="0", width=position(utility.relative), height=6, class_="bar protected"
    )
    return _picture(name, f"{utility.label}: utility kept", words, 6, track, bar, kind="kept")


def term_chart(term: Term, label: str, name: str, said: Wording) -> Safe:
    """Return a line with a ring at the clean share, a dot at the protected one, a chance mark."""
    middle, shapes = 8, [tag("line", x1="0", x2="100%", y1="8", y2="8", class_="track")]
    if term.clean is not None and term.value is not None:
        ends = {"x1": position(term.value), "x2": position(term.clean), "y1": "8", "y2": "8"}
        shapes.append(tag("line", class_="change", **ends))
    if term.chance is not None:
        shapes.append(_line(term.chance, 2, 14, "chance"))
    if term.clean is not None:
        shapes.append(tag("circle", cx=position(term.clean), cy=middle, r="4", class_="dot clean"))
    if term.value is not None:
        shapes.append(
            tag("circle", cx=position(term.value), cy=middle, r="4", class_="dot protected")
        )
    shown = [percent(share) for share in (term.clean, term.value, term.chance)]
    words = f"clean {{}}, {said.side} {{}}, chance {{}}.".format(*shown)
    words = words.replace(MISSING, "not recorded")
    return _picture(name, f"{label}: share recovered", words, 16, *shapes, kind="term")
