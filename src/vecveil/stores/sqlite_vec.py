"""sqlite-vec: ``vec0`` tables in a SQLite file.

A ``vec0`` table cannot gain columns, so `SqliteVecStore.create` makes one for each filter field (at most 16) and a JSON
column for all others. In other tables, each field needs a column of its name.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vecveil.errors import StoreError, optional_import
from vecveil.index.blob import empty_log, transaction
from vecveil.stores.store import (
    LISTED,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    as_json,
    integer_id,
    invalid_cursor,
    plain,
    unfiltered,
)

_JSON = "vecveil_fields"
# sqlite-vec has no catalogue of its columns: they are parsed from the CREATE statement.
_VECTOR = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\]([^,)]*)", re.IGNORECASE)
_NUMBERS = {"int8": np.int8, "i8": np.int8, "bit": np.uint8}  # others are float32
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
# Tables in which sqlite-vec keeps a table's own rows; it declares only some of them as its own.
_CHUNKS = re.compile(r"_(vector_chunks|metadatachunks|metadatatext)\d\d$")
_EVERYTHING = (
    "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type <> 'shadow' AND name <> ?"
    " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_TABLES = "SELECT name, sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%vec0%'"


class _VecLayout(NamedTuple):
    """Key, vector and other columns of a table, and the number types of further vectors."""

    key: str
    is_text: bool
    vector: str
    dimension: int
    metric: str | None
    columns: list[str]
    vectors: dict[str, Any]


class SqliteVecStore(DatabaseStore):
    """One table; raises `MissingDependencyError` if SQLite cannot load sqlite-vec."""

    kind: ClassVar[str] = "sqlite-vec"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "cosine", "euclidean": "l2", "manhattan": "l1"}
    noun: ClassVar[str] = "table"
    place: ClassVar[str] = "a SQLite file"

    def __init__(self, where: str, table: str | None = None, *, vector: str = "") -> None:
        super().__init__(where, table, vector=vector)
        self._sqlite = _loadable()
        self._opened: Any = None
        self._lock = threading.RLock()
        self._known_layout: _VecLayout | None = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    @contextlib.contextmanager
    def cursor(self, doing: str, *, write: bool = False) -> Iterator[Any]:
        # Reads have none: `beside` and its caller may leave one open, in which a write would not be committed.
        with self._lock, self._guard(doing):
            connection = self._connection()
            with (
                transaction(connection) if write else contextlib.nullcontext(),
                contextlib.closing(connection.cursor()) as cursor,
            ):
                yield cursor

    def _connection(self) -> Any:
        if self._opened is None:
            import sqlite_vec

            # Any thread may search; `cursor` lets them in one by one.
            self._opened = self._sqlite.connect(self._where, isolation_level=None, check_same_thread=False)
            # Extensions are allowed for this one only: SQL injected elsewhere must not load native code.
            self._opened.enable_load_extension(True)
            sqlite_vec.load(self._opened)
            self._opened.enable_load_extension(False)
        return self._opened

    def _place_exists(self) -> bool:
        return Path(self._where).is_file()

    def _names(self) -> list[str]:
        with self.cursor("listing tables") as cursor:
            return [row[0] for row in cursor.execute(_TABLES).fetchall()]

    def _paths(self) -> list[str]:
        return [self._where, *(f"{self._where}{end}" for end in ("-wal", "-shm", "-journal"))]

    def _layout(self) -> _VecLayout:
        if self._known_layout is not None and self._place_exists():
            return self._known_layout
        name = self._known()
        with self.cursor("looking at the table") as cursor:
            made = dict(cursor.execute(_TABLES).fetchall())[name]
            select = "SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0"
            rows = cursor.execute(select, [name]).fetchall()
        vectors = {name: (kind.lower(), size, options) for name, kind, size, options in _VECTOR.findall(made)}
        vector = self._only_vector(name for name, (kind, *_) in vectors.items() if kind not in _NUMBERS)
        _, dimension, options = vectors.pop(vector)
        theirs = _METRIC.search(options)
        key = next((name for name, pk in rows if pk), "rowid")
        is_text = re.search(rf"\b{re.escape(key)}\s+text\s+primary\s+key", made, re.IGNORECASE)
        self._known_layout = _VecLayout(
            key,
            is_text is not None,
            vector,
            int(dimension),
            self._metric_named(theirs[1].lower() if theirs else "l2"),
            [name for name, _ in rows if name not in (key, vector)],
            {name: _NUMBERS.get(kind, np.float32) for name, (kind, *_) in vectors.items()},
        )
        return self._known_layout

    def dimension(self) -> int:
        return self._layout().dimension

    def _info(self) -> StoreInfo:
        layout = self._layout()
        with self.cursor("counting rows") as cursor:
            (count,) = cursor.execute(f"SELECT count(*) FROM {self._rowids()}").fetchone()
        return StoreInfo(self.kind, self._name, int(count), layout.dimension, layout.metric)

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        option = "" if metric is None else f" distance_metric={self.metrics[metric]}"
        vector = f"{self._vector or 'embedding'} float[{dimension}]{option}"
        columns = ["id text primary key", vector, *(f"{name} text" for name in filter_fields), f"+{_JSON} text"]
        with self.cursor("making the table", write=True) as cursor:
            # Another process may have made it: `create` compares it.
            cursor.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS {_quoted(self._name)} USING vec0({', '.join(columns)})")

    def _check_reuse(self, filter_fields: Sequence[str]) -> None:
        if set(filter_fields) - set(self._layout().columns):
            raise unfiltered()

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        if after and not re.fullmatch(r"-?[0-9]{1,19}", after):
            raise invalid_cursor()
        while True:
            behind, values = ("rowid > ?", [int(after), size]) if after else ("TRUE", [size])
            batch = self._select(f"{behind} ORDER BY rowid LIMIT ?", values)
            if not len(batch):
                return
            yield batch
            after = batch.cursor

    def _listed(self) -> Iterator[list[str]]:
        layout = self._layout()
        with self.cursor("listing ids") as cursor:
            rows = cursor.execute(f"SELECT {_quoted(layout.key)} FROM {_quoted(self._name)}").fetchall()
        for start in range(0, len(rows), LISTED):
            yield [str(row[0]) for row in rows[start : start + LISTED]]

    def _read(self, ids: list[str]) -> Batch:
        # With a numeric key the shadow table of row ids has NULL in `id`.
        condition = "id = ?1 OR (id IS NULL AND rowid = CAST(?1 AS INTEGER))"
        return Batch.joined([self._select(condition, [name]) for name in ids])

    def _select(self, condition: str, values: list[Any]) -> Batch:
        layout = self._layout()
        key, names = _quoted(layout.key), [_quoted(name) for name in layout.columns]
        beside = "".join(f", w.{name}" for name in names)
        select = (
            f"SELECT r.rowid, w.{key}, w.{_quoted(layout.vector)}{beside}"
            f" FROM (SELECT rowid, id FROM {self._rowids()} WHERE {condition}) r JOIN {_quoted(self._name)} w"
            f" ON w.{key} = {'r.id' if layout.is_text else 'r.rowid'} ORDER BY r.rowid"
        )
        with self.cursor("reading rows") as cursor:
            rows = cursor.execute(select, values).fetchall()
        vectors = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").astype(np.float32)
        fields = tuple(_fields(dict(zip(layout.columns, row[3:], strict=True))) for row in rows)
        for row in fields:
            row |= {name: np.frombuffer(row[name], kind) for name, kind in layout.vectors.items() if name in row}
        ids = tuple(str(row[1]) for row in rows)
        last = str(rows[-1][0]) if rows else ""
        return Batch(ids, vectors.reshape(len(rows), layout.dimension), fields, last)

    def beside(self) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        name = self._known()
        with self.cursor("reading the other tables") as cursor:
            others = [other for (other,) in cursor.execute(_EVERYTHING, [name]).fetchall()]
            for other in others:
                if not _CHUNKS.search(other):
                    rows = cursor.execute(f"SELECT * FROM {_quoted(other)}")
                    names = [column[0] for column in rows.description]
                    yield other, (dict(zip(names, row, strict=True)) for row in rows)

    def _write(self, batch: Batch) -> None:
        layout = self._layout()
        if layout.vectors:
            raise StoreError(
                "The table has further columns of vectors, which rewriting a row would lose. Name a table with one.",
                param="table",
            )
        ids = self._keys(batch.ids)
        rows = [_values(row, layout.columns) for row in batch.fields]
        # vec0 tables support no upsert: delete and insert.
        names, table = layout.columns, _quoted(self._name)
        columns = ", ".join(map(_quoted, (layout.key, layout.vector, *names)))
        places = ", ".join("?" * (2 + len(names)))
        values = [
            [name, vector.astype("<f4").tobytes(), *(row.get(column) for column in names)]
            for name, vector, row in zip(ids, batch.vectors, rows, strict=True)
        ]
        with self.cursor("writing rows; no row of the batch was written", write=True) as cursor:
            cursor.executemany(f"DELETE FROM {table} WHERE {_quoted(layout.key)} = ?", [[name] for name in ids])
            cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", values)

    def _keys(self, ids: Sequence[str]) -> list[Any]:
        return list(ids) if self._layout().is_text else list(map(integer_id, ids))

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        layout = self._layout()
        if set(where) - set(layout.columns):
            raise unfiltered()
        columns = ", ".join(map(_quoted, (layout.key, *layout.columns)))
        # sqlite-vec has IN for texts and integers only.
        conditions = "".join(
            f" AND {_quoted(name)} " + ("= ?" if len(some) == 1 else f"IN ({', '.join('?' * len(some))})")
            for name, some in where.items()
        )
        select = (
            f"SELECT distance, {columns} FROM {_quoted(self._name)}"
            f" WHERE {_quoted(layout.vector)} MATCH ? AND k = ?{conditions} ORDER BY distance"
        )
        values = [vector.astype("<f4").tobytes(), k, *itertools.chain(*where.values())]
        with self.cursor("searching") as cursor:
            rows = cursor.execute(select, values).fetchall()
        return [Match(row[1], float(row[0]), _fields(dict(zip(layout.columns, row[2:], strict=True)))) for row in rows]

    def _delete(self, ids: list[str]) -> None:
        delete = f"DELETE FROM {_quoted(self._name)} WHERE {_quoted(self._layout().key)} = ?"
        with self.cursor("deleting rows", write=True) as cursor:
            cursor.executemany(delete, [[name] for name in self._keys(ids)])

    def _compact(self, name: str) -> str:
        self._connection().execute("VACUUM")
        empty_log(self._connection(), Path(self._where).name)
        return "SQLite rewrote the file (VACUUM) and emptied its log."

    def _rowids(self) -> str:
        return _quoted(f"{self._name}_rowids")


def _loadable() -> Any:
    """Return a SQLite module that can load extensions, which some builds of Python cannot."""
    with optional_import("SQLite", "sqlite-vec", "sqlite-vec"):
        import sqlite_vec  # noqa: F401 - fail here and not at the first row
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    feature = "sqlite-vec with this Python, whose sqlite3 cannot load extensions,"
    with optional_import(feature, "pysqlite3-binary", "sqlite-vec"):
        return importlib.import_module("pysqlite3")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    absent = (None, "") if _JSON in row else (None,)
    rest = json.loads(row.pop(_JSON, None) or "{}")
    return {**{name: value for name, value in row.items() if value not in absent}, **rest}


def _values(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``columns``; fields without a column go into the JSON column."""
    rest = {name: value for name, value in row.items() if name not in columns or name == _JSON}
    values = plain({name: row[name] for name in columns if name in row})
    if _JSON in columns:
        return dict.fromkeys(columns, "") | values | {_JSON: as_json(rest)}  # filter columns hold no NULL
    if any(value is not None for value in rest.values()):  # otherwise the copy would silently lack them
        raise StoreError(
            "The table has no column for some fields, and sqlite-vec cannot add one. Name a new table.", param="fields"
        )
    return values
