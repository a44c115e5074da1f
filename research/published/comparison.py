"""A claim about figures, in a form that can be counted in any rows: the paper's own, and ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Order", "Row", "Tally", "Trend"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """In how many cells a claim holds.

    Attributes:
        held, cells: of the comparisons that could be made.
        broken: the cells in which it does not hold, by their keys.
    """

    held: int
    cells: int
    broken: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One figure is below or above another in every cell.

    Attributes:
        figure: name of the column that is compared.
        of, against: which rows, by key; a list of values stands for each of them. Keys that neither names must agree.
        expect: ``lower`` or ``higher``.
        by: by how much more than nothing, in the unit of the rows.
        times: the figure of ``against`` is multiplied by this first: ``lower`` with 1.25 is at most 1.25 times as much.
    """

    figure: str
    of: Mapping[str, Any]
    against: Mapping[str, Any]
    expect: Literal["lower", "higher"]
    by: float = 0.0
    times: float = 1.0

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many cells of ``rows`` it holds; rows without the figure make no cell.

        Args:
            rows: in the units of the published table.
            keys: the columns that say which cell a row is; those that a row lacks are passed over.
        """
        same = [key for key in keys if not (key in self.of and key in self.against)]
        found = []
        for one, other in itertools.product(
            _matching(rows, self.of), _matching(rows, self.against)
        ):
            if all(one.get(key) == other.get(key) for key in same):
                figure, beside = one.get(self.figure), other.get(self.figure)
                if figure is not None and beside is not None:
                    found.append((one, other, self._holds(figure, beside)))
        broken = tuple(
            {key: one[key] for key in same if key in one}
            | {key: one[key] if one[key] == other[key] else (one[key], other[key]) for key in self.of if key in other}
            for one, other, holds in found
            if not holds
        )  # fmt: skip
        return Tally(len(found) - len(broken), len(found), broken)

    def _holds(self, one: float, other: float) -> bool:
        scaled = self.times * other
        return one < scaled - self.by if self.expect == "lower" else one > scaled + self.by


@dataclass(frozen=True, slots=True)
class Trend:
    """A figure falls or rises from step to step along a key; each step is a cell.

    Attributes:
        figure, along: names of the column that moves, and of the key along which.
        expect: ``falling`` or ``rising``.
    """

    figure: str
    along: str
    expect: Literal["falling", "rising"]

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many steps it holds; arguments as those of `Order.tally`."""
        same = [key for key in keys if key != self.along]
        known = [row for row in rows if row.get(self.figure) is not None]
        lines: dict[tuple[Any, ...], list[Row]] = {}
        for row in sorted(known, key=lambda row: float(row[self.along])):
            lines.setdefault(tuple(row.get(key) for key in same), []).append(row)
        steps = [pair for line in lines.values() for pair in itertools.pairwise(line)]
        broken = tuple(
            {key: early[key] for key in same if key in early}
            | {self.along: (early[self.along], late[self.along])}
            for early, late in steps
            if not self._holds(early[self.figure], late[self.figure])
        )
        return Tally(len(steps) - len(broken), len(steps), broken)

    def _holds(self, early: float, late: float) -> bool:
        return late < early if self.expect == "falling" else late > early


def _matching(rows: Sequence[Row], wanted: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows whose keys have the wanted values, a list of values standing for each of them."""
    for row in rows:
        if all(
            key in row and (row[key] in value if isinstance(value, list) else row[key] == value)
            for key, value in wanted.items()
        ):
            yield row
