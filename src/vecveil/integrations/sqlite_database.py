"""A SQLite file with sqlite-vec loaded, and errors that show none of what is in it."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from typing import Any

from vecveil.errors import (
    InvalidInputError,
    MissingDependencyError,
    StoreError,
    VecveilError,
    message,
)

__all__ = ["Database", "check_column"]

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_TAKEN = {"distance", "k", "rowid"}


class Database:
    """A path or an open connection, as short transactions.

    Args:
        connection: a path is opened when it is first needed; a connection of the caller's is used as it is, and a
            transaction that is open in it stays open.
        table: that is named in errors.
        owner: the class that is named in errors.

    Raises:
        MissingDependencyError: sqlite-vec is not installed, or no SQLite that can load extensions.
    """

    def __init__(self, connection: Any, *, table: str, owner: str) -> None:
        self._table, self._owner = table, owner
        self._path = os.fspath(connection) if isinstance(connection, str | os.PathLike) else None
        self._given = None if self._path is not None else connection
        self._open: Any = None
        self._sqlite = _loadable() if self._path is not None else None

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[Any]:
        """Yield a cursor: all of what is done with it is there afterwards, or nothing.

        Args:
            what: failed, if it fails: ends the sentence "It ...".

        Raises:
            StoreError: the database refused.
        """
        try:
            cursor = self._connect().cursor()
            cursor.execute("SAVEPOINT vecveil")
            try:
                yield cursor
            except BaseException:
                # The error is what counts; a database that is gone has nothing to go back from.
                with contextlib.suppress(Exception):
                    cursor.execute("ROLLBACK TO vecveil")
                    cursor.execute("RELEASE vecveil")
                raise
            cursor.execute("RELEASE vecveil")
            cursor.close()
        except VecveilError:
            raise
        except Exception as error:
            raise StoreError(
                message(self._owner, "table", f"a table of sqlite-vec that answers, {self._table!r}",
                        type(error).__name__, f"It {what}.",
                        "See that the file can be written, the table is there (create), and values fit its columns.")
            ) from None  # fmt: skip

    def _connect(self) -> Any:
        if self._open is None:
            if self._given is not None:
                self._open = self._given
                try:
                    self._open.execute("SELECT vec_version()")
                    return self._open
                except Exception:  # not loaded yet
                    if not hasattr(self._open, "enable_load_extension"):
                        raise _missing() from None
            else:
                assert self._sqlite is not None
                self._open = self._sqlite.connect(self._path, isolation_level=None)
            import sqlite_vec

            self._open.enable_load_extension(True)
            sqlite_vec.load(self._open)
            self._open.enable_load_extension(False)
        return self._open

    def close(self) -> None:
        """Close the file, unless the connection was the caller's."""
        if self._given is None and self._open is not None:
            self._open.close()
        self._open = None


def check_column(name: Any, *, owner: str) -> str:
    """Return a name that sqlite-vec takes for a column: it has no way to quote others.

    Raises:
        InvalidInputError: not letters, digits and underscores, or a name of sqlite-vec's own.
    """
    if not isinstance(name, str) or not _COLUMN.fullmatch(name) or name.lower() in _TAKEN:
        wanted = "columns of letters, digits and _, other than distance, k and rowid"
        raise InvalidInputError.of(owner, "fields", wanted, "another name")
    return name


def _loadable() -> Any:
    """Return the module of a SQLite that can load extensions, which some builds of Python leave out."""
    try:
        import sqlite_vec  # noqa: F401 - so that it fails here and not at the first row
    except ImportError:
        raise MissingDependencyError("A SQLite table", "sqlite-vec", "sqlite-vec") from None
    import sqlite3

    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        return importlib.import_module("pysqlite3")
    except ImportError:
        raise _missing() from None


def _missing() -> MissingDependencyError:
    feature = "sqlite-vec with this Python, whose sqlite3 cannot load extensions,"
    return MissingDependencyError(feature, "pysqlite3-binary", "sqlite-vec")
