"""The figures and claims of the two papers as data, and the comparisons that test a claim.

Each table of a paper is a YAML file with one row per cell, under our names of data sets, methods and attacks. Where a
paper contradicts itself, the rows stand as printed and the table's ``notes`` say so.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from vecveil.concepts.concept_file import load_yaml
from vecveil.errors import InvalidInputError

__all__ = [
    "TABLES",
    "Claim",
    "Order",
    "PublishedColumn",
    "PublishedTable",
    "Row",
    "Tally",
    "Trend",
    "claims",
    "published",
]


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the comparisons in which a claim holds and of all made, and the cells in which it does not."""

    held: int
    cells: int
    broken: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One figure is below or above another in every cell.

    Attributes:
        figure: column to compare.
        of, against: keys of the two rows; a list stands for each of its values. Keys that neither names must agree.
        by: margin, in the unit of the rows.
        times: factor of ``against``: ``lower`` with 1.25 is at most 1.25 times as much.
    """

    figure: str
    of: Mapping[str, Any]
    against: Mapping[str, Any]
    expect: Literal["lower", "higher"]
    by: float = 0.0
    times: float = 1.0

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many cells of ``rows`` the order holds; rows without the figure make no cell.

        Args:
            rows: in the units of the published table.
            keys: columns that identify a cell; those that a row lacks are skipped.
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
    """A figure falls or rises from step to step along a key; each step is a cell."""

    figure: str
    along: str
    expect: Literal["falling", "rising"]

    def tally(self, rows: Sequence[Row], keys: Sequence[str]) -> Tally:
        """Return in how many steps the trend holds; arguments as in `Order.tally`."""
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
    """Yield the rows whose keys have the wanted values; a list stands for each of its values."""
    for row in rows:
        if all(
            key in row and (row[key] in value if isinstance(value, list) else row[key] == value)
            for key, value in wanted.items()
        ):
            yield row


_FOLDER = importlib.resources.files("research.published")
TABLES = tuple(sorted(
    file.name.removesuffix(".yaml") for file in _FOLDER.iterdir()
    if file.name.endswith(".yaml") and file.name != "claims.yaml"
))  # fmt: skip
"""Names of the tables."""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column of a published table.

    Attributes:
        key: whether the column identifies a cell.
        unit: ``%`` where figures are per cent rather than shares.
        low, high: bounds of the figures.
        text: whether the column holds words or flags.
    """

    name: str
    what: str
    key: bool
    unit: str | None = None
    low: float = -math.inf
    high: float = math.inf
    text: bool = False


@dataclass(frozen=True)
class PublishedTable:
    """One table of a paper.

    Attributes:
        setting: ``encoder``, ``attack``, ``data``, ``runs`` and others; None where the paper does not say.
        columns: by name; key columns first.
        rows: one for each cell, read-only. An ``epsilon`` of infinity is an unprotected embedding.
        notes: contradictions and gaps of the paper.
    """

    name: str
    paper: str
    table: str
    caption: str
    setting: Mapping[str, Any]
    columns: Mapping[str, PublishedColumn]
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def source(self) -> str:
        words = f"Table {self.table}" if self.table.isdigit() else self.table
        return f"{self.paper}, {words}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a cell."""
        return tuple(name for name, column in self.columns.items() if column.key)

    def find(self, **keys: Any) -> Mapping[str, Any] | None:
        """Return the first row with these values, such as ``dataset="sts12", epsilon=10``; None if there is none.

        Raises:
            InvalidInputError: a name is no column of this table.
        """
        if unknown := [name for name in keys if name not in self.columns]:
            known = ", ".join(self.columns)
            raise InvalidInputError.of("PublishedTable.find", unknown[0], f"a column of {self.name} ({known})",
                                       "another name")  # fmt: skip
        return next(
            (row for row in self.rows if all(row[name] == keys[name] for name in keys)), None
        )


def _read(name: str) -> Any:
    file = _FOLDER / f"{name}.yaml"
    return load_yaml(file.read_text(encoding="utf-8"), file.name, owner="published")


@functools.cache
def published(table: str) -> PublishedTable:
    """Return a table of `TABLES`."""
    if table not in TABLES:
        raise InvalidInputError.of(
            "published", "table", f"one of {', '.join(TABLES)}", repr(table)[:60]
        )
    held = _read(table)
    columns = {
        name: PublishedColumn(name=name, key=about.pop("role") == "key", **about)
        for name, about in held["columns"].items()
    }
    return PublishedTable(
        name=table,
        paper=held["paper"],
        table=str(held["table"]),
        caption=held["caption"],
        setting=MappingProxyType(held["setting"]),
        columns=MappingProxyType(columns),
        rows=tuple(MappingProxyType(row) for row in held["rows"]),
        notes=tuple(note.strip() for note in held["notes"]),
    )


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        source: its place, such as ``Table 1, section 4.2``.
        experiment: our experiment that tests it.
        tables: published tables that it rests on; none where it rests on a picture.
        compare: the comparison that decides it.
    """

    id: str
    paper: str
    source: str
    claim: str
    experiment: str
    tables: tuple[str, ...]
    compare: Order | Trend

    def published_tally(self) -> Tally:
        """Return in how many cells of the paper's own tables the claim holds."""
        tables = [published(name) for name in self.tables]
        parts = [self.compare.tally(table.rows, table.keys) for table in tables]
        return Tally(
            sum(part.held for part in parts),
            sum(part.cells for part in parts),
            tuple(cell for part in parts for cell in part.broken),
        )


@functools.cache
def claims(experiment: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of the papers, or those that one experiment tests."""
    found = []
    for held in _read("claims"):
        compare = held.pop("compare")
        kind = Trend if "along" in compare else Order
        tables = tuple(held.pop("tables"))
        found.append(Claim(**held, tables=tables, compare=kind(**compare)))
    return tuple(claim for claim in found if experiment in (None, claim.experiment))
