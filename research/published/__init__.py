"""The figures and the claims of the two papers, as data, and the comparison of figures that tests a claim.

One YAML file a table of a paper, in rows of one cell of the paper each; the names of data sets, methods and attacks
are ours. Where a paper contradicts itself, the ``notes`` of the table say so and the rows stand as printed.
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

from research.specification import read_yaml
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
    "text_of",
]


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


TABLES = (
    "sparse-table-1",
    "sparse-table-2",
    "sparse-table-3",
    "sparse-table-4",
    "sparse-table-5",
    "sparse-table-6",
    "sparse-table-7",
    "sparse-table-8",
    "sparse-table-9",
    "sparse-table-10",
    "sparse-table-11",
    "sparse-table-12",
    "sparse-appendix-a",
    "sparse-training-time",
    "textcrafter-table-1",
    "textcrafter-fig-3",
)
"""Names of the tables, in the papers' order."""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """What a column of a table holds.

    Attributes:
        name, what: its key in the rows, and its meaning in words.
        key: whether it says which cell a row is, rather than what was measured there.
        unit: ``%`` where figures are per cent, and not shares.
        low, high: between which its figures must lie.
        better: ``lower`` or ``higher``, where one of the two is.
        text: whether it holds words or flags.
    """

    name: str
    what: str
    key: bool
    unit: str | None = None
    low: float = -math.inf
    high: float = math.inf
    better: str | None = None
    text: bool = False


@dataclass(frozen=True)
class PublishedTable:
    """One table of a paper.

    Attributes:
        name: of the file, such as ``sparse-table-1``.
        paper, table, caption: where the figures stand, and what they are.
        setting: ``encoder``, ``attack``, ``data``, ``runs`` and others; None where the paper does not say.
        columns: by name; key columns first.
        rows: one for each cell of the paper; read-only. An ``epsilon`` of infinity is an unprotected embedding.
        notes: where the paper contradicts itself or leaves something open.
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
        """Paper and table, as a caption says it."""
        words = f"Table {self.table}" if self.table.isdigit() else self.table
        return f"{self.paper}, {words}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say which cell a row is."""
        return tuple(name for name, column in self.columns.items() if column.key)

    def find(self, **keys: Any) -> Mapping[str, Any] | None:
        """Return the first row with these values, such as ``dataset="sts12", epsilon=10``; None if there is none.

        Raises:
            InvalidInputError: a name that is no column of this table.
        """
        if unknown := [name for name in keys if name not in self.columns]:
            known = ", ".join(self.columns)
            raise InvalidInputError.of("PublishedTable.find", unknown[0], f"a column of {self.name} ({known})",
                                       "another name")  # fmt: skip
        return next(
            (row for row in self.rows if all(row[name] == keys[name] for name in keys)), None
        )


def text_of(name: str) -> str:
    """Return the text of a file of this package."""
    folder = importlib.resources.files("research.published")
    return (folder / f"{name}.yaml").read_text(encoding="utf-8")


@functools.cache
def published(table: str) -> PublishedTable:
    """Return a table of figures of a paper.

    Args:
        table: one of ``TABLES``.

    Raises:
        InvalidInputError: there is no such table; the message lists those that there are.
        MissingDependencyError: PyYAML is not installed.
    """
    if table not in TABLES:
        raise InvalidInputError.of(
            "published", "table", f"one of {', '.join(TABLES)}", repr(table)[:60]
        )
    held = read_yaml(text_of(table), owner="published")
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
        id: its name in records.
        paper, source: where it is made, such as ``Table 1, section 4.2``.
        claim: what is claimed.
        experiment: the experiment of ours that tests it.
        tables: the published tables with the figures that it rests on; none where it rests on a picture.
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
    """Return the claims of the papers, or those that one experiment tests.

    Raises:
        MissingDependencyError: PyYAML is not installed.
    """
    found = []
    for held in read_yaml(text_of("claims"), owner="claims"):
        compare = held.pop("compare")
        kind = Trend if "along" in compare else Order
        tables = tuple(held.pop("tables"))
        found.append(Claim(**held, tables=tables, compare=kind(**compare)))
    return tuple(claim for claim in found if experiment in (None, claim.experiment))
