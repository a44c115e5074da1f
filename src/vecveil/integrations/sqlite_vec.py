"""A table of sqlite-vec whose vectors are protected.

table = ProtectedTable("notes.db", "notes", "health.vecveil")
table.create()
table.add(ids, texts)
table.search("a question", k=10)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from vecveil.errors import IncompatibleError, InvalidInputError
from vecveil.integrations.items import Items, Match
from vecveil.integrations.opening import KeySource
from vecveil.integrations.sqlite_database import Database, check_column
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["Match", "ProtectedTable"]

_OWNER = "ProtectedTable"
_METRICS = {"cosine": "cosine", "euclidean": "l2"}
_TYPES = ("text", "integer", "float", "boolean")
_DIMENSION = re.compile(r"\bfloat\s*\[\s*(\d+)\s*\]", re.IGNORECASE)


class ProtectedTable:
    """A virtual table ``vec0``; close it, or use it in a ``with`` block.

    Args:
        connection: a path, or an open connection of ``sqlite3`` or ``pysqlite3``. In a transaction of the caller's a
            batch is a part of it.
        table: its name.
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file. What was counted stays counted when the database refuses a batch.
        encoder: of the texts; None takes the protector's own.
        metric: ``cosine`` or ``euclidean``, of a table that `create` makes.
        id_column, vector_column, text_column: their names: letters, digits and underscores.
        keep_text: also write each text to ``text_column``, in clear.

    Raises:
        InvalidInputError: a name or metric that sqlite-vec does not have.
        MissingDependencyError: sqlite-vec is not installed, or no SQLite that can load extensions.
    """

    def __init__(
        self,
        connection: Any,
        table: str,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        metric: Literal["cosine", "euclidean"] = "cosine",
        id_column: str = "id",
        vector_column: str = "embedding",
        text_column: str = "text",
        keep_text: bool = False,
    ) -> None:
        if not isinstance(table, str) or not table or "\0" in table:
            raise InvalidInputError.of(_OWNER, "table", "a name", type(table).__name__)
        if metric not in _METRICS:
            wanted = "one of " + ", ".join(_METRICS)
            raise InvalidInputError.of(_OWNER, "metric", wanted, repr(metric)[:40])
        self.id_column = check_column(id_column, owner=_OWNER)
        self.vector_column = check_column(vector_column, owner=_OWNER)
        self.text_column = check_column(text_column, owner=_OWNER)
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
        self._name = '"' + table.replace('"', '""') + '"'
        self._columns: list[str] = []

    def create(
        self,
        fields: Mapping[str, Literal["text", "integer", "float", "boolean"]] | None = None,
        *,
        id_type: Literal["text", "integer"] = "text",
    ) -> None:
        """Make the table unless it is there.

        Args:
            fields: further columns and their types, at most 16; every row must then have a value for each.
            id_type: of the primary key.

        Raises:
            IncompatibleError: the table is there with vectors of another dimension.
            StoreError: the file cannot be written.
        """
        if id_type not in ("text", "integer"):
            raise InvalidInputError.of(_OWNER, "id_type", "text or integer", repr(id_type)[:40])
        size = self.items.dimension
        columns = [
            f"{self.id_column} {id_type} primary key",
            f"{self.vector_column} float[{size}] distance_metric={_METRICS[self.metric]}",
        ]
        for name, kind in (fields or {}).items():
            if kind not in _TYPES:
                wanted = "columns of the types " + ", ".join(_TYPES)
                raise InvalidInputError.of(_OWNER, "fields", wanted, repr(kind)[:40])
            columns.append(f"{check_column(name, owner=_OWNER)} {kind}")
        if self.keep_text:
            columns.append(f"+{self.text_column} text")
        with self._database.transaction("could not be created") as cursor:
            if not self._looked_up(cursor):
                listed = ", ".join(columns)
                cursor.execute(f"CREATE VIRTUAL TABLE {self._name} USING vec0({listed})")
        self._known_columns()

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
            IncompatibleError: vectors, or the table's, of another dimension.
            StoreError: the database refused; nothing of this batch is written.
        """
        columns = self._check_rows(ids, items, fields)
        self._known_columns()
        vectors, texts = self.items.documents(items, ids)
        kept = texts if self.keep_text else None
        self.items.warn_if_text(
            fields, texts, f"the SQLite table {self.table!r}",
            "Leave the text out, and keep it where the clean vectors may be.", kept=kept is not None,
        )  # fmt: skip
        names = [self.id_column, self.vector_column, *columns]
        rows = [[one, vector.tobytes()] for one, vector in zip(ids, vectors, strict=True)]
        for row, beside in zip(rows, fields or (), strict=False):
            row += [beside[name] for name in columns]
        if kept is not None:
            names.append(self.text_column)
            rows = [[*row, text] for row, text in zip(rows, kept, strict=True)]
        places = ", ".join("?" * len(names))
        insert = f"INSERT INTO {self._name} ({', '.join(names)}) VALUES ({places})"
        delete = f"DELETE FROM {self._name} WHERE {self.id_column} = ?"
        with self._database.transaction("did not take the batch; nothing of it is there") as cursor:
            cursor.executemany(delete, [[one] for one in ids])
            cursor.executemany(insert, rows)

    def search(
        self,
        query: str | Embeddings | Sequence[float],
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> list[Match]:
        """Return the ``k`` nearest rows, nearest first; sqlite-vec gives at most 4096.

        Args:
            query: a text, or a clean vector (n,); it is protected as the policy says.
            where: values that columns must have.

        Raises:
            InvalidInputError: NaN, or more than one query.
            StoreError: the database refused.
        """
        columns = [name for name in self._known_columns() if name != self.vector_column]
        vector = self.items.query(query)
        wanted = "".join(f" AND {check_column(name, owner=_OWNER)} = ?" for name in where or {})
        select = (
            f"SELECT {', '.join(columns)}, distance FROM {self._name}"
            f" WHERE {self.vector_column} MATCH ? AND k = ?{wanted} ORDER BY distance"
        )
        with self._database.transaction("could not be searched") as cursor:
            values = [vector.tobytes(), int(k), *(where or {}).values()]
            rows = cursor.execute(select, values).fetchall()
        found = []
        for row in rows:
            beside = dict(zip(columns, row[:-1], strict=True))
            found.append(Match(beside.pop(self.id_column), float(row[-1]), beside))
        return found

    def count(self) -> int:
        """Return the number of rows."""
        with self._database.transaction("could not be counted") as cursor:
            (rows,) = cursor.execute(f"SELECT count(*) FROM {self._name}").fetchone()
            return int(rows)

    def close(self) -> None:
        """Close the file, unless the connection was the caller's."""
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
        names = [check_column(name, owner=owner) for name in fields[0]] if fields else []
        own = {self.id_column, self.vector_column, *([self.text_column] if self.keep_text else [])}
        if own & set(names) or any(set(row) != set(names) for row in fields or ()):
            wanted = "the same columns for all, beside id, vector and text"
            raise InvalidInputError.of(owner, "fields", wanted, "others")
        return names

    def _known_columns(self) -> list[str]:
        """Return the table's columns, asked once; refuse vectors of another dimension."""
        if not self._columns:
            with self._database.transaction("could not be looked at") as cursor:
                made = self._looked_up(cursor)
                select = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0"
                columns = [row[0] for row in cursor.execute(select, [self.table]).fetchall()]
            size = _DIMENSION.search(made or "")
            if size is not None and int(size[1]) != self.items.dimension:
                raise IncompatibleError.of(_OWNER, "table",
                                           f"one with vectors of dimension {self.items.dimension}",
                                           f"dimension {size[1]}", "The protector releases others.",
                                           "Make another table for it.")  # fmt: skip
            self._columns = columns
        return self._columns

    def _looked_up(self, cursor: Any) -> str | None:
        """Return the statement that made the table, None if there is none."""
        select = "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)"
        row = cursor.execute(select, [self.table]).fetchone()
        return None if row is None else str(row[0])
