"""Create, check and open the SQLite file of a ledger; no connection stays open across a fork.

A connection lives for one transaction. SQLite's locks belong to the process, and a child that inherits an open
connection can break the parent's file; so all transactions of a process run under one lock, which a fork waits for.
The rollback journal with ``synchronous = EXTRA`` makes a commit durable before it returns and leaves a single file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import sqlite3
import stat
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vecveil.errors import LedgerError
from vecveil.io import remove_left_over, sync_folder, temporary_beside

SALT_BYTES = 32


def event_checksum(
    salt: bytes, row: int, item: bytes, protector: str, epsilon: float | None, release: bytes | None
) -> bytes:
    """Return the SHA-256 of one event under the ledger's salt."""
    name = protector.encode("utf-8", "surrogatepass")
    # Lengths and presence bytes make the encoding unambiguous: no two events share one input.
    parts = (
        _first(salt),
        struct.pack(">qI", row, len(name)),
        name,
        item,
        b"\0" if epsilon is None else b"\1" + struct.pack(">d", epsilon),
        b"\0" if release is None else b"\1" + release,
    )
    return hashlib.sha256(b"".join(parts)).digest()


def cap_checksum(salt: bytes, row: int, cap: int) -> bytes:
    """Return the SHA-256 of one cap; see `event_checksum`."""
    return hashlib.sha256(_first(salt) + struct.pack(">qq", row, cap)).digest()


def _first(salt: bytes) -> bytes:
    return hashlib.sha256(b"vecveil ledger 1" + salt).digest()


APPLICATION = 0x7663766C
"""SQLite's application id, which marks the file as a ledger of vecveil: "vcvl"."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0
"""Longest wait of a transaction for those of other processes."""

_SCHEMA = """
CREATE TABLE ledger (salt BLOB NOT NULL CHECK (length(salt) = 32));
CREATE TABLE caps (row INTEGER PRIMARY KEY, cap INTEGER NOT NULL, chain BLOB NOT NULL);
CREATE TABLE events (
  row INTEGER PRIMARY KEY,
  item BLOB NOT NULL CHECK (length(item) = 32),
  protector TEXT NOT NULL,
  epsilon REAL,
  release BLOB CHECK (release IS NULL OR length(release) = 32),
  chain BLOB NOT NULL CHECK (length(chain) = 32)
);
CREATE INDEX events_by_item ON events (item);
CREATE UNIQUE INDEX events_repeatable ON events (item, protector, release)
  WHERE release IS NOT NULL;
"""


def _schema_script() -> str:
    """Return the statements that create the tables, and triggers that refuse everything but an appended row."""
    refuse = "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;\n"
    script = _SCHEMA
    for table in ("ledger", "caps", "events"):
        for verb in ("UPDATE", "DELETE"):
            script += f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}\n{refuse}"
    for table in ("caps", "events"):
        # INSERT OR REPLACE fires no DELETE trigger: rows may only be appended with the next number.
        script += f"CREATE TRIGGER {table}_next BEFORE INSERT ON {table}\n"
        script += f"WHEN NEW.row IS NOT (SELECT ifnull(max(row), 0) + 1 FROM {table})\n{refuse}"
    return script


_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits for the lock, so no child inherits an open connection.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def create_file(
    path: Path, *, cap: int | None, salt: bytes | None = None, events: Sequence[tuple[Any, ...]] = ()
) -> None:
    """Make a ledger at ``path``, readable by its owner alone, unless a file exists.

    A repaired ledger keeps its ``salt`` and its ``events`` (item, protector, ε, release), which get new numbers.
    The file is written beside the target and linked to it: of several processes one makes the ledger, and
    no reader sees half of it. An existing file stays: a ledger truncated to nothing must not begin anew.
    """
    with _LOCK, _system_explained(path), _explained(path):
        if path.exists():
            remove_left_over(path)
            return
        with temporary_beside(path, mode=0o600) as temporary:
            with contextlib.closing(_connect(temporary)) as made:
                # No reader sees this file before it is whole, so a kill needs no journal to roll back.
                made.execute("PRAGMA journal_mode = MEMORY")
                made.executescript(f"BEGIN; {_schema_script()} COMMIT;")
                made.execute("BEGIN")
                made.execute(f"PRAGMA application_id = {APPLICATION}")
                made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
                made.execute("INSERT INTO ledger VALUES (?)", (salt,))
                if cap is not None:
                    first = cap_checksum(salt, 1, cap)
                    made.execute("INSERT INTO caps VALUES (1, ?, ?)", (cap, first))
                insert_events(made, salt, 1, events)
                made.execute("COMMIT")
            # link, unlike rename, fails if another process was faster: its ledger stays.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        sync_folder(path.parent)  # the new directory entry is durable too


def insert_events(opened: sqlite3.Connection, salt: bytes, first: int, events: Iterable[tuple[Any, ...]]) -> None:
    """Append events (item, protector, ε, release), numbered from ``first`` on."""
    opened.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
        ((row, *event, event_checksum(salt, row, *event)) for row, event in enumerate(events, first)),
    )


@contextlib.contextmanager
def _one_thread(path: Path) -> Iterator[None]:
    # Each thread before this one may wait for another process: their waits must not add up.
    if not _LOCK.acquire(timeout=BUSY_SECONDS):
        raise _refusal(path, f"{_REASONS[sqlite3.SQLITE_BUSY]} Nothing was recorded.")
    try:
        yield
    finally:
        _LOCK.release()


@contextlib.contextmanager
def transaction(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Yield a connection inside a transaction: committed at the end, rolled back on an error."""
    with _one_thread(path), _explained(path):
        _check_regular(path)
        with contextlib.closing(_connect(path)) as opened:
            # IMMEDIATE takes the write lock now: a later upgrade from a read lock could deadlock.
            opened.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                _check_schema(opened, path)
                yield opened
                if write:  # a read ends as the connection closes; a damaged page may have ended it already
                    opened.execute("COMMIT")
            except BaseException:
                if opened.in_transaction:
                    opened.execute("ROLLBACK")
                raise


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection to an existing file; by default SQLite would create an empty one."""
    opened = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        opened.execute("PRAGMA synchronous = EXTRA")
        opened.execute("PRAGMA trusted_schema = OFF")  # functions in an altered schema must not run
    except BaseException:  # a damaged file fails here already
        opened.close()
        raise
    return opened


def _check_regular(path: Path) -> None:
    with _system_explained(path):
        mode = path.stat().st_mode if path.exists() else None
    if mode is None:
        raise _refusal(
            path,
            "does not exist: it was moved or deleted, or never made. Put the ledger back; a new one would forget all "
            "releases.",
        )
    if not stat.S_ISREG(mode):
        raise _refusal(path, "is a folder." if stat.S_ISDIR(mode) else "is no regular file.")


def _check_schema(opened: sqlite3.Connection, path: Path) -> None:
    (application,) = opened.execute("PRAGMA application_id").fetchone()
    (version,) = opened.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise _refusal(
            path,
            "is no ledger of vecveil, or one that was truncated to nothing. Name the ledger, or restore it from a "
            "copy.",
        )
    if version != SCHEMA_VERSION:
        raise _refusal(path, f"is a ledger of version {version}. Use the vecveil that made it.")
    # A missing trigger would make the file writable without trace, so the schema is compared whole.
    if _schema_of(opened) != _expected_schema():
        raise _refusal(path, "has altered tables or triggers, which keep it append-only. Restore it from a copy.")


def _schema_of(opened: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    return frozenset(opened.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@functools.cache
def _expected_schema() -> frozenset[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(_schema_script())
        return _schema_of(model)


_REASONS = {
    sqlite3.SQLITE_BUSY: f"is locked by other processes for {BUSY_SECONDS:.0f} s now. Try again; if it stays locked, a "
    "process that uses it hangs.",
    sqlite3.SQLITE_READONLY: "is read-only. Change the permissions of file and folder, or use another ledger.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check the permissions of the file and of its folder.",
    sqlite3.SQLITE_FULL: "is on a full disk. Free some space.",
    sqlite3.SQLITE_IOERR: "gives an input/output error. Check that the disk has enough space, and a limit on the size "
    "of files.",
    sqlite3.SQLITE_NOTADB: "is no ledger. Name the ledger.",
}
_DAMAGED = "is damaged. Restore it from a copy."


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors inside the block into a `LedgerError`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: SQLite quotes damaged names
        # The low byte is SQLite's primary code, which the table's keys are.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        # Without the cause: SQLite's message can quote a damaged field.
        raise _refusal(path, f"{_REASONS.get(code, _DAMAGED)} Nothing was recorded.") from None


@contextlib.contextmanager
def _system_explained(path: Path) -> Iterator[None]:
    """Turn the operating system's errors inside the block into a `LedgerError`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise _refusal(
            path,
            f"cannot be used ({reason}). A ledger needs a file system with hard links and locks. Nothing was recorded.",
        ) from error


def _refusal(path: Path, what: str) -> LedgerError:
    return LedgerError(f"The ledger {path.name!r} {what}", param="path")
