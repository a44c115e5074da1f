"""Tables, figures and findings: what an experiment's records say, before anybody draws it.

`Summary.to_record` is the object of schema ``vecveil.experiment/1`` (docs/formats.md) that `vecveil.report` renders.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Cell", "Column", "Figure", "Finding", "Number", "Series", "Summary", "Table", "number"]

Verdict = Literal["agrees", "disagrees", "unclear", "not measured"]


@dataclass(frozen=True)
class Number:
    """A figure in a table.

    Attributes:
        value, low, high: the figure and its 95 % interval, where it has one.
        sd, n: standard deviation over seeds and how many there were.
        digits: after the point, as shown.
        percent: shown a hundredfold.
        published: the paper's figure, on the scale of ``value``.
    """

    value: float
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    n: int | None = None
    digits: int = 1
    percent: bool = True
    published: float | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the cell as the record holds it."""
        return dict(vars(self))


Cell = str | Number | None


def number(
    values: Sequence[float],
    *,
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    digits: int = 1,
    percent: bool = True,
    published: float | None = None,
) -> Number | None:
    """Return mean and standard deviation over seeds; of one seed the value and its interval; None of nothing."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    one = len(finite) == 1
    return Number(
        value=statistics.fmean(finite),
        low=low[0] if one and low else None,
        high=high[0] if one and high else None,
        sd=None if one else statistics.stdev(finite),
        n=len(finite),
        digits=digits,
        percent=percent,
        published=published,
    )


@dataclass(frozen=True)
class Column:
    """A column: ``text`` columns hold words, the others figures."""

    name: str
    unit: str | None = None
    text: bool = False


@dataclass(frozen=True)
class Table:
    """A table; None in a row was not measured."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    notes: Sequence[str] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the table as the record holds it."""
        return {
            "title": self.title,
            "caption": self.caption,
            "columns": [vars(column) for column in self.columns],
            "rows": [
                [c.to_record() if isinstance(c, Number) else c for c in row] for row in self.rows
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Series:
    """A line of a figure: points (x, y, low, high), the ends of the interval None where there is none."""

    name: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    dashed: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure: curves or bars of series, or a heat map of ``values`` (rows x columns)."""

    title: str
    kind: Literal["curve", "heat", "bars"] = "curve"
    caption: str = ""
    x: str = ""
    y: str = ""
    log: bool = False
    series: Sequence[Series] = ()
    chance: float | None = None
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    values: Sequence[Sequence[float]] = ()

    def to_record(self) -> dict[str, Any]:
        """Return the figure as the record holds it."""
        keys = ("x", "y", "low", "high")
        return {
            "kind": self.kind,
            "title": self.title,
            "caption": self.caption,
            "x": {"name": self.x, "log": self.log},
            "y": {"name": self.y},
            "series": [
                {
                    "name": one.name,
                    "points": [dict(zip(keys, point, strict=True)) for point in one.points],
                    "dashed": one.dashed,
                }
                for one in self.series
            ],
            "chance": self.chance,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "values": [list(row) for row in self.values],
        }


@dataclass(frozen=True)
class Finding:
    """A claim of a paper, or of ours, beside what was measured."""

    claim: str
    source: str
    verdict: Verdict
    ours: str
    published: str = ""
    difference: str = ""

    def to_record(self, command: str) -> dict[str, Any]:
        """Return the finding with the command that measures it."""
        return {**vars(self), "command": command}


@dataclass(frozen=True)
class Summary:
    """What the records say."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    def to_record(self, command: str) -> dict[str, Any]:
        """Return the part of an experiment's record that this is."""
        return {
            "notes": list(self.notes),
            "tables": [table.to_record() for table in self.tables],
            "figures": [figure.to_record() for figure in self.figures],
            "findings": [finding.to_record(command) for finding in self.findings],
        }
