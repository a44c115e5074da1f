"""A connection to PostgreSQL that is reopened when it broke, and whose errors show no values and no password."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError, MissingDependencyError, StoreError

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed, Identifier

__all__ = ["Database", "adapted", "check_name", "quoted", "table_name", "upsert"]

_LONGEST_NAME = 63


class Database:
    """A URL or an open connection, as short transactions.

    Args:
        connection: a URL is connected when it is first needed, and again after the connection broke; a connection of
            the caller's is used as it is, and a transaction that is open in it stays open.
        table: that is named in errors.
        owner: the class that is named in errors.

    Raises:
        MissingDependencyError: psycopg or pgvector is not installed.
    """

    def __init__(self, connection: Connection[Any] | str, *, table: str, owner: str) -> None:
        self._psycopg = _psycopg_module()  # refuse before anything is encoded
        self._table, self._owner = table, owner
        self._url = connection if isinstance(connection, str) else ""
        self._own = isinstance(connection, str)
        self._open: Connection[Any] | None = None if isinstance(connection, str) else connection
        self._taught: Connection[Any] | None = None

    @contextlib.contextmanager
    def transaction(self, what: str, *, vectors: bool = True) -> Iterator[Cursor[Any]]:
        """Yield a cursor of tuples in a transaction: all of what is done with it, or nothing.

        Args:
            what: failed, if it fails: ends the sentence "It ...".
            vectors: whether arrays are bound and read as vectors; the extension must be there.

        Raises:
            StoreError: the database is gone or refused.
        """
        from psycopg.rows import tuple_row

        with self._guard(what):
            connection = self._connect()
            if vectors and self._taught is not connection:
                from pgvector.psycopg import register_vector

                register_vector(connection)
                self._taught = connection
            with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
                yield cursor

    def _connect(self) -> Connection[Any]:
        if self._open is None or (self._own and self._open.closed):
            self._open = self._psycopg.connect(self._url, autocommit=True)
        return self._open

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            fix = "See that the server runs and takes the connection, then do it again."
            if not isinstance(error, self._psycopg.OperationalError):
                fix = "See that table, columns and extension are there (create), and that values fit them."
            raise StoreError.of(self._owner, "table", f"a PostgreSQL table that answers, {self._table!r}",
                                type(error).__name__, f"It {what}.", fix) from None  # fmt: skip

    def close(self) -> None:
        """Close the connection, unless it was the caller's."""
        if self._own and self._open is not None:
            self._open.close()
            self._open = None


def check_name(name: Any, what: str, *, owner: str) -> str:
    """Return a name that PostgreSQL holds as it is: it cuts longer ones, which would then be one.

    Raises:
        InvalidInputError: no string, empty, too long, or with a NUL.
    """
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _LONGEST_NAME or "\0" in name:
        wanted = f"a name of 1 to {_LONGEST_NAME} bytes without NUL"
        raise InvalidInputError.of(owner, what, wanted, type(name).__name__)
    return name


def table_name(table: str, *, owner: str) -> Identifier:
    """Return ``table`` or ``schema.table``, quoted."""
    parts = table.split(".", 1) if isinstance(table, str) else [table]
    return quoted(*(check_name(part, "table", owner=owner) for part in parts))


def quoted(*names: str) -> Identifier:
    """Return a name for statements that are executed with values, where psycopg takes ``%%`` for ``%``."""
    from psycopg import sql

    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def adapted(value: Any, kind: str | None) -> Any:
    """Return ``value`` as psycopg binds it to a column of type ``kind``."""
    from psycopg.types.json import Json, Jsonb

    return Jsonb(value) if kind == "jsonb" else Json(value) if kind == "json" else value


def upsert(table: Identifier, id_column: str, names: Sequence[str]) -> Composed:
    """Return the statement that writes a row of the columns ``names``, over one with the same id."""
    from psycopg import sql

    statement = "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}"
    beside = [quoted(name) for name in names if name != id_column]
    return sql.SQL(statement).format(
        table,
        sql.SQL(", ").join(quoted(name) for name in names),
        sql.SQL(", ").join(sql.Placeholder() * len(names)),
        quoted(id_column),
        sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in beside),
    )


def _psycopg_module() -> Any:
    """Return psycopg; raises MissingDependencyError if it or pgvector is not installed."""
    try:
        import pgvector.psycopg  # noqa: F401 - so that it fails here and not at the first row
        import psycopg
    except ImportError:
        raise MissingDependencyError("A PostgreSQL table", "pgvector", "pgvector") from None
    return psycopg
