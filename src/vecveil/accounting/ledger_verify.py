"""Walks a ledger's hash chains and names the first row that does not fit."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable

from vecveil.accounting.ledger_chain import cap_link, event_link, first_link
from vecveil.errors import LedgerError, message

__all__ = ["verify_chain"]


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
