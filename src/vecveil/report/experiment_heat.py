"""Inline SVG of a heat map: the stronger the colour, the farther from 0; below 0 in another colour."""

from __future__ import annotations

from vecveil.report.experiment_parts import Picture
from vecveil.report.experiment_scale import named, per_cent, svg
from vecveil.report.figures import MISSING
from vecveil.report.markup import Safe, tag
from vecveil.report.training_charts import shown

__all__ = ["heat_chart", "heat_key"]

CELL = 22
MOST_NAMES = 20
LONGEST = 18
LETTER = 6.3  # pixels: a little more than the mean width of a letter of 11 pixels
STEPS = 5
DARK = 0.55  # from this strength on, words on a cell have the colour of the paper
MOST_COLUMNS_WITH_NUMBERS = 6


def _strongest(picture: Picture) -> float:
    held = [abs(value) for row in picture.values for value in row if value is not None]
    return max(held, default=0.0) or 1.0


def heat_chart(picture: Picture, name: str) -> Safe:
    """Return a cell for each value, the names of rows beside and those of columns upright below.

    Of many columns every second, third ... is named; the numbers stand in the table below the figure.

    Args:
        picture: of kind ``heat``, with a row and a column or more.
        name: of the drawing; unique on the page.
    """
    most, count = _strongest(picture), len(picture.columns)
    width, height = 100 / count, CELL * len(picture.rows)
    shapes: list[Safe] = []
    for i, row in enumerate(picture.values):
        for j, value in enumerate(row):
            shapes += _cell(value, most, i * CELL, j * width, width, count)
    known = [value for row in picture.values for value in row if value is not None]
    between = f"between {shown(min(known))} and {shown(max(known))}" if known else "not measured"
    words = (
        f"{picture.y} against {picture.x}: {len(picture.rows)} rows and {count} columns, {between}."
    )
    drawing = svg(name, picture.title, words, height, *shapes, kind="heat")
    beside = [
        tag("text", *named(row, LONGEST), x="100%", y=f"{i * CELL + 15}", text_anchor="end")
        for i, row in enumerate(picture.rows)
    ]
    left = tag("svg", *beside, class_="chart scale", width="100%", height=height, aria_hidden="true")  # fmt: skip
    step = -(-count // MOST_NAMES)
    shown_names = [(j, column) for j, column in enumerate(picture.columns) if j % step == 0]
    below = [
        tag(
            "svg",
            tag(
                "text",
                *named(words, LONGEST),
                transform="rotate(-90)",
                x="-4",
                y="4",
                text_anchor="end",
            ),
            x=per_cent((j + 0.5) * width),
        )
        for j, words in shown_names
    ]
    longest = max(min(len(words), LONGEST) for _, words in shown_names)
    deep = round(8 + LETTER * longest)
    axis = tag("svg", *below, class_="chart axis", width="100%", height=deep, aria_hidden="true")
    return tag("div", left, drawing, tag("div", axis, class_="below"), class_="plot heat")


def _cell(
    value: float | None, most: float, top: float, left: float, width: float, count: int
) -> list[Safe]:
    middle = {"x": per_cent(left + width / 2), "y": f"{top + 15:g}", "text_anchor": "middle"}
    if value is None:
        return [tag("text", MISSING, **middle)]
    strength = abs(value) / most
    shapes = [
        tag(
            "rect",
            x=per_cent(left),
            y=f"{top:g}",
            width=per_cent(width),
            height=CELL,
            fill_opacity=f"{strength:.3f}",
            class_=f"cell {'below' if value < 0 else 'above'}",
        )
    ]
    if count <= MOST_COLUMNS_WITH_NUMBERS:
        kind = "on dark" if strength >= DARK else "on"
        shapes.append(tag("text", f"{value:.2g}".replace("-", "\u2212"), class_=kind, **middle))
    return shapes


def heat_key(picture: Picture) -> Safe:
    """Return the colours from 0 to the strongest, on the sides of 0 that the figure has."""
    most = _strongest(picture)
    known = [value for row in picture.values for value in row if value is not None]
    sides = [("below", -1)] if min(known, default=0.0) < 0 else []
    if max(known, default=0.0) > 0 or not sides:
        sides.append(("above", 1))
    keys = []
    for side, sign in sides:
        boxes = [
            tag("rect", x=f"{16 * k}", y="0", width="16", height="12", fill_opacity=f"{k / (STEPS - 1):.2f}",
                class_=f"cell {side}")
            for k in range(STEPS)
        ]  # fmt: skip
        sample = tag("svg", *boxes, class_="chart", width=16 * STEPS, height="12", aria_hidden="true")  # fmt: skip
        keys.append(tag("span", "0", sample, shown(sign * most), class_="key"))
    return tag("p", *keys, class_="legend")
