"""`SqliteBlobs`: sealed blobs in a SQLite file, apart from the database that holds the vectors."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vecveil.errors import StoreError
from vecveil.io import create_private

_WAIT_SECONDS = 60.0  # for another process's write


class SqliteBlobs(MutableMapping[str, bytes]):
    """Blobs by id in one SQLite file, for ``blobs=`` of `ProtectedCollection`.

    `update` writes all its blobs in one transaction. Processes and threads may share the file on a local disk.

    Args:
        path: made if it does not exist.

    Raises:
        StoreError: the file is no SQLite file, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.realpath(path)
        with suppress(OSError):  # that SQLite explains
            create_private(Path(self._path))
        self._local = threading.local()
        with self._cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")  # readers do not wait for a writer
            cursor.execute("CREATE TABLE IF NOT EXISTS blobs (id BLOB PRIMARY KEY, blob BLOB NOT NULL) WITHOUT ROWID")

    def __repr__(self) -> str:
        return f"SqliteBlobs({os.path.basename(self._path)!r})"

    def __reduce__(self) -> Any:
        return SqliteBlobs, (self._path,)

    def __getitem__(self, name: str) -> bytes:
        with self._cursor() as cursor:
            row = cursor.execute("SELECT blob FROM blobs WHERE id = ?", [_key(name)]).fetchone()
        if row is None:
            raise KeyError(name)
        return bytes(row[0])

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.update({name: blob})

    def __delitem__(self, name: str) -> None:
        with self._cursor() as cursor:
            if not cursor.execute("DELETE FROM blobs WHERE id = ?", [_key(name)]).rowcount:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        with self._cursor() as cursor:  # all at once, so that no read stays open
            rows = cursor.execute("SELECT id FROM blobs").fetchall()
        return iter([row[0].decode("utf-8", "surrogatepass") for row in rows])

    def __len__(self) -> int:
        with self._cursor() as cursor:
            return int(cursor.execute("SELECT count(*) FROM blobs").fetchone()[0])

    def update(self, other: Any = (), /, **more: bytes) -> None:
        """Write all blobs in one transaction."""
        rows = [(_key(name), bytes(blob)) for name, blob in dict(other, **more).items()]
        with self._cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                cursor.executemany("INSERT OR REPLACE INTO blobs VALUES (?, ?)", rows)
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def compact(self) -> None:
        """Overwrite what the file and its log keep of deleted blobs."""
        with self._cursor() as cursor:
            cursor.execute("VACUUM")
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def files(self) -> list[str]:
        """Return the file and its log."""
        return [self._path, f"{self._path}-wal"]

    def close(self) -> None:
        """Close this thread's connection; the next use opens another."""
        if getattr(self._local, "pid", None) == os.getpid():
            self._local.connection.close()
            self._local.pid = None

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        # SQLite's connections belong to one thread, and none may cross a fork.
        try:
            if getattr(self._local, "pid", None) != os.getpid():
                self._local.connection = sqlite3.connect(self._path, _WAIT_SECONDS, isolation_level=None)
                self._local.connection.execute("PRAGMA secure_delete = ON")  # overwrite deleted blobs
                self._local.pid = os.getpid()
            cursor = self._local.connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()
        except sqlite3.Error as error:
            name = os.path.basename(self._path)
            raise StoreError(
                f"{name} cannot be opened as a SQLite file to read and write ({type(error).__name__}).",
                code="E-STORE-DATABASE",
                param="path",
            ) from None


def _key(name: str) -> bytes:
    # As bytes: SQLite's texts hold no lone surrogates.
    return name.encode("utf-8", "surrogatepass")
