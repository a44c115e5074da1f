"""What every store does with the errors of its database: one sentence, and nothing of what the database said."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vecveil.errors import InvalidInputError, StoreError, VecveilError, message

__all__ = ["check_cursor", "database_errors", "in_order", "no_place", "not_there", "only_one"]


@contextmanager
def database_errors(owner: str, doing: str, fix: str) -> Iterator[None]:
    """Turn what a database's client raises into a `StoreError`.

    The error's type is named, its text and its cause are dropped: clients repeat rows, vectors and passwords there.

    Args:
        owner: the store's class.
        doing: what was asked, such as ``reading rows``.
    """
    try:
        yield
    except VecveilError:
        raise
    except Exception as error:
        raise StoreError.of(
            owner, doing, "answered by the database", type(error).__name__, fix=fix
        ) from None


def only_one(names: Sequence[str], *, owner: str, what: str) -> str:
    """Return the only collection of a store that was named without one.

    Raises:
        StoreError: there is none, or more than one.
    """
    if len(names) != 1:
        listed = ", ".join(sorted(names)[:10]) or "none"
        raise StoreError.of(owner, "location", f"one with a {what} behind #", "none",
                            f"The store has: {listed}.", "Write KIND:WHERE#NAME.")  # fmt: skip
    return names[0]


def not_there(name: str, names: Sequence[str] = (), *, owner: str, what: str) -> StoreError:
    """Return the error for a collection or table of which there is none.

    Args:
        names: of those that are there, if they are known.
    """
    listed = ", ".join(sorted(names)[:10])
    return StoreError(
        message(owner, what, "in the database", f"{name[:80]!r}, which is not there",
                f"The store has: {listed}." if listed else "")
    )  # fmt: skip


def no_place(where: str, wanted: str, *, owner: str) -> StoreError:
    """Return the error for a path of this machine at which there is something else, or nothing."""
    got = "something else" if os.path.exists(where) else "nothing there"
    return StoreError(
        message(owner, "location", wanted, f"{os.path.basename(where.rstrip('/'))[:80]!r}: {got}")
    )


def check_cursor(after: str, *, owner: str) -> int:
    """Return a cursor that counts rows.

    Raises:
        InvalidInputError: not one.
    """
    if not after:
        return 0
    if not (isinstance(after, str) and after.isascii() and after.isdecimal()):
        raise InvalidInputError.of(owner, "after", "a cursor of this store", "something else")
    return int(after)


def in_order(asked: Sequence[str], found: Sequence[str], *, owner: str) -> list[int]:
    """Return where each of ``asked`` is in ``found``.

    Raises:
        StoreError: some are not there; says how many, not which.
    """
    place = {name: at for at, name in enumerate(found)}
    missing = sum(name not in place for name in asked)
    if missing:
        raise StoreError.of(
            owner, "ids", "those of rows in the store", f"{missing} that are not there"
        )
    return [place[name] for name in asked]
