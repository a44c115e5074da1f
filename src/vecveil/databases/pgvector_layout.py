"""What a PostgreSQL table with vectors looks like, and which types its columns need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecveil.errors import StoreError

__all__ = ["TABLES", "Layout", "Row", "as_value", "is_name", "looked_up", "quoted"]

TABLES = """
SELECT DISTINCT c.relname FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE t.typname IN ('vector', 'halfvec') AND c.relkind IN ('r', 'p') AND pg_table_is_visible(c.oid)
"""
"""The tables that could be meant where none is named."""

_LAYOUT = """
SELECT a.attname, format_type(a.atttypid, -1), t.typname, a.atttypmod, a.attgenerated <> '',
    COALESCE(a.attnum = ANY(p.indkey), false), COALESCE(p.indnkeyatts, 0),
    col_description(a.attrelid, a.attnum),
    (SELECT min(o.opcname) FROM pg_index i JOIN pg_opclass o ON o.oid = ANY(i.indclass)
        WHERE i.indrelid = a.attrelid AND a.attnum = ANY(i.indkey))
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index p ON p.indrelid = a.attrelid AND p.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
"""Name, type, its bare name, dimension, generated, in the primary key, columns of that, comment, class of an index.

Types are written with -1: without a length ``character`` and ``bit`` mean one character, and a cast cuts to that."""

_VECTORS = ("vector", "halfvec", "sparsevec")
_METRICS = {"cosine": "cosine", "ip": "dot", "l2": "euclidean"}
_COMMENT = "metric: "
_LONGEST_NAME = 63
_OWNER = "PgvectorStore"


@dataclass(frozen=True)
class Layout:
    """The columns of a table.

    Attributes:
        id_column, id_type: the primary key and its type.
        vector_column: that is read and written.
        dimension: of the vectors; 0 if the column takes any.
        metric: of an index on it, or the one it was made for; else None.
        columns: the others that can be written, with their types; without further vectors.
        generated: those that the database computes, with their types.
    """

    id_column: str
    id_type: str
    vector_column: str
    dimension: int
    metric: str | None
    columns: Mapping[str, str]
    generated: Mapping[str, str]


class Row(dict[str, Any]):
    """The fields of a row, which know the table that they come from, so that another can get the same columns."""

    origin: Layout

    @classmethod
    def of(cls, values: Mapping[str, Any], origin: Layout) -> Row:
        """Return the values that are not NULL."""
        row = cls({name: value for name, value in values.items() if value is not None})
        row.origin = origin
        return row

    def with_values(self, values: Mapping[str, Any]) -> Row:
        """Return other values of the same table."""
        return Row.of(values, self.origin)


def looked_up(cursor: Any, table: Any, vector_column: str) -> Layout:
    """Return the layout of a table.

    Args:
        cursor: of psycopg.
        table: its quoted name.
        vector_column: of several; "" takes the only one.

    Raises:
        StoreError: the table is not there, or has no primary key of one column, or none or several columns of vectors.
    """
    rows = cursor.execute(_LAYOUT, [as_value(table, cursor)]).fetchall()
    if not rows:
        raise StoreError.of(_OWNER, "table", "in the database", "a name that is not there")
    keys = [row for row in rows if row[5]]
    vectors = [
        row for row in rows if row[2] in _VECTORS[:2] and row[0] == (vector_column or row[0])
    ]
    if len(keys) != 1 or keys[0][6] != 1:
        raise StoreError.of(_OWNER, "table", "one with a primary key of one column", f"{len(keys)} columns",
                            "Rows are read in its order and replaced by it.",
                            "Add one: ALTER TABLE ... ADD COLUMN id bigserial PRIMARY KEY.")  # fmt: skip
    if len(vectors) != 1:
        raise StoreError.of(_OWNER, "table", "one with a column of vectors", f"{len(vectors)}",
                            fix="Name the column behind the table: #TABLE:COLUMN.")  # fmt: skip
    (vector,), (key,) = vectors, keys
    comment = vector[7] or ""
    told = comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None
    index = _METRICS.get((vector[8] or "").removeprefix(f"{vector[2]}_").removesuffix("_ops"))
    others = [row for row in rows if row[2] not in _VECTORS and row is not key]
    return Layout(
        id_column=key[0],
        id_type=key[1],
        vector_column=vector[0],
        dimension=max(int(vector[3]), 0),
        metric=index or told,
        columns={row[0]: row[1] for row in others if not row[4]},
        generated={row[0]: row[1] for row in others if row[4]},
    )


def quoted(*names: str) -> Any:
    """Return a name for statements that are executed with values, where psycopg takes ``%%`` for ``%``."""
    from psycopg import sql

    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def as_value(name: Any, cursor: Any) -> str:
    """Return a `quoted` name as the value that ``to_regclass`` takes."""
    return str(name.as_string(cursor)).replace("%%", "%")


def is_name(name: str) -> bool:
    """Return whether PostgreSQL holds the name as it is: it cuts longer ones, which would then be one."""
    return 0 < len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME and "\0" not in name
