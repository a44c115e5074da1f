"""What the sections of the page are made of: a section, a table, a cell, a list of facts."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.report import figures as f
from vecveil.report.markup import Child, Safe, tag
from vecveil.report.record import Figure

__all__ = ["bounds", "cell", "facts_list", "section", "table"]


def section(name: str, heading: str, *children: Child) -> Safe:
    """Return one section under its own heading."""
    return tag("section", tag("h2", heading, id=name), *children, aria_labelledby=name)


def table(caption: str, heads: Sequence[str], kind: str, *bodies: Sequence[Child]) -> Safe:
    """Return a table with a caption; heads after the first are those of columns of figures."""
    cells = [
        tag("th", head, scope="col", class_=None if i == 0 else "number")
        for i, head in enumerate(heads)
    ]
    groups = [tag("tbody", *rows) for rows in bodies]
    return tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *cells)), *groups, class_=kind
    )


def cell(figure: str, below: str | None = None) -> Safe:
    """Return a cell with a figure and, below it, its interval."""
    return tag("td", figure, None if below is None else tag("small", below), class_="number")


def facts_list(facts: Sequence[tuple[str, Child]]) -> Safe:
    """Return names and values as a description list; facts without a value are left out."""
    pairs = [
        tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value is not None
    ]
    return tag("dl", *pairs, class_="facts")


def bounds(figure: Figure) -> tuple[str, str]:
    """Return the interval on clean and the one on protected vectors, as words."""
    clean = f.interval(figure.clean_low, figure.clean_high)
    return clean, f.interval(figure.low, figure.high)
