"""What a vector database is to vecveil: batches of rows to read and to write, by id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError

__all__ = ["Batch", "StoreInfo", "VectorStore"]


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
