"""`VectorStore`: the interface of a vector database, and what all implementations share."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, StoreError, VecveilError, message

__all__ = [
    "Batch", "StoreInfo", "VectorStore", "as_json", "check_cursor", "database_errors", "in_order", "no_place",
    "not_there", "only_one", "plain",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows of a store.

    Attributes:
        ids: one for each row, as text; numbers in decimal digits.
        vectors: (N, n) float32.
        fields: what lies beside each vector, by the store's own names: metadata, payload, text.
        cursor: where to go on behind this batch; opaque, kept in a file between runs.
    """

    ids: tuple[str, ...]
    vectors: npt.NDArray[np.float32]
    fields: tuple[Mapping[str, Any], ...]
    cursor: str = ""

    def __post_init__(self) -> None:
        rows = len(self.ids)
        if self.vectors.ndim != 2 or len(self.vectors) != rows or len(self.fields) != rows:
            shapes = f"{rows} ids, {len(self.fields)} fields, shape {self.vectors.shape}"
            raise InvalidInputError.of("Batch", "vectors", "one row for each id", shapes)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Return the rows of batches that follow each other as one."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            tuple(one for batch in batches for one in batch.ids),
            np.concatenate([batch.vectors for batch in batches]),
            tuple(row for batch in batches for row in batch.fields),
            batches[-1].cursor,
        )


@dataclass(frozen=True)
class StoreInfo:
    """What a store says about itself.

    Attributes:
        kind: such as ``chroma``.
        name: of the collection, table or file; never a password.
        count: rows.
        dimension: of the vectors; 0 if there are none.
        metric: ``cosine``, ``dot``, ``euclidean``, or None if the store does not say.
    """

    kind: str
    name: str
    count: int
    dimension: int
    metric: str | None = None


class VectorStore(ABC):
    """One collection of a vector database. Close it, or use it in a ``with`` block.

    Rows are read in an order that stays the same while nobody writes, and written by id: writing a row again
    replaces it. So a copy that was interrupted goes on at the last cursor and holds every row once.

    Every error of the database becomes a `StoreError` that names the store, what failed and what to do, and holds
    no text, vector or password.
    """

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store at ``where`` (a path or URL); nothing is created before `create`."""

    @abstractmethod
    def info(self) -> StoreInfo:
        """Return what the store says about itself; raises `StoreError` if it is not there."""

    @property
    def normalises(self) -> bool:
        """Whether vectors that are read agree with those that were written in direction only, and up to rounding.

        Some databases keep unit vectors for cosines. All others return float32 bit for bit.
        """
        return False

    def apart(self) -> VectorStore:
        """Return the store in a process of its own where the database writes memory that it has not set, else itself.

        Nothing of what this process knows, such as clean rows, gets into the database's files then. Another store than
        this one is closed by whoever asked for it.
        """
        return self

    def name_function(self, function: Any) -> None:  # noqa: B027 - most stores have no such thing
        """Let the collection name ``function`` for texts that are added to it later, where the database has that."""

    def rows_at_once(self, batch: int, total: int) -> int:
        """Return how many rows of a copy of ``total`` rows `write` should be handed, at least ``batch``."""
        return batch

    @abstractmethod
    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows in batches of at most ``size``, behind the cursor ``after``, in bounded memory."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the collection is there."""

    @abstractmethod
    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make an empty collection; refuse one that exists with another dimension."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write the rows, replacing those with the same ids; when it returns they are there."""

    @abstractmethod
    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids`` in that order; raises `StoreError` if one is missing."""

    def close(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Let go of connections and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


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


def as_json(fields: Mapping[str, Any], *, owner: str) -> str:
    """Return the fields on one line of JSON, those that are None left out.

    Raises:
        StoreError: a value of a type that JSON has not; its type alone is told.
    """
    return json.dumps(plain(fields, owner=owner), ensure_ascii=False)


def plain(fields: Mapping[str, Any], *, owner: str) -> dict[str, Any]:
    """Return the fields with values that JSON has, those that are None left out; raises as `as_json` does."""
    return {str(k): _plain(value, owner) for k, value in fields.items() if value is not None}


def _plain(value: Any, owner: str) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, owner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, owner) for inner in value]
    raise StoreError.of(owner, "fields", "numbers, texts, times, lists or objects", type(value).__name__,
                        fix="Leave the field out.")  # fmt: skip
