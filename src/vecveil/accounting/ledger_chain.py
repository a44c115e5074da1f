"""What a ledger keeps in place of ids, and the hash chain that shows whether rows were altered.

An id is stored as HMAC-SHA256 under the ledger's random salt. Whoever has the ledger file has the
salt and can test guesses of ids; whoever has an export cannot. Every row carries the SHA-256 over
the row before it and itself, so a changed, missing or inserted row breaks the chain from there on.
Only the end can be cut off unseen, and a forger who writes all rows anew; the head of the chain,
kept elsewhere, shows that too.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError

__all__ = [
    "SALT_BYTES",
    "cap_link",
    "event_link",
    "first_link",
    "hashed_item",
    "hashed_release",
]

SALT_BYTES = 32


def hashed_item(salt: bytes, item: Any, *, owner: str, position: int) -> bytes:
    """Return the 32 bytes that stand for an id: a str, bytes or int, each type apart.

    ``"7"``, ``b"7"`` and ``7`` are three ids. NumPy's integers and strings count as int and str. Text
    is taken as it is: two Unicode spellings of one word are two ids.
    """
    if isinstance(item, str):
        return hmac.digest(salt, b"s" + item.encode("utf-8", "surrogatepass"), "sha256")
    if isinstance(item, bytes):
        return hmac.digest(salt, b"b" + item, "sha256")
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        number = int(item)
        content = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        return hmac.digest(salt, b"i" + content, "sha256")
    raise InvalidInputError.of(owner, "ids", "a sequence of str, int or bytes",
                               f"{type(item).__name__} at position {position}",
                               fix="Convert the ids, always in the same way.")  # fmt: skip


def hashed_release(salt: bytes, release: Any, *, owner: str, position: int) -> bytes:
    """Return the 32 bytes that stand for a release's tag."""
    if not isinstance(release, bytes):
        raise InvalidInputError.of(owner, "releases", "a sequence of bytes",
                                   f"{type(release).__name__} at position {position}")  # fmt: skip
    return hmac.digest(salt, b"r" + release, "sha256")


def first_link(salt: bytes) -> bytes:
    """Return what the chains of a ledger begin with."""
    return hashlib.sha256(b"vecveil ledger 1" + salt).digest()


def event_link(
    before: bytes,
    row: int,
    item: bytes,
    protector: str,
    epsilon: float | None,
    release: bytes | None,
) -> bytes:
    """Return the chain value of one event, from that of the event before it."""
    name = protector.encode("utf-8", "surrogatepass")
    parts: Iterable[bytes] = (
        before,
        struct.pack(">qI", row, len(name)),
        name,
        item,
        b"\0" if epsilon is None else b"\1" + struct.pack(">d", epsilon),
        b"\0" if release is None else b"\1" + release,
    )
    return hashlib.sha256(b"".join(parts)).digest()


def cap_link(before: bytes, row: int, cap: int) -> bytes:
    """Return the chain value of one cap, from that of the cap before it."""
    return hashlib.sha256(before + struct.pack(">qq", row, cap)).digest()
