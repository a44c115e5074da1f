"""Tables ``vec0`` of sqlite-vec in a SQLite file.

A table cannot get further columns, so `create` makes one for all fields together, as JSON; where a table has columns of
its own, fields of their names go there.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vecveil.databases.store import (
    Batch,
    StoreInfo,
    VectorStore,
    as_json,
    check_cursor,
    database_errors,
    in_order,
    no_place,
    not_there,
    only_one,
    plain,
)
from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError
from vecveil.validation import check_count, check_embeddings

__all__ = ["SqliteVecStore"]

_OWNER = "SqliteVecStore"
_METRICS = {"cosine": "cosine", "euclidean": "l2"}
_JSON = "vecveil_fields"
_VECTOR = re.compile(r"(\w+)\s+float\s*\[\s*(\d+)\s*\]([^,)]*)", re.IGNORECASE)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_AGAIN = "See that the file can be read and written, and run again: what was done stays done."
_TABLES = "SELECT name, sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%vec0%'"


class SqliteVecStore(VectorStore):
    """One table.

    Args:
        path: of the SQLite file.
        table: its name; None takes the only one.

    Raises:
        MissingDependencyError: sqlite-vec is not installed, or no SQLite that can load extensions.
    """

    kind: ClassVar[str] = "sqlite-vec"

    def __init__(self, path: str, table: str | None = None) -> None:
        self._sqlite = _loadable()
        self._path = Path(path)
        self._table = table or ""
        self._opened: Any = None

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store; nothing is opened or created yet."""
        return cls(where, collection)

    def info(self) -> StoreInfo:
        """Return what the table says about itself."""
        with self._cursor("counting rows") as cursor:
            _, dimension, metric = self._vector(cursor)
            (count,) = cursor.execute(f"SELECT count(*) FROM {self._rowids()}").fetchone()
        return StoreInfo(self.kind, self._table, int(count), dimension, metric)

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in the order in which they were last written."""
        size = check_count(size, owner=_OWNER, param="size")
        last = check_cursor(after, owner=_OWNER)
        which = f"SELECT rowid, id FROM {{rowids}} WHERE rowid > ? ORDER BY rowid LIMIT {size}"
        while True:
            batch = self._select(which, [last])
            if not len(batch):
                return
            yield batch
            last = int(batch.cursor)

    def exists(self) -> bool:
        """Return whether the table is there; with no name, whether there is just one."""
        if not self._path.is_file():
            return False
        with self._cursor("looking for the table", table=False) as cursor:
            names = [row[0] for row in cursor.execute(_TABLES).fetchall()]
        return self._table in names if self._table else len(names) == 1

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty table; sqlite-vec has cosines and Euclidean distances, and takes the latter by itself."""
        dimension = check_count(dimension, owner=_OWNER, param="dimension")
        if metric is not None and metric not in _METRICS:
            wanted = "one of " + ", ".join(_METRICS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        if not self._table:
            raise InvalidInputError.of(_OWNER, "location", "one with a table behind #", "none")
        if self.exists():
            there = self.info().dimension
            if there != dimension:
                raise StoreError.of(_OWNER, "dimension", f"{there}, that of the table", str(dimension),
                                    fix="Name another table.")  # fmt: skip
            return
        told = "" if metric is None else f" distance_metric={_METRICS[metric]}"
        columns = f"id text primary key, embedding float[{dimension}]{told}, +{_JSON} text"
        with self._cursor("making the table", table=False, new=True) as cursor:
            cursor.execute(f"CREATE VIRTUAL TABLE {_quoted(self._table)} USING vec0({columns})")

    def write(self, batch: Batch) -> None:
        """Write the rows in one transaction."""
        vectors = check_embeddings(np.asarray(batch.vectors), owner=_OWNER, param="vectors")
        vectors = vectors.astype(np.float32)
        with self._cursor("writing rows; none of the batch is there") as cursor:
            column, dimension, _ = self._vector(cursor)
            if vectors.shape[1] != dimension:
                got = f"dimension {vectors.shape[1]}"
                raise StoreError.of(_OWNER, "vectors", f"of dimension {dimension}", got)
            key, is_text, others = self._columns(cursor, column)
            table = _quoted(self._table)
            names = ", ".join(map(_quoted, (key, column, *others)))
            places = ", ".join("?" * (2 + len(others)))
            for one, vector, row in zip(batch.ids, vectors, batch.fields, strict=True):
                name = one if is_text else _number(one)
                values = _values(row, others)
                cursor.execute(f"DELETE FROM {table} WHERE {_quoted(key)} = ?", [name])
                insert = f"INSERT INTO {table} ({names}) VALUES ({places})"
                cursor.execute(insert, [name, vector.tobytes(), *values])

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order."""
        number = "(id IS NULL AND rowid = CAST(?1 AS INTEGER))"  # where the key is no text
        which = "SELECT rowid, id FROM {rowids} WHERE id = ?1 OR " + number
        parts = [self._select(which, [one]) for one in dict.fromkeys(ids)]
        found = [part for part in parts if len(part)]
        order = in_order(ids, [part.ids[0] for part in found], owner=_OWNER)
        vectors = [found[at].vectors for at in order]
        X = np.concatenate(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
        return Batch(tuple(ids), X, tuple(found[at].fields[0] for at in order))

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def _select(self, which: str, values: list[Any]) -> Batch:
        with self._cursor("reading rows") as cursor:
            column, dimension, _ = self._vector(cursor)
            key, is_text, others = self._columns(cursor, column)
            beside = "".join(f", w.{_quoted(name)}" for name in others)
            same = f"w.{_quoted(key)} = r.id" if is_text else f"w.{_quoted(key)} = r.rowid"
            inner = which.format(rowids=self._rowids())
            select = (
                f"SELECT r.rowid, w.{_quoted(key)}, w.{_quoted(column)}{beside}"
                f" FROM ({inner}) r JOIN {_quoted(self._table)} w ON {same} ORDER BY r.rowid"
            )
            rows = cursor.execute(select, values).fetchall()
            blobs = b"".join(row[2] for row in rows)
            vectors = np.frombuffer(blobs, dtype="<f4").astype(np.float32)
        fields = tuple(_fields(dict(zip(others, row[3:], strict=True))) for row in rows)
        ids = tuple(str(row[1]) for row in rows)
        last = str(rows[-1][0]) if rows else ""
        return Batch(ids, vectors.reshape(len(rows), dimension), fields, last)

    def _vector(self, cursor: Any) -> tuple[str, int, str]:
        """Return name, dimension and metric of the column of vectors."""
        made = dict(cursor.execute(_TABLES).fetchall())[self._table]
        found = _VECTOR.findall(made)
        if len(found) != 1:
            raise StoreError.of(
                _OWNER, "table", "one with a single column of vectors of floats", f"{len(found)}"
            )
        name, dimension, rest = found[0]
        told = _METRIC.search(rest)
        metrics = {theirs: ours for ours, theirs in _METRICS.items()}
        return name, int(dimension), metrics.get(told[1].lower() if told else "l2", "")

    def _columns(self, cursor: Any, vector: str) -> tuple[str, bool, list[str]]:
        """Return the key, whether it is a text, and the other columns."""
        select = "SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0"
        rows = cursor.execute(select, [self._table]).fetchall()
        key = next((name for name, pk in rows if pk), "rowid")
        made = dict(cursor.execute(_TABLES).fetchall())[self._table]
        text = re.search(rf"\b{re.escape(key)}\s+text\s+primary\s+key", made, re.IGNORECASE)
        return key, text is not None, [name for name, _ in rows if name not in (key, vector)]

    def _rowids(self) -> str:
        return _quoted(f"{self._table}_rowids")

    @contextmanager
    def _cursor(self, doing: str, *, table: bool = True, new: bool = False) -> Iterator[Any]:
        """Yield a cursor in a transaction of the file, which must be there unless it is ``new``."""
        if not new and not self._path.is_file():
            raise no_place(str(self._path), "a SQLite file", owner=_OWNER)
        if table:
            if not self._table:
                with self._cursor(doing, table=False) as cursor:
                    names = [row[0] for row in cursor.execute(_TABLES).fetchall()]
                self._table = only_one(names, owner=_OWNER, what="table")
            elif not self.exists():
                raise not_there(self._table, owner=_OWNER, what="table")
        with database_errors(_OWNER, doing, _AGAIN):
            if self._opened is None:
                import sqlite_vec

                self._opened = self._sqlite.connect(str(self._path), isolation_level=None)
                self._opened.enable_load_extension(True)
                sqlite_vec.load(self._opened)
                self._opened.enable_load_extension(False)
            with closing(self._opened.cursor()) as cursor:
                cursor.execute("BEGIN")
                try:
                    yield cursor
                except BaseException:
                    cursor.execute("ROLLBACK")
                    raise
                cursor.execute("COMMIT")


def _loadable() -> Any:
    """Return the module of a SQLite that can load extensions, which some builds of Python leave out."""
    try:
        import sqlite_vec  # noqa: F401 - so that it fails here and not at the first row
    except ImportError:
        raise MissingDependencyError("Reading SQLite", "sqlite-vec", "sqlite-vec") from None
    import sqlite3

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        return importlib.import_module("pysqlite3")
    except ImportError:
        feature = "sqlite-vec with this Python, whose sqlite3 cannot load extensions,"
        raise MissingDependencyError(feature, "pysqlite3-binary", "sqlite-vec") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _number(one: str) -> int:
    try:
        return int(one)
    except ValueError:
        raise InvalidInputError.of(
            _OWNER, "ids", "whole numbers, as the table's key is", "others"
        ) from None


def _values(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Return the values of ``columns``; what has none goes into that of JSON."""
    rest = {name: value for name, value in row.items() if name not in columns or name == _JSON}
    own = plain({name: row[name] for name in columns if name in row}, owner=_OWNER)
    if _JSON not in columns and any(value is not None for value in rest.values()):
        raise StoreError.of(_OWNER, "fields", "columns of the table", "others",
                            "sqlite-vec cannot add columns.", "Let create make the table.")  # fmt: skip
    return [as_json(rest, owner=_OWNER) if name == _JSON else own.get(name) for name in columns]


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    kept = json.loads(row.pop(_JSON, None) or "{}")
    return {**{name: value for name, value in row.items() if value is not None}, **kept}
