"""Cache embeddings on disk: one SQLite file per encoder fingerprint.

The file contains no text. A text is looked up by a keyed digest; the key is random per file and stored in
it. A reader of the rows alone cannot test for texts, a reader of the file can. Clean vectors reveal their
texts, so treat the cache as the texts: it has mode 0600, and ``load_encoder(..., cache=None)`` disables it.

Several processes may use one cache at a time, and any of them may be killed at any moment. A damaged file
is renamed with a warning and a new one begun; a row that fails its checksum counts as damage. If the cache
cannot be used (read-only folder, full disk, long lock), encoding continues without it after a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vecveil.errors import DataFileError
from vecveil.io import create_private, expanded, make_folders

Vectors = npt.NDArray[np.float32]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL);
"""
# Codes that mean a wrong file; all others (locks, full disk) leave the file in place.
_DAMAGE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_KEYS_PER_QUERY = 500  # below SQLite's smallest limit of 999 parameters
_TAG_BYTES = 8  # detects damage, not forgery: the key lies in the same file


class CacheWarning(UserWarning):
    """Warning that the embedding cache was renamed or is not in use; the vectors are still correct."""


class _DamagedError(Exception):
    """Raised for content that `EmbeddingCache` did not write."""


def default_cache_folder() -> Path:
    """Return ``$VECVEIL_CACHE``, else ``vecveil`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if chosen := os.environ.get("VECVEIL_CACHE"):
        return expanded(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(base) / "vecveil" / "embeddings"


class EmbeddingCache:
    """The cached vectors of one encoder; each ``fingerprint`` has its file.

    The folder is created, readable by its owner only, at the first write. ``patience`` limits the wait for
    another writing process, in seconds.
    """

    def __init__(self, folder: str | os.PathLike[str], fingerprint: str, *, patience: float = 30.0) -> None:
        self.path = expanded(folder) / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}.sqlite"
        self.usable = True
        self._patience = patience

    def get(self, texts: Sequence[str], dimension: int | None) -> tuple[list[int], Vectors]:
        """Return the positions of the cached texts and their vectors, one row each."""
        nothing: tuple[list[int], Vectors] = ([], np.empty((0, dimension or 0), np.float32))
        if not texts or not self.usable:
            return nothing
        with self._guarded():
            if not self.path.exists():
                return nothing
            with self._connection() as (connection, salt):
                blobs = self._read(connection, [_key(salt, text) for text in texts])
                expected = self._dimension(connection)
            hits = [i for i, blob in enumerate(blobs) if blob is not None]
            # A different dimension under this fingerprint: the encoder has changed, so use nothing.
            if not hits or expected is None or (dimension or expected) != expected:
                return nothing
            vectors = np.empty((len(hits), expected), np.float32)
            for row, i in enumerate(hits):
                vectors[row] = _unseal(salt, texts[i], blobs[i] or b"", expected)
            return hits, vectors
        return nothing

    def put(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Write the vectors of ``texts`` in one transaction; existing rows stay."""
        if not len(texts) or not self.usable:
            return
        with self._guarded(), self._connection(create=True) as (connection, salt):
            width = str(vectors.shape[1]).encode()
            keys = [_key(salt, text) for text in texts]
            rows = [(key, _seal(salt, key, vector)) for key, vector in zip(keys, vectors, strict=True)]
            # The lock comes before the read: another process may write a different dimension.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('dimension', ?)", (width,))
            if self._dimension(connection) == vectors.shape[1]:
                connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            connection.execute("COMMIT")

    @staticmethod
    def _read(connection: sqlite3.Connection, keys: list[bytes]) -> list[bytes | None]:
        blobs: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            # SQLite limits the number of parameters of a query.
            part = keys[start : start + _KEYS_PER_QUERY]
            marks = ",".join("?" * len(part))
            blobs.update(connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part))
        return [blobs.get(key) for key in keys]

    @staticmethod
    def _dimension(connection: sqlite3.Connection) -> int | None:
        row = connection.execute("SELECT value FROM meta WHERE name = 'dimension'").fetchone()
        if row is None:
            return None
        try:
            dimension = int(row[0])
        except (TypeError, ValueError):
            raise _DamagedError from None
        if dimension < 1:
            raise _DamagedError
        return dimension

    @contextlib.contextmanager
    def _connection(self, *, create: bool = False) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """Open the file for one operation: no connection survives a fork, a kill or a rename."""
        if create:
            make_folders(self.path.parent)
            create_private(self.path)
        connection = sqlite3.connect(self.path, timeout=self._patience, isolation_level=None)
        try:
            self._set_up(connection)
            row = connection.execute("SELECT value FROM meta WHERE name = 'salt'").fetchone()
            if row is None or not isinstance(row[0], bytes) or len(row[0]) != 32:
                raise _DamagedError
            yield connection, row[0]
        finally:
            connection.close()

    def _set_up(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self._patience
        while True:  # SQLite's timeout does not cover the switch to the write-ahead log
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                break
            except sqlite3.OperationalError as error:
                if _code(error) not in _LOCKED or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if {"meta", "vectors"} <= tables:
            return
        # Two processes may both see no tables; IF NOT EXISTS and OR IGNORE let the first one win.
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.strip().split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('salt', ?)", (secrets.token_bytes(32),))
        connection.execute("COMMIT")

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn every failure of the cache into a warning: the vectors can always be computed."""
        seen = self._inode()
        try:
            yield
        except (_DamagedError, UnicodeError):  # sqlite3 decodes names and messages as UTF-8
            self._set_aside(seen)
        except sqlite3.Error as error:
            if _code(error) in _DAMAGE:
                self._set_aside(seen)
            else:
                self._give_up(error)
        except OSError as error:
            self._give_up(error)

    def _inode(self) -> int | None:
        try:
            return self.path.stat().st_ino
        except OSError:
            return None

    def _set_aside(self, seen: int | None) -> None:
        if seen is None or self._inode() != seen:
            return  # another process has already replaced the damaged file
        label = f"damaged-{secrets.token_hex(4)}"
        try:
            for suffix in ("-shm", "-wal", ""):
                with contextlib.suppress(FileNotFoundError):
                    # The log moves first: a new file must not meet an old log.
                    part = self.path.with_name(self.path.name + suffix)
                    part.rename(self.path.with_name(f"{self.path.name}.{label}{suffix}"))
        except OSError as error:
            self._give_up(error)
            return
        warnings.warn(
            f"The embedding cache file {self.path.name} is damaged; it was set aside as "
            f"{self.path.name}.{label} and a new one is begun. Delete it if you do not need it.",
            CacheWarning,
            stacklevel=6,
        )

    def _give_up(self, error: Exception) -> None:
        self.usable = False
        warnings.warn(
            f"The embedding cache is not used from here on: {type(error).__name__}"
            f"{f' ({error.strerror})' if isinstance(error, OSError) and error.strerror else ''}"
            f"{f' ({error})' if isinstance(error, sqlite3.Error) else ''}. "
            "Set VECVEIL_CACHE to a folder you may write to, or do without: cache=None (--no-cache).",
            CacheWarning,
            stacklevel=6,
        )


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (_DamagedError, sqlite3.Error, OSError) as error:
        raise DataFileError(
            f"{path.name} is no file of the embedding cache, or is damaged ({type(error).__name__}). Remove it, "
            "and repeat the command.",
            param="cache",
        ) from None


def matching_texts(folder: str | os.PathLike[str], texts: Sequence[str], *, delete: bool = False) -> int:
    """Return how many vectors of ``texts`` the files in ``folder`` hold, of every encoder; ``delete`` removes them."""
    cached = 0
    for path in sorted(expanded(folder).glob("*.sqlite")):
        cache = EmbeddingCache(folder, "")
        cache.path = path
        with _reported(path), cache._connection() as (connection, salt):
            keys = [_key(salt, text) for text in dict.fromkeys(texts)]
            cached += sum(blob is not None for blob in cache._read(connection, keys))
            if delete:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in keys])
                connection.execute("COMMIT")
                # The log contains older pages. SQLite raises nothing while another connection reads them.
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    raise DataFileError(
                        f"Another program reads {path.name} of the embedding cache, and so keeps what was deleted in "
                        "it. Stop that program, and repeat the command.",
                        param="cache",
                    )
    return cached


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _key(salt: bytes, text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8"), key=salt, digest_size=32).digest()


def _tag(salt: bytes, key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(key + data, key=salt, digest_size=_TAG_BYTES).digest()


def _seal(salt: bytes, key: bytes, vector: Vectors) -> bytes:
    data = vector.astype("<f4", copy=False).tobytes()
    return data + _tag(salt, key, data)


def _unseal(salt: bytes, text: str, blob: bytes, dimension: int) -> Vectors:
    if not isinstance(blob, bytes) or len(blob) != 4 * dimension + _TAG_BYTES:
        raise _DamagedError
    data, tag = blob[:-_TAG_BYTES], blob[-_TAG_BYTES:]
    if not secrets.compare_digest(tag, _tag(salt, _key(salt, text), data)):
        raise _DamagedError
    return np.frombuffer(data, "<f4")
