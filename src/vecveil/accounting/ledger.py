"""A ledger of releases: how often each item was released, and a cap on it.

Noise averages out if one text is protected again and again, so the number of releases is part of
what is promised. A `Ledger` is an append-only file that counts them, in which ids stand as salted
hashes only. Several processes and threads may record at once; a crash leaves what was recorded.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import re
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from vecveil.accounting.ledger_file import (
    cap_link,
    create_file,
    event_link,
    first_link,
    hashed_item,
    hashed_release,
    transaction,
)
from vecveil.errors import InvalidInputError, LedgerCapError, LedgerError, message
from vecveil.io import atomic_path
from vecveil.validation import check_count, check_positive, check_same_length

__all__ = [
    "End",
    "Ledger",
    "LedgerSummary",
    "ProtectorReleases",
    "append_cap",
    "append_events",
    "count_of",
    "end_of",
    "stored_cap",
    "summarise",
    "verify_chain",
    "write_events",
]


@dataclass(frozen=True)
class ProtectorReleases:
    """The releases by one protector.

    Attributes:
        protector: its fingerprint.
        items: items that it released.
        releases: releases, repeatable ones counted once.
        most_releases: of one item.
        most_epsilon: the largest sum of ε over one item's releases (basic composition), per unit of
            the protector's own metric; None if a release came without a formal ε.
    """

    protector: str
    items: int
    releases: int
    most_releases: int
    most_epsilon: float | None

    def to_record(self) -> dict[str, Any]:
        """Return the row as JSON-ready values."""
        return dict(vars(self))


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger in numbers; it names no item.

    Attributes:
        items: items that were released at least once.
        releases: releases of all of them.
        most_releases: of one item.
        cap: releases that an item may have; None for no cap.
        histogram: number of releases → number of items with that many.
        protectors: one row for each protector, by fingerprint.
        head: the end of the hash chain; kept elsewhere, it shows later whether rows are missing.
    """

    items: int
    releases: int
    most_releases: int
    cap: int | None
    histogram: dict[int, int]
    protectors: tuple[ProtectorReleases, ...]
    head: str

    def to_record(self) -> dict[str, Any]:
        """Return the summary as JSON-ready values."""
        return {
            **vars(self),
            "histogram": {str(count): items for count, items in self.histogram.items()},
            "protectors": [row.to_record() for row in self.protectors],
        }


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


def summarise(opened: sqlite3.Connection, *, cap: int | None, head: str) -> LedgerSummary:
    """Return the summary of the ledger that ``opened`` is connected to."""
    histogram = dict(opened.execute(_HISTOGRAM))
    protectors = tuple(
        ProtectorReleases(name, items, releases, most, epsilon if formal else None)
        for name, items, releases, most, epsilon, formal in opened.execute(_PROTECTORS)
    )
    return LedgerSummary(
        items=sum(histogram.values()),
        releases=sum(count * items for count, items in histogram.items()),
        most_releases=max(histogram, default=0),
        cap=cap,
        histogram=histogram,
        protectors=protectors,
        head=head,
    )


class End(NamedTuple):
    """The last row's number and chain value."""

    row: int
    chain: bytes


def end_of(opened: sqlite3.Connection, salt: bytes) -> End:
    """Return the end of the chain of events."""
    last = opened.execute("SELECT row, chain FROM events ORDER BY row DESC LIMIT 1").fetchone()
    if last is None:
        return End(0, first_link(salt))
    if not isinstance(last[1], bytes):
        raise sqlite3.DatabaseError("damaged chain")
    return End(*last)


def stored_cap(opened: sqlite3.Connection) -> int | None:
    """Return the cap that the file holds, or None; a damaged one is an error, not None."""
    found = opened.execute("SELECT cap FROM caps ORDER BY row DESC LIMIT 1").fetchone()
    if found is None:
        return None
    if not isinstance(found[0], int) or found[0] < 1:
        raise sqlite3.DatabaseError("damaged cap")
    return found[0]


def count_of(opened: sqlite3.Connection, item: bytes) -> int:
    """Return the number of releases of one hashed item."""
    query = "SELECT count(*) FROM events WHERE item = ?"
    return int(opened.execute(query, (item,)).fetchone()[0])


def append_cap(opened: sqlite3.Connection, salt: bytes, cap: int) -> None:
    """Store ``cap`` if it is larger than the stored one."""
    query = "SELECT row, cap, chain FROM caps ORDER BY row DESC LIMIT 1"
    row, stored, chain = opened.execute(query).fetchone() or (0, 0, first_link(salt))
    if cap > stored:
        link = cap_link(chain, row + 1, cap)
        opened.execute("INSERT INTO caps VALUES (?, ?, ?)", (row + 1, cap, link))


def append_events(
    opened: sqlite3.Connection,
    salt: bytes,
    batch: list[tuple[bytes, bytes | None]],
    *,
    protector: str,
    epsilon: float | None,
    cap: int | None,
) -> None:
    """Append one row for each (hashed item, hashed tag or None) of ``batch`` that is no repetition.

    Raises:
        LedgerCapError: items would have more than ``cap`` releases.
    """
    fresh = _without_repetitions(opened, batch, protector)
    _check_cap(opened, cap, Counter(item for item, _ in fresh))
    row, chain = end_of(opened, salt)
    rows = []
    for item, tag in fresh:
        row += 1
        chain = event_link(chain, row, item, protector, epsilon, tag)
        rows.append((row, item, protector, epsilon, tag, chain))
    opened.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)


def _without_repetitions(
    opened: sqlite3.Connection, batch: Iterable[tuple[bytes, bytes | None]], protector: str
) -> list[tuple[bytes, bytes | None]]:
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
    beyond = sum(count_of(opened, item) + number > cap for item, number in more.items())
    if beyond:
        raise LedgerCapError(
            message("Ledger.record", "ids", f"items with at most {cap} releases each",
                    f"{beyond} of {len(more)} items that would have more", "Nothing was recorded.",
                    "Leave these items out (Ledger.count tells which), or raise the cap."),
            beyond,
        )  # fmt: skip


def verify_chain(opened: sqlite3.Connection, name: str, salt: bytes, head: str | None) -> None:
    """Check that the file is intact and that every row follows from the one before it.

    Args:
        opened: a connection to the ledger, inside a transaction.
        name: name of the file, for messages.
        salt: the ledger's salt.
        head: a former end of the chain that must be in it, in hexadecimal; or None.
    """
    _check_links(
        opened, "SELECT row, chain, cap FROM caps ORDER BY row", "cap", name, salt, cap_link
    )
    events = "SELECT row, chain, item, protector, epsilon, release FROM events ORDER BY row"
    _check_links(opened, events, "row", name, salt, event_link)
    problems = opened.execute("PRAGMA integrity_check(1)").fetchone()
    if problems != ("ok",):
        raise _broken(name, "an intact ledger", "one whose pages or indexes are damaged")
    if head is not None and not _holds(opened, salt, head):
        raise _broken(name, "a ledger that holds the given head", "one without it",
                      "Rows at its end were removed, or the file was written anew.")  # fmt: skip


def _check_links(
    opened: sqlite3.Connection,
    query: str,
    noun: str,
    name: str,
    salt: bytes,
    link: Callable[..., bytes],
) -> None:
    before, expected = first_link(salt), 1
    for row, chain, *values in opened.execute(query):
        try:
            fits = row == expected and link(before, row, *values) == chain
        except (TypeError, AttributeError, struct.error):  # a value of another type
            fits = False
        if not fits:
            raise _broken(name, "a ledger whose hash chain holds",
                          f"one that breaks at {noun} {expected}",
                          "A row was changed, inserted or removed there.")  # fmt: skip
        before, expected = chain, expected + 1


def _holds(opened: sqlite3.Connection, salt: bytes, head: str) -> bool:
    if head == first_link(salt).hex():
        return True
    try:
        wanted = bytes.fromhex(head)
    except ValueError:
        return False
    return opened.execute("SELECT 1 FROM events WHERE chain = ?", (wanted,)).fetchone() is not None


def _broken(name: str, constraint: str, got: str, why: str = "") -> LedgerError:
    return LedgerError(
        message("Ledger.verify", "path", constraint, f"{got} ({name!r})", why,
                "Restore the ledger from a copy.")
    )  # fmt: skip


_COLUMNS = ("row", "item", "protector", "epsilon", "release", "chain")


def write_events(opened: sqlite3.Connection, target: Path) -> None:
    """Write one line per release to ``target``, a .csv or .jsonl file.

    The columns are the row's number, the item's hashed id, the protector's fingerprint, ε, the
    hashed tag of a repeatable release, and the value of the hash chain; None is an empty field.
    """
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise InvalidInputError.of(
            "Ledger.export", "path", "a file that ends in .csv or .jsonl", f"the ending {suffix!r}"
        )
    with (
        atomic_path(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        if suffix == ".csv":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_COLUMNS)
            writer.writerows(_events(opened))
        else:
            for event in _events(opened):
                record = dict(zip(_COLUMNS, event, strict=True))
                file.write(json.dumps(record, allow_nan=False) + "\n")


def _events(opened: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for event in opened.execute(f"SELECT {', '.join(_COLUMNS)} FROM events ORDER BY row"):
        yield tuple(value.hex() if isinstance(value, bytes) else value for value in event)


LARGEST_CAP = 10**9
_FINGERPRINT = re.compile(r"[\w.:+/=@-]{1,200}", re.ASCII)


class Ledger:
    """Counts releases per item in an append-only file and refuses what would exceed a cap.

    Ids are str, int or bytes, and ``"7"``, ``7`` and ``b"7"`` are three items. Whoever has the file
    can test guesses of ids (its salt is in it); it does not list them. The chain shows accidents and
    careless changes; against somebody who rewrites the whole file keep `head` elsewhere.

    No connection outlives a call, so a ledger may be used after a fork, by threads, and sent to
    other processes. Do not open the file by other means in a process that records.

    Args:
        path: the file; made, readable by its owner alone, if there is none.
        cap: releases that an item may have. It is stored in a ledger that is made with it; for one
            that exists, a smaller cap binds this object alone and a larger one is refused.
        raise_cap: store a larger cap. Every further release of an item weakens its protection.
        create: False refuses a file that does not exist.

    Raises:
        LedgerError: the file is no ledger, of another version, damaged, locked or read-only, or
            ``cap`` is larger than the stored one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cap: int | None = None,
        raise_cap: bool = False,
        create: bool = True,
    ) -> None:
        self._path = Path(os.path.realpath(path))
        self._cap = None
        if cap is not None:
            self._cap = check_count(cap, owner="Ledger", param="cap", maximum=LARGEST_CAP)
        self._closed = False
        self._salt: bytes | None = None
        self._seen: End | None = None
        if create:
            create_file(self._path, cap=self._cap)
        with self._transaction() as opened:
            stored = stored_cap(opened)
        if self._cap is not None and stored is not None and self._cap > stored:
            if not raise_cap:
                raise LedgerError.of("Ledger", "cap", f"at most the stored cap of {stored}", self._cap,
                                     "Every further release of an item weakens its protection.",
                                     "Store the larger cap with raise_cap=True (--raise-cap).")  # fmt: skip
            with self._transaction(write=True) as opened:
                append_cap(opened, self._known_salt(), self._cap)

    def __repr__(self) -> str:
        return f"Ledger({self._path.name!r}, cap={self._cap})"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse any further use of this object; the file needs no closing."""
        self._closed = True

    # Recording -----------------------------------------------------------------------------------

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
            ids: one id for each release; an id that stands there twice is released twice.
            protector: fingerprint of the protector.
            epsilon: ε of one release, per unit of the protector's own metric; None if it has no
                formal guarantee.
            releases: one tag for each id that tells *repeatable* (keyed) releases apart: the same
                item, protector and tag again is the same output and costs nothing. None for fresh
                noise, which always costs.

        Raises:
            LedgerCapError: items would exceed the cap; nothing was recorded.
            LedgerError: the ledger cannot be used; nothing was recorded.
        """
        owner = "Ledger.record"
        if isinstance(ids, str | bytes) or not hasattr(ids, "__iter__"):
            raise InvalidInputError.of(owner, "ids", "a sequence of ids", type(ids).__name__,
                                       fix="Pass a list, even for a single id.")  # fmt: skip
        if not isinstance(protector, str) or not _FINGERPRINT.fullmatch(protector):
            raise InvalidInputError.of(owner, "protector",
                                       "a fingerprint of 1 to 200 letters, digits and .:+/=@_-",
                                       "something else", fix="Pass the protector's fingerprint.")  # fmt: skip
        if epsilon is not None:
            epsilon = check_positive(epsilon, owner=owner, param="epsilon", allow_zero=True)
        items = [self._hashed(item, owner, i) for i, item in enumerate(ids)]
        tags: list[bytes | None] = [None] * len(items)
        if releases is not None:
            given = list(releases)
            check_same_length(owner, releases=given, ids=items)
            tags = [
                hashed_release(self._known_salt(), tag, owner=owner, position=i)
                for i, tag in enumerate(given)
            ]
        with self._transaction(write=True) as opened:
            append_events(
                opened,
                self._known_salt(),
                list(zip(items, tags, strict=True)),
                protector=protector,
                epsilon=epsilon,
                cap=self._binding_cap(opened),
            )

    # Reading -------------------------------------------------------------------------------------

    @property
    def cap(self) -> int | None:
        """The cap that binds this object: its own or the stored one, whichever is smaller."""
        with self._transaction() as opened:
            return self._binding_cap(opened)

    @property
    def total(self) -> int:
        """Releases of all items."""
        with self._transaction() as opened:
            return end_of(opened, self._known_salt()).row

    @property
    def head(self) -> str:
        """The end of the hash chain, in hexadecimal."""
        with self._transaction() as opened:
            return end_of(opened, self._known_salt()).chain.hex()

    def hashed_id(self, item: str | int | bytes) -> str:
        """Return what stands for an id in this ledger's file, counts and exports."""
        return self._hashed(item, "Ledger.hashed_id", 0).hex()

    def count(self, item: str | int | bytes) -> int:
        """Return the number of releases of an item."""
        key = self._hashed(item, "Ledger.count", 0)
        with self._transaction() as opened:
            return count_of(opened, key)

    def counts(self) -> dict[str, int]:
        """Return the number of releases by `hashed_id`."""
        with self._transaction() as opened:
            rows = opened.execute("SELECT item, count(*) FROM events GROUP BY item").fetchall()
        return {item.hex(): number for item, number in rows}

    def spent(self, item: str | int | bytes, *, protector: str | None = None) -> float:
        """Return the ε that an item has spent: the sum over its releases (basic composition).

        Each ε counts per unit of its protector's own metric: a sum over protectors is a loss only
        if they share the metric. Infinite if one of the releases has no formal guarantee.

        Args:
            item: its id.
            protector: count the releases of this one alone.
        """
        key = self._hashed(item, "Ledger.spent", 0)
        query = "SELECT epsilon FROM events WHERE item = ? AND ifnull(?, protector) = protector"
        with self._transaction() as opened:
            spent = [epsilon for (epsilon,) in opened.execute(query, (key, protector))]
        return math.inf if None in spent else math.fsum(spent)

    def summary(self) -> LedgerSummary:
        """Return the ledger in numbers."""
        with self._transaction() as opened:
            head = end_of(opened, self._known_salt()).chain.hex()
            return summarise(opened, cap=self._binding_cap(opened), head=head)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write every release to a .csv or .jsonl file, whole or not at all, with hashed ids only."""
        target = Path(path)
        if target.exists() and target.samefile(self._path):
            raise InvalidInputError.of(
                "Ledger.export", "path", "another file than the ledger", "the ledger"
            )
        with self._transaction() as opened:
            write_events(opened, target)

    def verify(self, *, head: str | None = None) -> None:
        """Check the file and its hash chain.

        Args:
            head: a former `head` of this ledger that was kept elsewhere; rows that are missing at
                the end, and a ledger that was written anew, are found with it alone.

        Raises:
            LedgerError: the file is damaged, or a row was changed, inserted or removed; the message
                has the number of the first bad row.
        """
        with self._transaction() as opened:
            verify_chain(opened, self._path.name, self._known_salt(), head)

    # Inside --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection to the same ledger that this object has seen so far."""
        if self._closed:
            raise LedgerError("Ledger: it was closed. Open it anew with Ledger(path).")
        with transaction(self._path, write=write) as opened:
            salts = opened.execute("SELECT salt FROM ledger").fetchall()
            self._check_same(opened, [salt for (salt,) in salts])
            self._salt, self._seen = salts[0][0], end_of(opened, salts[0][0])
            yield opened

    def _check_same(self, opened: sqlite3.Connection, salts: list[bytes]) -> None:
        """Refuse a file that was exchanged for another ledger, or for an older copy of this one."""
        if len(salts) == 1 and isinstance(salts[0], bytes) and self._salt in (None, salts[0]):
            if self._seen is None or self._seen.row == 0:
                return
            row = opened.execute("SELECT chain FROM events WHERE row = ?", (self._seen.row,))
            if row.fetchone() == (self._seen.chain,):
                return
        raise LedgerError.of("Ledger", "path", "the ledger that it was so far",
                             f"another or an older one ({self._path.name!r})",
                             "Releases recorded since would be forgotten. Nothing was recorded.",
                             "Put the former file back, or open the new one with Ledger(path).")  # fmt: skip

    def _known_salt(self) -> bytes:
        if self._salt is None:
            raise LedgerError("Ledger: it was not opened.")
        return self._salt

    def _hashed(self, item: Any, owner: str, position: int) -> bytes:
        return hashed_item(self._known_salt(), item, owner=owner, position=position)

    def _binding_cap(self, opened: sqlite3.Connection) -> int | None:
        return min((c for c in (self._cap, stored_cap(opened)) if c is not None), default=None)
