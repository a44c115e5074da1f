"""A PostgreSQL table whose vectors are protected.

    table = ProtectedTable("postgresql://me@localhost/notes", "notes", "health.vecveil")
    table.create()
    table.add(ids, texts)
    table.search("a question", k=10)

Text or a clean vector goes in, the protected vector goes to the database. Names of tables and columns are quoted,
values are bound; a batch is there whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from vecveil.errors import IncompatibleError, InvalidInputError
from vecveil.integrations.items import Items, Match
from vecveil.integrations.opening import KeySource
from vecveil.integrations.postgres_database import (
    Database,
    adapted,
    check_name,
    quoted,
    table_name,
    upsert,
)
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from psycopg import Connection

    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["Match", "ProtectedTable"]

Metric = Literal["cosine", "dot", "euclidean"]
ColumnType = Literal[
    "text", "integer", "bigint", "double precision", "boolean", "jsonb", "date", "timestamptz", "uuid"
]  # fmt: skip
_OPERATORS: dict[str, str] = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}
_OWNER = "ProtectedTable"


class ProtectedTable:
    """A table of a PostgreSQL database with the extension ``vector``; close it, or use it in a ``with`` block.

    Args:
        connection: a URL, or an open connection of psycopg. A URL is connected when it is first needed, and again
            after the database went away. In a transaction of the caller's a batch is a part of it.
        table: its name; ``schema.table`` names the schema too.
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file. What was counted stays counted when the database refuses a batch.
        encoder: of the texts; None takes the protector's own.
        metric: ``cosine``, ``dot`` or ``euclidean``.
        id_column, vector_column, text_column: their names.
        keep_text: also write each text to ``text_column``, in clear.

    Raises:
        InvalidInputError: a name that PostgreSQL cannot hold, or an unknown metric.
        MissingDependencyError: psycopg or pgvector is not installed.
    """

    def __init__(
        self,
        connection: Connection[Any] | str,
        table: str,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        metric: Metric = "cosine",
        id_column: str = "id",
        vector_column: str = "embedding",
        text_column: str = "text",
        keep_text: bool = False,
    ) -> None:
        if metric not in _OPERATORS:
            wanted = "one of " + ", ".join(_OPERATORS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        self.id_column = check_name(id_column, "id_column", owner=_OWNER)
        self.vector_column = check_name(vector_column, "vector_column", owner=_OWNER)
        self.text_column = check_name(text_column, "text_column", owner=_OWNER)
        self._name = table_name(table, owner=_OWNER)
        self._database = Database(connection, table=table, owner=_OWNER)
        self.items = Items(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
            encoder=encoder,
            owner=_OWNER,
        )
        self.table, self.metric, self.keep_text = table, metric, keep_text
        self._types: dict[str, str] = {}

    def __repr__(self) -> str:
        """Return the table's name; never the URL, which may hold a password."""
        return f"{_OWNER}(table={self.table!r}, metric={self.metric!r})"

    def create(
        self,
        fields: Mapping[str, ColumnType] | None = None,
        *,
        id_type: Literal["text", "bigint", "uuid"] = "text",
    ) -> None:
        """Make the table unless it is there, and the extension unless it is.

        Args:
            fields: further columns and their types.
            id_type: of the primary key.

        Raises:
            IncompatibleError: the table is there with vectors of another dimension.
            StoreError: the database is not there, or does not allow it.
        """
        from psycopg import sql

        if id_type not in ("text", "bigint", "uuid"):
            raise InvalidInputError.of(
                _OWNER, "id_type", "text, bigint or uuid", repr(id_type)[:40]
            )
        known = get_args(ColumnType)
        columns = [
            sql.SQL("{} " + id_type + " PRIMARY KEY").format(quoted(self.id_column)),
            sql.SQL("{} vector({}) NOT NULL").format(
                quoted(self.vector_column), sql.Literal(self.items.dimension)
            ),
        ]
        if self.keep_text:
            columns.append(sql.SQL("{} text").format(quoted(self.text_column)))
        for name, kind in (fields or {}).items():
            if kind not in known:
                wanted = "columns of the types " + ", ".join(known)
                raise InvalidInputError.of(_OWNER, "fields", wanted, repr(kind)[:40])
            columns.append(
                sql.SQL("{} {}").format(
                    quoted(check_name(name, "fields", owner=_OWNER)), sql.SQL(kind)
                )
            )
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        with self._database.transaction("could not be created", vectors=False) as cursor:
            if cursor.execute("SELECT to_regtype('vector')").fetchone() == (None,):
                cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute(create.format(self._name, sql.SQL(", ").join(columns)), ())
        self._column_types()

    def add(
        self,
        ids: Sequence[Any],
        items: Texts | Embeddings,
        fields: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Protect ``items`` and write them in one transaction; rows with the same ids are replaced.

        Args:
            ids: one for each item, as the primary key has them; they name the items to a key and a ledger.
            items: texts, or clean vectors (N, n).
            fields: what else to write for each item, by column; the same columns for all.

        Raises:
            InvalidInputError: ids or fields that do not fit the items, NaN, or equal ids.
            IncompatibleError: vectors, or a column, of another dimension.
            StoreError: the database is gone or refused; nothing of this batch is written.
        """
        columns = self._check_rows(ids, items, fields)
        types = self._column_types()
        vectors, texts = self.items.documents(items, ids)
        kept = texts if self.keep_text else None
        self.items.warn_if_text(
            fields, texts, f"the PostgreSQL table {self.table!r}",
            "Leave the text out, and keep it where the clean vectors may be.", kept=kept is not None,
        )  # fmt: skip
        names = [self.id_column, self.vector_column, *columns]
        rows = [[one, vector] for one, vector in zip(ids, vectors, strict=True)]
        for row, beside in zip(rows, fields or (), strict=False):
            row += [adapted(beside[name], types.get(name)) for name in columns]
        if kept is not None:
            names.append(self.text_column)
            rows = [[*row, text] for row, text in zip(rows, kept, strict=True)]
        with self._database.transaction("did not take the batch; nothing of it is there") as cursor:
            cursor.executemany(upsert(self._name, self.id_column, names), rows)

    def search(
        self,
        query: str | Embeddings | Sequence[float],
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> list[Match]:
        """Return the ``k`` nearest rows, nearest first.

        Args:
            query: a text, or a clean vector (n,); it is protected as the policy says.
            where: values that columns must have.

        Raises:
            InvalidInputError: NaN, or more than one query.
            StoreError: the database is gone or refused.
        """
        from psycopg import sql

        self._column_types()
        vector = self.items.query(query)
        names = [check_name(name, "where", owner=_OWNER) for name in where or {}]
        wanted = [sql.SQL("{} = %s").format(quoted(name)) for name in names]
        select = sql.SQL("SELECT *, {0} {1} %s FROM {2} WHERE {3} ORDER BY {0} {1} %s LIMIT %s").format(
            quoted(self.vector_column), sql.SQL(_OPERATORS[self.metric]), self._name,
            sql.SQL(" AND ").join(wanted) if wanted else sql.SQL("true"),
        )  # fmt: skip
        values = [vector, *(where or {}).values(), vector, int(k)]
        with self._database.transaction("could not be searched") as cursor:
            cursor.execute(select, values)
            names = [column.name for column in cursor.description or ()][:-1]
            rows = cursor.fetchall()
        found = []
        for row in rows:
            beside = dict(zip(names, row[:-1], strict=True))
            del beside[self.vector_column]
            found.append(Match(beside.pop(self.id_column), float(row[-1]), beside))
        return found

    def count(self) -> int:
        """Return the number of rows."""
        from psycopg import sql

        with self._database.transaction("could not be counted", vectors=False) as cursor:
            cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(self._name), ())
            (rows,) = cursor.fetchone() or (0,)
            return int(rows)

    def close(self) -> None:
        """Close the connection, unless it was the caller's."""
        self._database.close()

    def __enter__(self) -> ProtectedTable:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _check_rows(
        self, ids: Sequence[Any], items: Any, fields: Sequence[Mapping[str, Any]] | None
    ) -> list[str]:
        """Return the names of the fields."""
        owner, rows = f"{_OWNER}.add", len(items)
        if len(ids) != rows or len(set(ids)) != rows or len(fields or ids) != rows:
            got = f"{len(set(ids))} different ids for {rows} items"
            raise InvalidInputError.of(owner, "ids", "one for each item and its fields", got)
        names = [check_name(name, "fields", owner=_OWNER) for name in fields[0]] if fields else []
        own = {self.id_column, self.vector_column, *([self.text_column] if self.keep_text else [])}
        if own & set(names) or any(set(row) != set(names) for row in fields or ()):
            wanted = "the same columns for all, beside id, vector and text"
            raise InvalidInputError.of(owner, "fields", wanted, "others")
        return names

    def _column_types(self) -> dict[str, str]:
        """Return the table's columns and their types, asked once; refuse vectors of another dimension."""
        if self._types:
            return self._types
        select = (
            "SELECT attname, format_type(atttypid, NULL), atttypmod FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        with self._database.transaction("could not be looked at") as cursor:
            rows = cursor.execute(
                select, [self._name.as_string(cursor).replace("%%", "%")]
            ).fetchall()
        dimension = next((size for name, _, size in rows if name == self.vector_column), -1)
        if dimension > 0 and dimension != self.items.dimension:
            raise IncompatibleError.of(_OWNER, "table", f"one with vectors of dimension {self.items.dimension}",
                                       f"dimension {dimension}", "The protector releases others.",
                                       "Make another table for it.")  # fmt: skip
        self._types = {name: kind for name, kind, _ in rows}
        return self._types
