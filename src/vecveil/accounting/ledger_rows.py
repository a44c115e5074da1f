"""Reads and appends the rows of a ledger, inside a transaction that the caller holds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from vecveil.accounting.ledger_chain import cap_link, event_link, first_link
from vecveil.errors import LedgerCapError, message

__all__ = ["End", "append_cap", "append_events", "count_of", "end_of", "stored_cap"]


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
