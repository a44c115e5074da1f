"""What the sections of the page are made of: a section, a table, a cell, a list of facts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vecveil.report import figures as f
from vecveil.report.markup import Child, Safe, tag
from vecveil.report.record import Audit, Figure

__all__ = ["bounds", "cell", "facts_list", "section", "side_cells", "side_heads", "table"]


def section(name: str, heading: str, *children: Child) -> Safe:
    """Return one section under its own heading."""
    return tag("section", tag("h2", heading, id=name), *children, aria_labelledby=name)


def table(
    caption: str,
    heads: Sequence[str],
    kind: str,
    *bodies: Sequence[Child],
    words: Collection[int] = (0,),
) -> Safe:
    """Return a table with a caption; ``words`` are the columns that hold no figures."""
    cells = [
        tag("th", head, scope="col", class_=None if i in words else "number")
        for i, head in enumerate(heads)
    ]
    groups = [tag("tbody", *rows) for rows in bodies]
    return tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *cells)), *groups, class_=kind
    )


def cell(figure: str, below: str | None = None, kind: str = "number") -> Safe:
    """Return a cell with a figure and, below it, its interval."""
    shown = None if below in (None, f.MISSING) else tag("small", below)
    return tag("td", figure, shown, class_=kind)


def side_cells(figure: Figure, clean: bool) -> list[Safe]:
    """Return the cells of one figure: clean (if the record has that side), audited, chance."""
    before, audited = bounds(figure)
    first = [cell(f.percent(figure.clean), before)] if clean else []
    value = cell(f.percent(figure.value), audited, kind="number audited")
    return [*first, value, cell(f.percent(figure.chance))]


def side_heads(audit: Audit, *first: str) -> list[str]:
    """Return the heads of the columns of `side_cells`, after others."""
    clean = ["Clean"] if audit.has_clean else []
    return [*first, *clean, "Stored" if audit.is_store else "Protected", "Chance"]


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
