"""How rows get into a PostgreSQL table that may not have their columns yet."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.pgvector_layout import Layout, Row, is_name, looked_up, quoted
from vecveil.databases.store import Batch
from vecveil.errors import StoreError, message

__all__ = ["make_table", "write_rows"]

_OWNER = "PgvectorStore"
_ID, _VECTOR = "id", "embedding"
_WHOLE = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying", "bpchar")
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
)


def make_table(
    cursor: Any, table: Any, vector_column: str, dimension: int, metric: str | None
) -> None:
    """Make an empty table, and the extension unless it is there."""
    from psycopg import sql

    vector = quoted(vector_column or _VECTOR)
    if cursor.execute("SELECT to_regtype('vector')").fetchone() == (None,):
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    made = sql.SQL("CREATE TABLE {} ({} text PRIMARY KEY, {} vector({}) NOT NULL)")
    cursor.execute(made.format(table, quoted(_ID), vector, sql.Literal(dimension)), ())
    if metric is not None:
        comment = sql.SQL("COMMENT ON COLUMN {}.{} IS {}")
        cursor.execute(comment.format(table, vector, sql.Literal(f"metric: {metric}")), ())


def write_rows(
    cursor: Any, table: Any, layout: Layout, batch: Batch, vectors: npt.NDArray[np.floating[Any]]
) -> None:
    """Write the rows over those with the same ids; columns that are missing are added first.

    Raises:
        StoreError: a field that fits no column.
    """
    layout = _adopted(cursor, table, layout, batch)
    columns = _widened(cursor, table, layout, batch)
    given = {name for row in batch.fields for name in row}
    names = [name for name in columns if name in given]
    rows = [
        [one, vector, *(_bound(row.get(name), columns[name]) for name in names)]
        for one, vector, row in zip(batch.ids, vectors, batch.fields, strict=True)
    ]
    cursor.executemany(_upsert(table, layout, names, columns), rows)


def _adopted(cursor: Any, table: Any, layout: Layout, batch: Batch) -> Layout:
    """Give an empty table, as `make_table` makes it, id and names of the table that the rows come from."""
    from psycopg import sql

    row = batch.fields[0]
    made = (layout.id_column, layout.id_type, layout.vector_column) == (_ID, "text", _VECTOR)
    if not isinstance(row, Row) or not made or layout.columns or layout.generated:
        return layout
    if cursor.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(table), ()).fetchone() is not None:
        return layout
    origin = row.origin
    kind = sql.SQL(_type(cursor, origin.id_type) or "text")
    changed = "ALTER TABLE {0} ALTER COLUMN {1} TYPE {2} USING {1}::{2}"
    cursor.execute(sql.SQL(changed).format(table, quoted(_ID), kind), ())
    between = f"{_VECTOR} {_ID}"  # in case the names change places
    for old, new in (
        (_VECTOR, between),
        (_ID, origin.id_column),
        (between, origin.vector_column),
    ):
        if old != new:
            renamed = sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
            cursor.execute(renamed.format(table, quoted(old), quoted(new)), ())
    return looked_up(cursor, table, origin.vector_column)


def _widened(cursor: Any, table: Any, layout: Layout, batch: Batch) -> dict[str, str]:
    """Add the columns that the fields need; return the types of all that can be written."""
    from psycopg import sql

    columns = dict(layout.columns)
    for row in batch.fields:
        hints = {**row.origin.columns, **row.origin.generated} if isinstance(row, Row) else {}
        for name, value in row.items():
            if value is None or name in layout.generated:
                continue
            if name not in columns:
                if name in (layout.id_column, layout.vector_column) or not is_name(name):
                    raise StoreError(
                        message(_OWNER, "fields", "columns beside id and vector, of 1 to 63 bytes", "another name",
                                fix="Make the table first, with other names for those two, or rename the field.")
                    )  # fmt: skip
                kind = _type(cursor, hints[name]) if name in hints else None
                columns[name] = kind or _type_for(value)
                added = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
                cursor.execute(added.format(table, quoted(name), sql.SQL(columns[name])), ())
            elif columns[name] in _WHOLE and isinstance(value, float):
                columns[name] = "double precision"
                changed = sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE double precision")
                cursor.execute(changed.format(table, quoted(name)), ())
            elif columns[name] in _TEXTS and isinstance(value, int | float):
                raise StoreError.of(_OWNER, "fields", "texts alone in a column of texts", type(value).__name__,
                                    "PostgreSQL would turn it into a text.")  # fmt: skip
    return columns


def _upsert(table: Any, layout: Layout, names: list[str], columns: Mapping[str, str]) -> Any:
    from psycopg import sql

    own = (layout.id_column, layout.vector_column)
    written = [quoted(name) for name in (*own, *names)]
    changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in written[1:]]
    # What the new row does not have must not stay from the old one.
    left = [quoted(name) for name in columns if name not in names]
    changes += [sql.SQL("{} = DEFAULT").format(name) for name in left]
    values = [sql.SQL("%s::" + layout.id_type), *[sql.SQL("%s")] * (len(written) - 1)]
    statement = (
        "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}"
    )
    comma = sql.SQL(", ")
    return sql.SQL(statement).format(
        table, comma.join(written), comma.join(values), written[0], comma.join(changes)
    )


def _type(cursor: Any, kind: str) -> str | None:
    """Return a type's name as this database has it, None if it has none: no other words reach a statement."""
    from psycopg import Error

    try:
        with cursor.connection.transaction():  # words that are no type end this alone
            found = cursor.execute("SELECT format_type(to_regtype(%s), -1)", [kind]).fetchone()
    except Error:
        return None
    return found[0] if found and isinstance(found[0], str) and found[0] != "-" else None


def _bound(value: Any, kind: str) -> Any:
    from psycopg.types.json import Json, Jsonb

    if value is None:
        return None
    return Jsonb(value) if kind == "jsonb" else Json(value) if kind == "json" else value


def _type_for(value: Any) -> str:
    """Return the type of a column for ``value``.

    Raises:
        StoreError: a type of Python that no column is made for; its name alone is told.
    """
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return "timestamp without time zone"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 63:
        return "numeric"
    for kind, name in _PYTHON:
        if isinstance(value, kind):
            return name
    raise StoreError.of(_OWNER, "fields", "numbers, texts, times, bytes or JSON", type(value).__name__,
                        fix="Make the table with its columns first.")  # fmt: skip
