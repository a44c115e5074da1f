"""Base class of protecting SQL tables for programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from vecveil.databases.release import Items
from vecveil.databases.store import Match
from vecveil.errors import InvalidInputError, unknown_name
from vecveil.types import Embeddings, Texts

__all__ = ["SqlTable"]


class SqlTable(ABC):
    """A table with protected vectors."""

    _database: ClassVar[str]

    def __init__(
        self, store: Any, items: Items, table: str, metric: str, columns: Mapping[str, str], *, keep_text: bool
    ) -> None:  # fmt: skip
        if metric not in store.metrics:
            raise unknown_name(items.owner, "metric", store.metrics, metric)
        self.store, self.items, self.table = store, items, table
        self.metric, self.keep_text = metric, keep_text
        self.id_column, self.vector_column, self.text_column = (
            self._check_column(name, param) for param, name in columns.items()
        )

    @abstractmethod
    def _check_column(self, name: Any, param: str) -> str:
        """Return ``name``, or raise for a name that the database cannot hold as a column."""

    def add(
        self,
        ids: Sequence[Any],
        items: Texts | Embeddings,
        fields: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Protect ``items`` and write them in one transaction; rows with the same ids are replaced.

        Args:
            ids: primary keys, which are also the item ids of keyed noise and the ledger.
            items: texts, or clean vectors (N, n).
            fields: further values per item by column; the same columns for all items.

        Raises:
            InvalidInputError: wrong number of ids or fields, duplicate ids, or NaN.
            IncompatibleError: a dimension differs from the protector's.
            StoreError: the database failed; nothing is written.
        """
        # All checks come before `documents`, which counts the release in the ledger.
        names = self._check_rows(ids, items, fields)
        self._check_dimension()
        vectors, texts = self.items.documents(items, ids)
        rows = [dict(row) for row in fields or [{}] * len(vectors)]
        kept = texts is not None and self.keep_text
        self.items.warn_if_text(
            fields, texts, f"the {self._database} table {self.table!r}", kept=kept
        )
        if texts is not None and kept:
            names = [*names, self.text_column]
            rows = [{**row, self.text_column: text} for row, text in zip(rows, texts, strict=True)]
        self.store.insert(ids, vectors, names, rows)

    def search(
        self,
        query: str | Embeddings | Sequence[float],
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> list[Match]:
        """Return the ``k`` nearest rows, nearest first; sqlite-vec returns at most 4096.

        Args:
            query: a text, or a clean vector (n,), released as a query.
            where: required values of columns.

        Raises:
            StoreError: the database failed.
        """
        self._check_dimension()
        # Column names become part of the statement; values are bound.
        for name in where or {}:
            self._check_column(name, "where")
        matches: list[Match] = self.store.search_where(
            self.items.query(query), int(k), self.metric, where
        )
        return matches

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.store.count())

    def close(self) -> None:
        """Close the connection if this object opened it."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check_dimension(self) -> None:
        if dimension := self.store.dimension():  # 0: the column accepts any
            self.items.check_dimension(dimension, "table")

    def _check_rows(
        self, ids: Sequence[Any], items: Any, fields: Sequence[Mapping[str, Any]] | None
    ) -> list[str]:
        """Return the names of the fields."""
        owner, rows = f"{self.items.owner}.add", len(items)
        if len(ids) != rows or len(set(ids)) != rows or len(fields or ids) != rows:
            got = f"{len(set(ids))} different ids for {rows} items"
            raise InvalidInputError.of(owner, "ids", "one for each item and its fields", got)
        names = [self._check_column(name, "fields") for name in fields[0]] if fields else []
        own = {self.id_column, self.vector_column, *([self.text_column] if self.keep_text else [])}
        if own & set(names) or any(set(row) != set(names) for row in fields or ()):
            expected = "the same columns for all, beside id, vector and text"
            raise InvalidInputError.of(owner, "fields", expected, "others")
        return names
