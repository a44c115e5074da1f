"""Tables of figures of the papers, read from the files beside this one when they are asked for."""

from __future__ import annotations

import functools
import importlib.resources
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from research.specification import read_yaml
from vecveil.errors import InvalidInputError

__all__ = ["TABLES", "Column", "PublishedTable", "published", "text_of"]

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
class Column:
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
    columns: Mapping[str, Column]
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
        name: Column(name=name, key=about.pop("role") == "key", **about)
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
