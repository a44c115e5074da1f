"""PostgreSQL with pgvector: tables.

Rows are read in the order of the primary key. Identifiers are quoted, values are bound, and one transaction writes a
batch. Passwords come from the URL, PGPASSWORD or a password file.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import operator
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from vecveil.errors import InvalidInputError, StoreError, optional_import
from vecveil.stores.store import (
    LISTED,
    Batch,
    DatabaseStore,
    Match,
    StoreInfo,
    Where,
    json_cursor,
    sparse_rows,
    stacked,
)

_ID, _VECTOR = "id", "embedding"
_CREATION = 0x7665637665696C  # advisory lock for creating a table
_COMMENT = "metric: "  # comment of the vector column, which keeps the metric of a table without index
_VECTORS = ("vector", "halfvec", "sparsevec")
_CLASSES = {"cosine": "cosine", "ip": "dot", "l2": "euclidean", "l1": "manhattan"}
_WHOLE = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying", "bpchar")
# Column types of Python values. The order matters: bool is an int, and datetime a date.
_PYTHON: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double precision"),
    (str, "text"),
    (bytes, "bytea"),
    (decimal.Decimal, "numeric"),
    (datetime.datetime, "timestamp with time zone"),
    (datetime.date, "date"),
    (datetime.time, "time without time zone"),
    (datetime.timedelta, "interval"),
    (uuid.UUID, "uuid"),
    (dict, "jsonb"),
    (list, "jsonb"),
    (np.ndarray, "jsonb"),
)
_TABLES = """
SELECT DISTINCT c.relname FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE t.typname IN ('vector', 'halfvec') AND c.relkind IN ('r', 'p') AND pg_table_is_visible(c.oid)
"""
# format_type with -1 omits a length: `character` and `bit` without one mean length 1, to which a cast truncates.
_LAYOUT = """
SELECT a.attname AS name, format_type(a.atttypid, -1) AS type, t.typname AS bare, a.atttypmod AS size,
    a.attgenerated <> '' AS generated, COALESCE(a.attnum = ANY(p.indkey), false) AS key,
    COALESCE(p.indnkeyatts, 0) AS keys, col_description(a.attrelid, a.attnum) AS comment,
    ARRAY(SELECT o.opcname::text FROM pg_index i JOIN pg_opclass o ON o.oid = ANY(i.indclass)
        WHERE i.indrelid = a.attrelid AND a.attnum = ANY(i.indkey)) AS classes
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index p ON p.indrelid = a.attrelid AND p.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
# Tables that refer to the table, or to which it refers.
_BESIDE = """
SELECT DISTINCT c.oid::regclass::text FROM pg_constraint k
JOIN pg_class c ON c.oid IN (k.conrelid, k.confrelid) AND c.oid <> to_regclass(%(table)s)
WHERE k.contype = 'f' AND to_regclass(%(table)s) IN (k.conrelid, k.confrelid)
    AND has_table_privilege(c.oid, 'SELECT')
"""


@dataclass(frozen=True)
class _Layout:
    """The columns of a table.

    Attributes:
        dimension: dimension of the vectors; 0 if the column accepts any.
        metric: from the column's comment, else from its indexes if they agree, else None.
        columns: types of the other writable columns, without further vectors.
        generated: types of the columns that the database computes.
        vectors: types of the further vectors, which are read and not written.
    """

    id_column: str
    id_type: str
    vector_column: str
    dimension: int
    metric: str | None
    columns: Mapping[str, str]
    generated: Mapping[str, str]
    vectors: Mapping[str, str] = field(default_factory=dict)


class TableRow(dict[str, Any]):
    """The fields of a row with its table's layout, from which a copy gets its column types."""

    origin: _Layout

    @classmethod
    def of(cls, values: Mapping[str, Any], origin: _Layout) -> TableRow:
        row = cls({name: value for name, value in values.items() if value is not None})
        row.origin = origin
        return row

    def with_values(self, values: Mapping[str, Any]) -> TableRow:
        return TableRow.of(values, self.origin)


class PgvectorStore(DatabaseStore):
    """One table.

    Fields are the other columns with a value; further vectors are arrays. Writing adds missing columns, with the types
    and names of the source if that is a PostgreSQL table.

    Args:
        where: URL or connection string of libpq.
        table: ``table`` or ``schema.table``; None uses the only table with vectors.
        vector: required if the table has several vector columns.
    """

    kind: ClassVar[str] = "pgvector"
    metrics: ClassVar[Mapping[str, Any]] = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->", "manhattan": "<+>"}
    noun: ClassVar[str] = "table"

    def __init__(self, where: str, table: str | None = None, *, vector: str = "") -> None:
        with optional_import("PostgreSQL", "pgvector", "pgvector"):
            import pgvector.psycopg  # noqa: F401 - fail here and not at the first row
            import psycopg
        super().__init__(where, table, vector=vector)
        self._remote = True  # also through a local socket: the files are the server's
        self._psycopg, self._sql = psycopg, psycopg.sql
        self._opened: Any = None
        self._lock = threading.RLock()
        self._registered: Any = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _connection(self) -> Any:
        # Connect lazily, and again if the server closed an idle connection.
        if self._opened is None or self._opened.closed:
            self._opened = self._psycopg.connect(self._where, autocommit=True)
        return self._opened

    @contextmanager
    def cursor(self, doing: str, *, vectors: bool = True) -> Iterator[Any]:
        """Yield a cursor of tuples in a transaction, which is rolled back on an error.

        ``vectors`` binds arrays as vectors, which requires the extension.
        """
        # One thread at a time: in another thread's transaction, its rollback would take these rows along.
        with self._lock, self._guard(doing):
            connection = self._connection()
            # Per connection: the extension's types have other OIDs in each database.
            if vectors and self._registered is not connection:
                from pgvector.psycopg import register_vector

                register_vector(connection)
                self._registered = connection
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Any]:
        """Yield a cursor of a separate connection, so that an open reader does not hold the caller's transaction."""
        with self._guard(doing), self._psycopg.connect(self._where) as connection, connection.cursor() as cursor:
            yield cursor

    def _identifier(self, *names: str) -> Any:
        # psycopg reads % as a placeholder in statements with values, even inside quoted identifiers.
        return self._sql.Identifier(*(name.replace("%", "%%") for name in names))

    def _table(self) -> Any:
        parts = self._name.split(".", 1)
        if not all(map(_is_name, parts)):  # two names cut to one would write to the same table
            raise InvalidInputError("A name in PostgreSQL has 1 to 63 bytes, without NUL.", param="table")
        return self._identifier(*parts)

    def _as_value(self, cursor: Any) -> str:
        return str(self._table().as_string(cursor)).replace("%%", "%")

    def _statement(self, text: str, layout: _Layout | None = None, /, **parts: Any) -> Any:
        """Return the statement ``text`` with its braces filled: table, id, vector and ``parts``."""
        if layout is not None:
            parts |= {"id": self._identifier(layout.id_column), "vector": self._identifier(layout.vector_column)}
        return self._sql.SQL(text).format(table=self._table(), **parts)

    def _names(self) -> list[str]:
        with self.cursor("listing tables", vectors=False) as cursor:
            return [str(row[0]) for row in cursor.execute(_TABLES).fetchall()]

    def exists(self) -> bool:
        if not self._name:
            return super().exists()
        with self.cursor("looking for the table", vectors=False) as cursor:
            regclass = "SELECT to_regclass(%s) IS NOT NULL"
            return bool(cursor.execute(regclass, [self._as_value(cursor)]).fetchone()[0])

    def _known(self) -> str:
        self._name = self._name or super()._known()
        self.layout()  # raises unless it exists, in a different schema too
        return self._name

    def layout(self) -> _Layout:
        """Return the table's columns, looked up each time because another process may add some."""
        self._name = self._name or super()._known()
        with self.cursor("looking at the table", vectors=False) as cursor:
            return self._look_up(cursor)

    def _look_up(self, cursor: Any) -> _Layout:
        rows = self._psycopg.rows.namedtuple_row
        with cursor.connection.cursor(row_factory=rows) as described:
            columns = described.execute(_LAYOUT, [self._as_value(cursor)]).fetchall()
        if not columns:
            raise StoreError("The database has no such table.", code="E-STORE-NOT-FOUND", param="table")
        keys = [c for c in columns if c.key]
        if len(keys) != 1 or keys[0].keys != 1:
            raise StoreError(
                "The table has no primary key of one column, by which rows are read and replaced. Add one: ALTER TABLE "
                "... ADD COLUMN id bigserial PRIMARY KEY.",
                param="table",
            )
        name = self._only_vector(c.name for c in columns if c.bare in _VECTORS[:2])
        (vector,), (key,) = [c for c in columns if c.name == name], keys
        comment = vector.comment or ""
        made_for = comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None
        classes = {one.removeprefix(f"{vector.bare}_").removesuffix("_ops") for one in vector.classes}
        known = [_CLASSES[one] for one in classes & _CLASSES.keys()]
        further = {c.name: c.bare for c in columns if c is not vector and c.bare in _VECTORS}
        others = [c for c in columns if c not in (vector, key) and c.name not in further]
        return _Layout(
            id_column=key.name,
            id_type=key.type,
            vector_column=vector.name,
            dimension=max(int(vector.size), 0),
            metric=made_for if made_for in self.metrics else known[0] if len(known) == 1 else None,
            columns={c.name: c.type for c in others if not c.generated},
            generated={c.name: c.type for c in others if c.generated},
            vectors=further,
        )

    def _info(self) -> StoreInfo:
        layout = self.layout()
        often = (
            "SELECT vector_dims({vector}::vector) FROM {table} WHERE {vector} IS NOT NULL"
            " GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
        )
        with self.cursor("counting rows") as cursor:
            (count,) = cursor.execute(self._statement("SELECT count(*) FROM {table}"), ()).fetchone()
            dimension = layout.dimension
            if count and not dimension:
                (dimension,) = cursor.execute(self._statement(often, layout), ()).fetchone() or (0,)
        return StoreInfo(self.kind, self._name, int(count), int(dimension), layout.metric)

    def dimension(self) -> int:
        return self.layout().dimension

    def _create(self, dimension: int, metric: str | None, filter_fields: Sequence[str]) -> None:
        # Writing adds the other columns. No index: building it after the rows are written takes a fraction of the time.
        column, size = self._identifier(self._vector or _VECTOR), self._sql.Literal(dimension)
        table = "CREATE TABLE IF NOT EXISTS {table} (" + _ID + " text PRIMARY KEY, {column} vector({size}) NOT NULL)"
        with self.cursor("making the table", vectors=False) as cursor:
            # One process at a time: IF NOT EXISTS alone fails where another one makes the same.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATION])
            # CREATE EXTENSION needs privileges that a user of an installed extension may lack.
            if cursor.execute("SELECT to_regtype('vector')").fetchone() == (None,):
                cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute(self._statement(table, column=column, size=size), ())
            if metric is not None:
                text = self._sql.Literal(_COMMENT + metric)
                comment = "COMMENT ON COLUMN {table}.{column} IS {text}"
                cursor.execute(self._statement(comment, column=column, text=text), ())

    def _batches(self, size: int, after: str) -> Iterator[Batch]:
        last = json_cursor(after)
        while True:
            layout = self.layout()
            behind = "" if last is None else " AND {id} > %s::" + layout.id_type
            # Qualified: the bare name means the output column, a text, which sorts differently.
            rows = "WHERE TRUE" + behind + " ORDER BY {table}.{id} LIMIT %s"
            batches = self._select(layout, rows, [size] if last is None else [last, size])
            if not batches:
                return
            yield from batches
            last = batches[-1].ids[-1]  # keyset pagination: one short query a batch, no open transaction

    def spelled(self, ids: Sequence[str]) -> list[str]:
        kind = self.layout().id_type
        if not ids or kind in _TEXTS[:2]:
            return list(ids)
        select = f"SELECT name::{kind}::text FROM unnest(%s::text[]) WITH ORDINALITY AS t(name, at) ORDER BY at"
        with self.cursor("reading ids") as cursor:
            return [row[0] for row in cursor.execute(select, [list(ids)]).fetchall()]

    def _listed(self) -> Iterator[list[str]]:
        layout = self.layout()
        with self._reading("listing ids") as cursor:
            rows = cursor.stream(self._statement("SELECT {id}::text FROM {table}", layout), ())
            while names := [row[0] for row in itertools.islice(rows, LISTED)]:
                yield names

    def _read(self, ids: list[str]) -> Batch:
        layout = self.layout()
        batches = self._select(layout, "WHERE {id} = ANY(%s::" + layout.id_type + "[])", [ids])
        size = layout.dimension or self._info().dimension
        parts = [Batch(b.ids, stacked(list(b.vectors), size), b.fields, b.cursor) for b in batches]
        return Batch.joined(parts) if parts else Batch((), np.empty((0, size), np.float32), ())

    def beside(self) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        """Yield name and rows of the tables that a foreign key connects with the table."""
        self.layout()
        with self._reading("reading the other tables") as cursor:
            names = cursor.execute(_BESIDE, {"table": self._as_value(cursor)}).fetchall()
            for (name,) in names:  # quoted by PostgreSQL
                with cursor.connection.cursor(name="beside") as rows:
                    rows.execute(f"SELECT to_jsonb(t) FROM {name} t")
                    yield name, (row[0] for row in rows)

    def _select(self, layout: _Layout, condition: str, values: list[Any]) -> list[Batch]:
        names = [*layout.columns, *layout.generated, *layout.vectors]
        beside = self._sql.SQL("").join(
            self._sql.SQL(", {}::text" if n in layout.vectors else ", {}").format(self._identifier(n)) for n in names
        )
        rows_of = "SELECT {id}::text, {vector}::vector{beside} FROM {table} " + condition
        select = self._statement(rows_of, layout, beside=beside)
        with self.cursor("reading rows") as cursor:
            rows = cursor.execute(select, values).fetchall()
        # A row without a vector belongs to the run before it.
        sizes = (0 if row[1] is None else len(row[1]) for row in rows)
        kept = itertools.accumulate(sizes, lambda last, size: size or last, initial=layout.dimension)
        batches = []
        for size, run in itertools.groupby(zip(list(kept)[1:], rows, strict=True), key=operator.itemgetter(0)):
            part = [row for _, row in run]
            ids = tuple(row[0] for row in part)
            fields = tuple(TableRow.of(_row(names, row[2:], layout), layout) for row in part)
            batches.append(Batch(ids, stacked([row[1] for row in part], size), fields, json.dumps(ids[-1])))
        return batches

    def _write(self, batch: Batch) -> None:
        # Exclusive only to change columns. Both locks precede the lookup: no other writer changes the table after it.
        if not self._written(batch, "ROW EXCLUSIVE"):
            self._written(batch, "ACCESS EXCLUSIVE")

    def _written(self, batch: Batch, mode: str) -> bool:
        """Write the rows; return False, with nothing done, if columns must change and ``mode`` shares the table."""
        with self.cursor("writing rows; no row of the batch was written") as cursor:
            cursor.execute(self._statement(f"LOCK TABLE {{table}} IN {mode} MODE"), ())
            layout = self._look_up(cursor)
            # Further vectors stay as they are; in a new table they would be clean.
            batch = replace(batch, fields=tuple(_without(row, layout.vectors) for row in batch.fields))
            if mode == "ROW EXCLUSIVE" and (_adoptable(layout, batch) or _changes(layout, batch)):
                return False
            layout = self._adopted(cursor, layout, batch)
            self._upsert(cursor, layout, batch, self._widened(cursor, layout, batch))
            return True

    def _upsert(self, cursor: Any, layout: _Layout, batch: Batch, types: Mapping[str, str]) -> None:
        from psycopg.types.json import Json, Jsonb

        def bound(value: Any, kind: str) -> Any:
            if value is None:
                return None
            value = value.tolist() if isinstance(value, np.ndarray) else value
            return Jsonb(value) if kind == "jsonb" else Json(value) if kind == "json" else value

        SQL, quoted = self._sql.SQL, self._identifier
        given = {name for row in batch.fields for name in row}
        names = [name for name in types if name in given]
        # Reset columns that the new rows lack, so that nothing of a replaced row remains.
        stale = [name for name in types if name not in given]
        # OVERRIDING SYSTEM VALUE: the key may be GENERATED ALWAYS AS IDENTITY, and ids are copied.
        written = [quoted(layout.vector_column), *map(quoted, names)]
        changes = [SQL("{0} = EXCLUDED.{0}").format(name) for name in written]
        changes += [SQL("{} = DEFAULT").format(quoted(name)) for name in stale]
        statement = self._statement(
            "INSERT INTO {table} ({id}, {names}) OVERRIDING SYSTEM VALUE VALUES (%s::" + layout.id_type + ", {values})"
            " ON CONFLICT ({id}) DO UPDATE SET {changes}",
            layout,
            names=SQL(", ").join(written),
            values=SQL(", ").join([SQL("%s")] * len(written)),
            changes=SQL(", ").join(changes),
        )
        rows = zip(batch.ids, batch.vectors, batch.fields, strict=True)
        values = [[id_, x, *(bound(row.get(name), types[name]) for name in names)] for id_, x, row in rows]
        cursor.executemany(statement, values)

    def _adopted(self, cursor: Any, layout: _Layout, batch: Batch) -> _Layout:
        """Give an empty table that `create` made the id type and column names of the rows' source."""
        row = batch.fields[0]
        if not isinstance(row, TableRow) or not _adoptable(layout, batch):
            return layout
        if cursor.execute(self._statement("SELECT 1 FROM {table} LIMIT 1"), ()).fetchone() is not None:
            return layout
        origin, quoted = row.origin, self._identifier
        kind = self._sql.SQL(self._type_name(cursor, origin.id_type) or "text")
        changed = "ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind} USING {name}::{kind}"
        cursor.execute(self._statement(changed, name=quoted(_ID), kind=kind), ())
        between = f"{_VECTOR} {_ID}"  # temporary name: the source may call its id "embedding"
        renames = ((_VECTOR, between), (_ID, origin.id_column), (between, origin.vector_column))
        for old, new in renames:
            if old != new:
                renamed = "ALTER TABLE {table} RENAME COLUMN {old} TO {new}"
                cursor.execute(self._statement(renamed, old=quoted(old), new=quoted(new)), ())
        self._vector = ""
        return self._look_up(cursor)

    def _widened(self, cursor: Any, layout: _Layout, batch: Batch) -> dict[str, str]:
        """Add missing columns; return the types of all writable columns."""
        types = dict(layout.columns)
        for row in batch.fields:
            hints = {**row.origin.columns, **row.origin.generated} if isinstance(row, TableRow) else {}
            for name, value in row.items():
                if value is None or name in layout.generated:
                    continue
                if name not in types:
                    if name in (layout.id_column, layout.vector_column) or not _is_name(name):
                        raise StoreError(
                            "A field has the name of the key or vector column, or no name of 1 to 63 bytes. Rename it, "
                            "or make the table with other names for those two.",
                            param="fields",
                        )
                    hint = self._type_name(cursor, hints[name]) if name in hints else None
                    types[name] = hint or _type_of(value)
                    self._alter(cursor, "ADD COLUMN {name} " + types[name], name)
                # An earlier batch held whole numbers only. The cast of bigint to double is exact up to 2^53.
                elif types[name] in _WHOLE and isinstance(value, float):
                    types[name] = "double precision"
                    self._alter(cursor, "ALTER COLUMN {name} TYPE double precision", name)
                elif types[name] in _TEXTS and isinstance(value, int | float):
                    raise StoreError(
                        "A field is a number where its column contains texts: PostgreSQL would turn it into a text.",
                        param="fields",
                    )
        return types

    def _alter(self, cursor: Any, change: str, name: str) -> None:
        cursor.execute(self._statement("ALTER TABLE {table} " + change, name=self._identifier(name)), ())

    def _type_name(self, cursor: Any, kind: str) -> str | None:
        """Return the canonical name of a type, or None if this database does not have it."""
        # Type names cannot be bound. Only names that PostgreSQL itself formatted enter a statement.
        try:
            with cursor.connection.transaction():  # a savepoint: a syntax error in the name must not abort the batch
                select = "SELECT format_type(to_regtype(%s), -1)"
                row = cursor.execute(select, [kind]).fetchone()
        except self._psycopg.Error:
            return None
        return row[0] if row and isinstance(row[0], str) and row[0] != "-" else None

    def _search(self, vector: Any, k: int, where: Where) -> list[Match]:
        layout = self.layout()
        if set(where) - {*layout.columns, *layout.generated}:
            return []  # writing adds columns: no row has the field
        names = [*layout.columns, *layout.generated]
        quoted, SQL = self._identifier, self._sql.SQL
        conditions = [SQL("{} = ANY(%s)").format(quoted(name)) for name in where]
        select = self._statement(
            "SELECT {id}, {vector} {operator} %s{beside} FROM {table} WHERE {vector} IS NOT NULL{conditions}"
            " ORDER BY {vector} {operator} %s LIMIT %s",
            layout,
            operator=SQL(self.metrics[layout.metric or "euclidean"]),
            beside=SQL("").join(SQL(", {}").format(quoted(name)) for name in names),
            conditions=SQL("").join(SQL(" AND {}").format(condition) for condition in conditions),
        )
        values = [vector, *map(list, where.values()), vector, k]
        # Rolled back, so that the settings end with the search in a caller's transaction too.
        with self.cursor("searching") as cursor, cursor.connection.transaction(force_rollback=True):
            # An index gives its nearest rows before the condition and never more than ef_search: 40 by default.
            cursor.execute(f"SET LOCAL hnsw.ef_search = {min(max(k, 40), 1000)}")
            rows = cursor.execute(select, values).fetchall()
            if len(rows) < k:
                cursor.execute("SET LOCAL enable_indexscan = off")
                rows = cursor.execute(select, values).fetchall()
        return [Match(row[0], float(row[1]), dict(zip(names, row[2:], strict=True))) for row in rows]

    def _delete(self, ids: list[str]) -> None:
        layout = self.layout()
        delete = "DELETE FROM {table} WHERE {id} = ANY(%s::" + layout.id_type + "[])"
        with self.cursor("deleting rows") as cursor:
            cursor.execute(self._statement(delete, layout), [ids])

    def _compact(self, name: str) -> str:
        self._connection().execute(self._statement("VACUUM (FULL) {table}"), ())
        return "PostgreSQL rewrote the table (VACUUM FULL)."


def _row(names: Sequence[str], values: Sequence[Any], layout: _Layout) -> dict[str, Any]:
    row = dict(zip(names, values, strict=True))
    for name in layout.vectors:
        if (text := row[name]) is not None:
            row[name] = _array(text)
    return row


def _array(text: str) -> Any:
    """Return the vector ``[1,2]`` or ``{3:1,5:2}/9`` (as rows of index and value) as an array."""
    if text.startswith("["):
        return np.array(json.loads(text))
    pairs = (pair.split(":") for pair in text[1 : text.index("}")].split(",") if pair)
    return sparse_rows({int(index): float(value) for index, value in pairs})


def _without(row: Mapping[str, Any], vectors: Mapping[str, str]) -> Mapping[str, Any]:
    values = {name: value for name, value in row.items() if name not in vectors or not isinstance(value, np.ndarray)}
    return row.with_values(values) if isinstance(row, TableRow) else values


def _adoptable(layout: _Layout, batch: Batch) -> bool:
    """Return whether `create` made the table and the rows come from another table."""
    made = (layout.id_column, layout.id_type, layout.vector_column) == (_ID, "text", _VECTOR)
    return made and isinstance(batch.fields[0], TableRow) and not layout.columns and not layout.generated


def _changes(layout: _Layout, batch: Batch) -> bool:
    """Return whether the rows need additional or wider columns."""
    values = (item for row in batch.fields for item in row.items() if item[1] is not None)
    return any(
        name not in layout.columns or (layout.columns[name] in _WHOLE and isinstance(value, float))
        for name, value in values
        if name not in layout.generated
    )


def _is_name(name: str) -> bool:
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= 63 and "\0" not in name  # NAMEDATALEN - 1


def _type_of(value: Any) -> str:
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return "timestamp without time zone"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 63:
        return "numeric"  # beyond bigint
    if (name := next((name for kind, name in _PYTHON if isinstance(value, kind)), None)) is not None:
        return name
    raise StoreError(
        f"A field contains a {type(value).__name__}. PostgreSQL takes numbers, texts, times, bytes and JSON; make the "
        "table with its columns first for others.",
        param="fields",
    )
