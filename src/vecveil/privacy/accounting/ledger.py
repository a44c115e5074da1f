"""A ledger of releases: count how often each item was released, and cap it.

Averaging repeated releases of one text removes its noise, so the number of releases is part of the guarantee. A
`Ledger` is an append-only file that counts them. It stores salted hashes in place of ids: HMAC-SHA256 under a random
salt in the same file. A reader of the file can test guesses of ids; a reader of an export cannot. Several processes and
threads may record at once; a crash keeps all earlier records.

A connection to its SQLite file lives for one transaction. SQLite's locks belong to the process, and a child that
inherits an open connection can break the parent's file; so one lock serialises all transactions of a process, and a
fork waits for it. The rollback journal with ``synchronous = EXTRA`` makes a commit durable before it returns and leaves
a single file.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import functools
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import sqlite3
import stat
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError, LedgerCapError, LedgerError
from vecveil.io import atomic_path, expanded, remove_left_over, sync_folder, temporary_beside
from vecveil.validation import check_count, check_positive, check_same_length, check_sequence

LARGEST_CAP = 10**9
_FINGERPRINT = re.compile(r"[\w.:+/=@-]{1,200}", re.ASCII)
_CAPS = "SELECT row, checksum, cap FROM caps ORDER BY row"
_EVENTS = "SELECT row, checksum, item, protector, epsilon, release FROM events ORDER BY row"
_COLUMNS = ("row", "item", "protector", "epsilon", "release", "checksum")

# Aggregate in SQL: a ledger may have millions of events.
_HISTOGRAM = """
SELECT releases, count(*) FROM (SELECT count(*) AS releases FROM events GROUP BY item)
GROUP BY releases ORDER BY releases
"""
_PROTECTORS = """
SELECT protector, count(*), sum(releases), max(releases), max(epsilon), min(formal) FROM (
  SELECT protector, count(*) AS releases, sum(epsilon) AS epsilon,
         count(epsilon) = count(*) AS formal
  FROM events GROUP BY protector, item)
GROUP BY protector ORDER BY protector
"""


@dataclass(frozen=True)
class ProtectorReleases:
    """The releases by one protector, identified by its fingerprint.

    Attributes:
        releases: number of releases; a repeatable one counts once.
        most_releases: largest number of releases of one item.
        most_epsilon: largest sum of ε over one item's releases (basic composition), per unit of the protector's metric;
            None if a release had no formal ε.
    """

    protector: str
    items: int
    releases: int
    most_releases: int
    most_epsilon: float | None


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger's totals, without any item; ``histogram`` is number of releases → number of items."""

    items: int
    releases: int
    most_releases: int
    cap: int | None
    histogram: dict[int, int]
    protectors: tuple[ProtectorReleases, ...]

    def to_record(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "histogram": {str(count): items for count, items in self.histogram.items()},
            "protectors": [asdict(row) for row in self.protectors],
        }


@dataclass(frozen=True)
class LedgerRepair:
    """The outcome of `Ledger.repair`: ``releases`` in the new ledger and its ``cap``, which may be an earlier one.

    ``lost`` counts rows that do not verify, without rows that left no trace. ``cap_lost``: a stored cap did not verify.
    """

    releases: int
    lost: int
    cap: int | None
    cap_lost: bool


class Ledger:
    """Counts releases per item in an append-only file and refuses releases beyond a cap.

    Ids are str, int or bytes; ``"7"``, ``7`` and ``b"7"`` are three items. Checksums detect accidents and careless
    changes, not a deliberate rewriting of the file. Opening checks every row, in some seconds per million, and raises
    `LedgerError` for anything but an intact ledger.

    No connection outlives a call, so a ledger may be used after a fork, by threads, and sent to other processes. A
    process that records must not open the file by other means.

    Args:
        path: created, readable by its owner only, if it does not exist.
        cap: maximum number of releases of an item. A new ledger stores it; for an existing one a smaller cap binds this
            object alone and a larger one raises.
        raise_cap: store a larger cap. Every further release of an item weakens its protection.
        create: False raises if the file does not exist.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, cap: int | None = None, raise_cap: bool = False, create: bool = True
    ) -> None:
        self._path = Path(os.path.realpath(expanded(path)))
        if cap is not None:
            cap = check_count(cap, owner="Ledger", param="cap", maximum=LARGEST_CAP)
        self._cap = cap
        self._closed = False
        self._salt = b""  # the file's, once it was opened
        self._last = (0, b"")  # number and checksum of the last row seen; see _transaction
        if create:
            create_file(self._path, cap=self._cap)
        # A row whose item is damaged would no longer count against the cap.
        self.verify()
        with self._transaction() as opened:
            stored = _stored_cap(opened)
        if self._cap is not None and stored is not None and self._cap > stored:
            if not raise_cap:
                raise LedgerError(
                    f"The ledger has a cap of {stored}, and `cap` is {self._cap}. Every further release of an item "
                    "weakens its protection: store the larger cap with raise_cap=True (--raise-cap).",
                    param="cap",
                )
            with self._transaction(write=True) as opened:
                _append_cap(opened, self._salt, self._cap)

    def __repr__(self) -> str:
        return f"Ledger({self._path.name!r}, cap={self._cap})"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse any further use of this object."""
        self._closed = True

    def record(
        self,
        ids: Iterable[str | int | bytes],
        *,
        protector: str,
        epsilon: float | None,
        releases: Sequence[bytes] | None = None,
    ) -> None:
        """Record one release of every item of ``ids``, or nothing; call it before the release.

        Args:
            ids: one for each release; an id that occurs twice is released twice.
            protector: fingerprint of the protector.
            epsilon: ε of one release, per unit of the protector's metric; None without a formal guarantee.
            releases: one tag for each id, which identifies *repeatable* (keyed) releases: the same item, protector and
                tag again is the same output and costs nothing. None for fresh noise, which always costs.

        Raises:
            LedgerCapError: items would exceed the cap; nothing was recorded.
        """
        owner = "Ledger.record"
        items = check_sequence(
            ids, "a sequence of ids", owner=owner, param="ids", fix="Pass a list, even for a single id."
        )
        if not isinstance(protector, str) or not _FINGERPRINT.fullmatch(protector):
            constraint = "a fingerprint of 1 to 200 letters, digits and .:+/=@_-"
            raise InvalidInputError(f"`protector` is {constraint}.", param="protector")
        if epsilon is not None:
            epsilon = check_positive(epsilon, owner=owner, param="epsilon", allow_zero=True)
        tags: list[Any] = [None] * len(items)
        if releases is not None:
            tags = list(releases)
            check_same_length(owner, releases=tags, ids=items)
        # Hash before the transaction: other processes wait for the lock meanwhile.
        salt = self._salt
        batch = [
            (_hashed_item(salt, item, owner, i), _hashed_tag(salt, tag, owner, i))
            for i, (item, tag) in enumerate(zip(items, tags, strict=True))
        ]
        with self._transaction(write=True) as opened:
            # Inside the transaction: another process may have recorded the same release.
            fresh = _without_repetitions(opened, batch, protector)
            _check_cap(opened, self._binding_cap(opened), Counter(item for item, _ in fresh))
            events = [(item, protector, epsilon, tag) for item, tag in fresh]
            insert_events(opened, salt, _last_row(opened)[0] + 1, events)

    @property
    def cap(self) -> int | None:
        """The smaller of this object's cap and the stored one."""
        with self._transaction() as opened:
            return self._binding_cap(opened)

    @property
    def total(self) -> int:
        """Number of releases of all items."""
        with self._transaction() as opened:
            return _last_row(opened)[0]

    def count(self, item: str | int | bytes) -> int:
        """Return the number of releases of an item."""
        key = _hashed_item(self._salt, item, "Ledger.count", 0)
        with self._transaction() as opened:
            return _count(opened, key)

    def spent(self, item: str | int | bytes, *, protector: str | None = None) -> float:
        """Return the ε that an item has spent, in total or by one protector: the sum over its releases.

        A sum over protectors is a loss only if they share the metric. Infinite if a release has no formal guarantee.
        """
        query = "SELECT epsilon FROM events WHERE item = ? AND ifnull(?, protector) = protector"
        key = _hashed_item(self._salt, item, "Ledger.spent", 0)
        with self._transaction() as opened:
            spent = [epsilon for (epsilon,) in opened.execute(query, (key, protector))]
        return math.inf if None in spent else math.fsum(spent)

    def summary(self) -> LedgerSummary:
        """Return the ledger's totals."""
        with self._transaction() as opened:
            histogram = dict(opened.execute(_HISTOGRAM))
            protectors = tuple(
                ProtectorReleases(name, items, releases, most, epsilon if formal else None)
                for name, items, releases, most, epsilon, formal in opened.execute(_PROTECTORS)
            )
            return LedgerSummary(
                items=sum(histogram.values()),
                releases=sum(count * items for count, items in histogram.items()),
                most_releases=max(histogram, default=0),
                cap=self._binding_cap(opened),
                histogram=histogram,
                protectors=protectors,
            )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write one line per release to a .csv or .jsonl file, atomically.

        The columns are the row's number, the item's hashed id, the protector's fingerprint, ε, the hashed tag of a
        repeatable release, and the row's checksum; None is an empty field.
        """
        target = expanded(path)
        if target.exists() and target.samefile(self._path):
            raise InvalidInputError("The export would overwrite the ledger: name another `path`.", param="path")
        suffix = target.suffix.lower()
        if suffix not in (".csv", ".jsonl"):
            raise InvalidInputError(f"{target.name}: `path` ends in .csv or .jsonl, not in {suffix!r}.", param="path")
        query = "SELECT row, item, protector, epsilon, release, checksum FROM events ORDER BY row"
        with (
            self._transaction() as opened,
            atomic_path(target) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            events = (
                [value.hex() if isinstance(value, bytes) else value for value in event]
                for event in opened.execute(query)
            )
            if suffix == ".csv":
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(_COLUMNS)
                writer.writerows(events)
            else:
                for event in events:
                    record = dict(zip(_COLUMNS, event, strict=True))
                    file.write(json.dumps(record, allow_nan=False) + "\n")

    def verify(self) -> None:
        """Check the file and the checksum of every row; raise `LedgerError` with the first bad row's number.

        The checksums detect changed, inserted and removed rows, but not rows cut off at the end.
        """
        with self._transaction() as opened:
            for noun, query, checksum in (("cap", _CAPS, cap_checksum), ("row", _EVENTS, event_checksum)):
                rows = _checked_rows(opened.execute(query), self._salt, checksum)
                for expected, (row, fits, _) in enumerate(rows, start=1):
                    if not fits or row != expected:
                        raise self._damaged(
                            f"breaks at {noun} {expected}: a row was changed, inserted or removed there"
                        )
            if opened.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                raise self._damaged("has damaged pages or indexes")

    @classmethod
    def repair(cls, path: str | os.PathLike[str], target: str | os.PathLike[str]) -> LedgerRepair:
        """Write a new ledger at ``target`` from the rows of ``path`` that verify, and return what is lost.

        Items keep their hashes. Releases in lost rows no longer count: their items may be released again.

        Raises:
            LedgerError: no row verifies, or the file is damaged where it describes its tables.
        """
        source, new = (Path(os.path.realpath(expanded(each))) for each in (path, target))
        if new.exists():
            raise InvalidInputError(f"{new.name!r} exists already: `target` is a new file.", param="target")
        with transaction(source) as opened:
            salts = [salt for (salt,) in opened.execute("SELECT salt FROM ledger")]
            salt = salts[0] if len(salts) == 1 and isinstance(salts[0], bytes) else b""
            rows, unread = _readable_rows(opened, _EVENTS)
            cap_rows, caps_unread = _readable_rows(opened, _CAPS)
        checked = [(fits, values) for _, fits, values in _checked_rows(rows, salt, event_checksum)]
        events = [(*values,) for fits, values in checked if fits]
        caps = [(fits, values[0]) for _, fits, values in _checked_rows(cap_rows, salt, cap_checksum)]
        # A damaged salt would hash each id to an item that the ledger does not know.
        if len(salt) != SALT_BYTES or (checked and not events):
            raise LedgerError(f"No row of the ledger {source.name!r} verifies. Restore it from a copy.", param="path")
        cap = max((cap for fits, cap in caps if fits), default=None)
        create_file(new, cap=cap, salt=salt, events=events)
        lost = len(checked) - len(events) + unread
        return LedgerRepair(len(events), lost, cap, cap_lost=caps_unread > 0 or not all(fits for fits, _ in caps))

    def _damaged(self, what: str) -> LedgerError:
        return LedgerError(
            f"The ledger {self._path.name!r} {what}. Restore it from a copy, or keep the rows that verify: vecveil "
            "ledger "
            "repair (Ledger.repair).",
            param="path",
        )

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection to the file that this object has used so far; raise for another."""
        if self._closed:
            raise LedgerError("Ledger: it was closed. Open it again with Ledger(path).")
        with transaction(self._path, write=write) as opened:
            salts = [salt for (salt,) in opened.execute("SELECT salt FROM ledger")]
            query = "SELECT row, checksum FROM events WHERE row = ?"
            # The salt identifies the ledger, the last row its age: a replaced or restored file would forget releases.
            same = len(salts) == 1 and isinstance(salts[0], bytes) and self._salt in (b"", salts[0])
            if not same or (self._last[0] and opened.execute(query, self._last[:1]).fetchone() != self._last):
                raise LedgerError(
                    f"The ledger {self._path.name!r} was replaced by another or an older one: releases recorded since "
                    "would be forgotten, so nothing was recorded. Put the former file back, or open the new one with "
                    "Ledger(path).",
                    param="path",
                )
            self._salt, self._last = salts[0], _last_row(opened)
            yield opened

    def _binding_cap(self, opened: sqlite3.Connection) -> int | None:
        return min((c for c in (self._cap, _stored_cap(opened)) if c is not None), default=None)


def _hashed_item(salt: bytes, item: Any, owner: str, position: int) -> bytes:
    """Return the 32 bytes that replace an id; texts are compared without Unicode normalisation."""
    # The prefix keeps the three types apart: "7", b"7" and 7 are different items.
    if isinstance(item, str):
        return hmac.digest(salt, b"s" + item.encode("utf-8", "surrogatepass"), "sha256")
    if isinstance(item, bytes):
        return hmac.digest(salt, b"b" + item, "sha256")
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        number = int(item)
        # one spare bit for the sign
        content = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        return hmac.digest(salt, b"i" + content, "sha256")
    got = f"{type(item).__name__} at position {position}"
    raise InvalidInputError(f"`ids` takes str, int or bytes, not {got}.", param="ids")


def _hashed_tag(salt: bytes, tag: Any, owner: str, position: int) -> bytes | None:
    if tag is None:
        return None
    if not isinstance(tag, bytes):
        got = f"{type(tag).__name__} at position {position}"
        raise InvalidInputError(f"`releases` takes bytes, not {got}.", param="releases")
    return hmac.digest(salt, b"r" + tag, "sha256")


def _last_row(opened: sqlite3.Connection) -> tuple[int, bytes]:
    last = opened.execute("SELECT row, checksum FROM events ORDER BY row DESC LIMIT 1").fetchone()
    if last is None:
        return 0, b""
    if not isinstance(last[1], bytes):
        raise sqlite3.DatabaseError("damaged checksum")
    return last[0], last[1]


def _stored_cap(opened: sqlite3.Connection) -> int | None:
    """Return the cap that the file contains, or None; a damaged one raises."""
    row = opened.execute("SELECT cap FROM caps ORDER BY row DESC LIMIT 1").fetchone()
    if row is None:
        return None
    if not isinstance(row[0], int) or row[0] < 1:
        raise sqlite3.DatabaseError("damaged cap")
    return row[0]


def _count(opened: sqlite3.Connection, item: bytes) -> int:
    query = "SELECT count(*) FROM events WHERE item = ?"
    return int(opened.execute(query, (item,)).fetchone()[0])


def _append_cap(opened: sqlite3.Connection, salt: bytes, cap: int) -> None:
    """Store ``cap`` if it is larger than the stored one, which another process may have raised."""
    query = "SELECT row, cap FROM caps ORDER BY row DESC LIMIT 1"
    row, stored = opened.execute(query).fetchone() or (0, 0)
    if cap > stored:
        checksum = cap_checksum(salt, row + 1, cap)
        opened.execute("INSERT INTO caps VALUES (?, ?, ?)", (row + 1, cap, checksum))


def _without_repetitions(
    opened: sqlite3.Connection, batch: Iterable[tuple[bytes, bytes | None]], protector: str
) -> list[tuple[bytes, bytes | None]]:
    # A tag may repeat within one batch: `met` contains tags that the file does not have yet.
    query = "SELECT 1 FROM events WHERE item = ? AND protector = ? AND release = ?"
    fresh: list[tuple[bytes, bytes | None]] = []
    met: set[tuple[bytes, bytes]] = set()
    for item, tag in batch:
        if tag is not None:
            if (item, tag) in met or opened.execute(query, (item, protector, tag)).fetchone():
                continue
            met.add((item, tag))
        fresh.append((item, tag))
    return fresh


def _check_cap(opened: sqlite3.Connection, cap: int | None, more: Counter[bytes]) -> None:
    if cap is None:
        return
    # The whole batch counts at once: an id that occurs twice needs two free releases.
    beyond = sum(_count(opened, item) + number > cap for item, number in more.items())
    if beyond:
        raise LedgerCapError(
            f"Ledger.record: {beyond} of {len(more)} items in `ids` would have more than {cap} releases, the cap. "
            "Nothing was recorded. Omit these items (Ledger.count finds them), or raise the cap.",
            beyond,
        )


def _checked_rows(
    rows: Iterable[tuple[Any, ...]], salt: bytes, checksum: Callable[..., bytes]
) -> Iterator[tuple[Any, bool, list[Any]]]:
    """Yield the number of each row, whether it matches its checksum, and its values."""
    for row, stored, *values in rows:
        try:
            fits = stored == checksum(salt, row, *values)
        except (TypeError, AttributeError, struct.error):  # a damaged value of a different type
            fits = False
        yield row, fits, values


def _readable_rows(opened: sqlite3.Connection, query: str) -> tuple[list[tuple[Any, ...]], int]:
    """Return the rows that can be read, in order, and the number of unreadable rows between them."""
    rows: list[tuple[Any, ...]] = []
    behind: list[tuple[Any, ...]] = []
    try:
        rows.extend(opened.execute(query))
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        # SQLite stops at a damaged page; from the other end it reads the rows behind it.
        last = rows[-1][0] if rows else 0
        with contextlib.suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            behind.extend(row for row in opened.execute(f"{query} DESC") if row[0] > last)
    # Rows are numbered without gaps.
    everything = rows + behind[::-1]
    return everything, (everything[-1][0] if everything else 0) - len(everything)


# -- the SQLite file

SALT_BYTES = 32


def event_checksum(
    salt: bytes, row: int, item: bytes, protector: str, epsilon: float | None, release: bytes | None
) -> bytes:
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
    return hashlib.sha256(_first(salt) + struct.pack(">qq", row, cap)).digest()


def _first(salt: bytes) -> bytes:
    return hashlib.sha256(b"vecveil ledger 1" + salt).digest()


APPLICATION = 0x7663766C
"""SQLite's application id, which marks the file as a ledger of vecveil: "vcvl"."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0
"""Longest wait for other processes' transactions."""

_SCHEMA = """
CREATE TABLE ledger (salt BLOB NOT NULL CHECK (length(salt) = 32));
CREATE TABLE caps (row INTEGER PRIMARY KEY, cap INTEGER NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE events (
  row INTEGER PRIMARY KEY,
  item BLOB NOT NULL CHECK (length(item) = 32),
  protector TEXT NOT NULL,
  epsilon REAL,
  release BLOB CHECK (release IS NULL OR length(release) = 32),
  checksum BLOB NOT NULL CHECK (length(checksum) = 32)
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
    """Create a ledger at ``path``, readable by its owner alone, unless a file exists.

    A repaired ledger keeps its ``salt`` and its ``events`` (item, protector, ε, release), renumbered. The file is
    written beside the target and linked to it: of several processes one makes the ledger, and no reader sees half of
    it. An existing file stays: a ledger truncated to nothing must not start anew.
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
    # Earlier threads may each wait for another process: their waits must not add up.
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
        raise _refusal(path, "is a folder." if stat.S_ISDIR(mode) else "is not a regular file.")


def _check_schema(opened: sqlite3.Connection, path: Path) -> None:
    (application,) = opened.execute("PRAGMA application_id").fetchone()
    (version,) = opened.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise _refusal(
            path, "is not a ledger of vecveil, or was truncated to nothing. Pass the ledger, or restore it from a copy."
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
    sqlite3.SQLITE_BUSY: f"has been locked by other processes for {BUSY_SECONDS:.0f} s. Try again; if it stays locked, "
    "end the process that hangs.",
    sqlite3.SQLITE_READONLY: "is read-only. Change the permissions of file and folder, or use another ledger.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check the permissions of the file and of its folder.",
    sqlite3.SQLITE_FULL: "is on a full disk. Free some space.",
    sqlite3.SQLITE_IOERR: "gives an input/output error. Check that the disk has enough space, and a limit on the size "
    "of files.",
    sqlite3.SQLITE_NOTADB: "is not a ledger. Pass the path of a ledger.",
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
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _refusal(path, f"{_REASONS[sqlite3.SQLITE_FULL]} Nothing was recorded.") from error
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise _refusal(
            path,
            f"cannot be used ({reason}). A ledger needs a file system with hard links and locks. Nothing was recorded.",
        ) from error


def _refusal(path: Path, what: str) -> LedgerError:
    return LedgerError(f"The ledger {path.name!r} {what}", param="path")
