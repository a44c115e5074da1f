"""PostgreSQL tables with a column of pgvector's vectors.

Rows are read by primary key, in its order; every batch is a query of its own, so that no transaction stays open. Rows
whose vector is NULL are no rows here. A password comes from the URL, PGPASSWORD or a password file; no message has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.pgvector_layout import (
    TABLES,
    Layout,
    Row,
    as_value,
    is_name,
    looked_up,
    quoted,
)
from vecveil.databases.pgvector_writing import make_table, write_rows
from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    database_errors,
    in_order,
    only_one,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["PgvectorStore"]

_OWNER = "PgvectorStore"
_AGAIN = (
    "See that the server runs and takes the connection, and run again: what was done stays done."
)
_METRICS = ("cosine", "dot", "euclidean")


class PgvectorStore(VectorStore):
    """One table.

    Fields are the other columns whose value is not NULL, other columns of vectors left out: those may be clean. A
    field without a column gets one; rows of another such table bring the types and names of theirs.

    Args:
        url: ``postgresql://USER@HOST/DATABASE`` or a connection string of libpq.
        table: its name or ``schema.table``, with ``:column`` if it has several columns of vectors; None takes the
            only table with vectors.

    Raises:
        MissingDependencyError: psycopg or pgvector is not installed.
    """

    kind: ClassVar[str] = "pgvector"

    def __init__(self, url: str, table: str | None = None) -> None:
        try:
            import pgvector.psycopg  # noqa: F401 - so that it fails here and not at the first row
            import psycopg
        except ImportError:
            raise MissingDependencyError("Reading PostgreSQL", "pgvector", "pgvector") from None
        self._psycopg = psycopg
        self._url = url
        self._table, _, self._vector_column = (table or "").partition(":")
        self._opened: Any = None
        self._taught: Any = None
        self._known: Layout | None = None

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is connected or created yet."""
        return cls(where, collection)

    def info(self) -> StoreInfo:
        """Return what the table says about itself; rows without a vector do not count."""
        layout = self._layout()
        sql = self._psycopg.sql
        names = {"vector": quoted(layout.vector_column), "table": self._name()}
        counted = sql.SQL("SELECT count({vector}) FROM {table}").format(**names)
        first = "SELECT vector_dims({vector}) FROM {table} WHERE {vector} IS NOT NULL LIMIT 1"
        with self._cursor("counting rows") as cursor:
            (count,) = cursor.execute(counted, ()).fetchone()
            dimension = layout.dimension
            if count and not dimension:
                (dimension,) = cursor.execute(sql.SQL(first).format(**names), ()).fetchone()
        return StoreInfo(self.kind, self._table, int(count), int(dimension), layout.metric)

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows by their primary key."""
        size = check_count(size, owner=_OWNER, param="size")
        last = _last(after)
        layout = self._layout()
        while True:
            behind = "" if last is None else " AND {id} > %s::" + layout.id_type
            which = "WHERE {vector} IS NOT NULL" + behind + " ORDER BY {id} LIMIT %s"
            batch = self._select(layout, which, [size] if last is None else [last, size])
            if not len(batch):
                return
            yield batch
            last = batch.ids[-1]

    def exists(self) -> bool:
        """Return whether the table is there; with no name, whether there is just one with vectors."""
        if not self._table:
            return len(self._tables()) == 1
        with self._cursor("looking for the table", vectors=False) as cursor:
            name = as_value(self._name(), cursor)
            (there,) = cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()
        return bool(there)

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty table and, if need be, the extension; the metric is kept as the column's comment.

        An index is left to be made when the rows are there, which takes a fraction of the time.
        """
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        if metric is not None and metric not in _METRICS:
            wanted = "one of " + ", ".join(_METRICS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        if not self._table:
            raise InvalidInputError.of(_OWNER, "location", "one with a table behind #", "none")
        if self.exists():
            there = self.info().dimension
            if there not in (0, dimension):
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the table", str(dimension),
                                    fix="Name another table.")  # fmt: skip
            return
        with self._cursor("making the table", vectors=False) as cursor:
            make_table(cursor, self._name(), self._vector_column, dimension, metric)
        self._known = None

    def write(self, batch: Batch) -> None:
        """Write the rows in one transaction, with the columns that they need."""
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        layout = self._layout()
        if not len(batch):
            return
        if layout.dimension not in (0, vectors.shape[1]):
            wanted = f"of dimension {layout.dimension}"
            got = f"dimension {vectors.shape[1]}"
            raise StoreError.of(_OWNER, "vectors", wanted, got)
        self._known = None  # its columns may change
        with self._cursor("writing rows; none of the batch is there") as cursor:
            write_rows(cursor, self._name(), layout, batch, vectors)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        layout = self._layout()
        which = "WHERE {vector} IS NOT NULL AND {id} = ANY(%s::" + layout.id_type + "[])"
        found = self._select(layout, which, [list(dict.fromkeys(ids))])
        order = in_order(ids, found.ids, owner=_OWNER)
        return Batch(tuple(ids), found.vectors[order], tuple(found.fields[at] for at in order))

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def _select(self, layout: Layout, which: str, values: list[Any]) -> Batch:
        sql = self._psycopg.sql
        names = [*layout.columns, *layout.generated]
        select = "SELECT {id}::text, {vector}::vector{beside} FROM {table} " + which
        statement = sql.SQL(select).format(
            id=quoted(layout.id_column),
            vector=quoted(layout.vector_column),
            beside=sql.SQL("").join(sql.SQL(", {}").format(quoted(name)) for name in names),
            table=self._name(),
        )
        with self._cursor("reading rows") as cursor:
            rows = cursor.execute(statement, values).fetchall()
            vectors = np.asarray([row[1] for row in rows], dtype=np.float32)
        if not rows:
            vectors = np.empty((0, layout.dimension), dtype=np.float32)
        ids = tuple(row[0] for row in rows)
        fields = tuple(Row.of(dict(zip(names, row[2:], strict=True)), layout) for row in rows)
        return Batch(ids, vectors, fields, json.dumps(ids[-1]) if ids else "")

    def _layout(self) -> Layout:
        if self._known is None:
            self._table = self._table or only_one(self._tables(), owner=_OWNER, what="table")
            with self._cursor("looking at the table", vectors=False) as cursor:
                self._known = looked_up(cursor, self._name(), self._vector_column)
        return self._known

    def _tables(self) -> list[str]:
        with self._cursor("listing tables", vectors=False) as cursor:
            return [str(row[0]) for row in cursor.execute(TABLES).fetchall()]

    def _name(self) -> Any:
        """Return the table's name, quoted."""
        parts = self._table.split(".", 1)
        if not all(is_name(part) for part in parts):
            raise InvalidInputError.of(
                _OWNER, "location", "one with a table of 1 to 63 bytes behind #", "another"
            )
        return quoted(*parts)

    @contextmanager
    def _cursor(self, doing: str, *, vectors: bool = True) -> Iterator[Any]:
        """Yield a cursor in a transaction, connecting first, and again if the connection broke."""
        with database_errors(_OWNER, doing, _AGAIN):
            if self._opened is None or self._opened.closed:
                self._opened = self._psycopg.connect(self._url, autocommit=True)
            if vectors and self._taught is not self._opened:
                from pgvector.psycopg import register_vector

                register_vector(self._opened)
                self._taught = self._opened
            with self._opened.transaction(), self._opened.cursor() as cursor:
                yield cursor


def _last(after: str) -> str | None:
    """Return the id that a cursor holds; JSON, so that no id is mistaken for the start."""
    if not after:
        return None
    try:
        last = json.loads(after)
    except (TypeError, ValueError):
        last = None
    if not isinstance(last, str):
        raise InvalidInputError.of(_OWNER, "after", "a cursor of this store", "something else")
    return last
