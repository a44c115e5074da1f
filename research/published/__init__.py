"""The figures and claims of the two papers as data.

Each table of a paper is a YAML file with one row per cell, under our names of data sets, methods and attacks. Where a
paper contradicts itself, the rows are as printed and the table's ``notes`` say so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from research.judging import Bound, Order, Tally, Trend
from research.specification import load_beside
from vecveil.errors import InvalidInputError, unknown_name

__all__ = ["TABLES", "Claim", "PublishedColumn", "PublishedTable", "claims", "published"]


TABLES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.yaml") if file.stem != "claims"))
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
        """Return the first row with these values, such as ``dataset="sts12", epsilon=10``, or None.

        A name that is not a column raises `InvalidInputError`.
        """
        if unknown := [name for name in keys if name not in self.columns]:
            known = ", ".join(self.columns)
            raise InvalidInputError(
                f"PublishedTable.find: {self.name} has no column `{unknown[0]}`; it has {known}.", param=unknown[0]
            )
        return next((row for row in self.rows if all(row[name] == keys[name] for name in keys)), None)


@functools.cache
def published(table: str) -> PublishedTable:
    """Return a table of `TABLES`."""
    if table not in TABLES:
        raise unknown_name("published", "table", TABLES, table)
    held = load_beside(__file__, f"{table}.yaml")
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
    compare: Order | Trend | Bound

    def published_tally(self) -> Tally:
        """Return the number of cells in the paper's own tables for which the claim holds."""
        tables = [published(name) for name in self.tables]
        return sum((self.compare.tally(table.rows, table.keys) for table in tables), Tally(0, 0, 0))


@functools.cache
def claims(experiment: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of the papers, or those that one experiment tests."""
    found = []
    for held in load_beside(__file__, "claims.yaml"):
        compare = held.pop("compare")
        kind = Trend if "along" in compare else Bound if "least" in compare else Order
        tables = tuple(held.pop("tables"))
        found.append(Claim(**held, tables=tables, compare=kind(**compare)))
    return tuple(claim for claim in found if experiment in (None, claim.experiment))
