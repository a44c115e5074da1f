"""Whether a destination holds what a migration wrote, and nothing of it is clean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.checksum import add_rows, as_hex
from vecveil.databases.state import MigrationState
from vecveil.databases.store import Batch, VectorStore
from vecveil.errors import StoreError
from vecveil.runtime import progress

__all__ = ["Verification", "as_clean", "same_directions", "verify"]

DIRECTION = 1e-5
"""How far values of unit vectors may be apart where a store keeps directions only."""
_SAME = 1e-6


@dataclass(frozen=True)
class Verification:
    """What was read back from a destination.

    Attributes:
        rows, expected: that are there, and that were written.
        checksum: whether ids and values are those that were written.
        bad: rows without a finite vector of the right dimension.
        clean: rows whose vector is that of the source; None if the source could not be asked.
        directions: whether the store keeps directions only, so that written and kept vectors were compared by
            direction when they were written.
    """

    rows: int
    expected: int
    checksum: bool
    bad: int
    clean: int | None
    directions: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, a sentence each."""
        found = []
        if self.rows != self.expected:
            found.append(
                f"The destination has {self.rows:,} rows where {self.expected:,} were written."
            )
        if not self.checksum:
            found.append("Ids or vectors in the destination are not those that were written.")
        if self.bad:
            found.append(
                f"{self.bad:,} rows of the destination have no finite vector of the right dimension."
            )
        if self.clean:
            found.append(f"{self.clean:,} rows of the destination hold their clean vector.")
        return tuple(found)

    def to_record(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {**vars(self), "ok": self.ok, "failures": list(self.failures)}


def verify(
    dest: VectorStore,
    state: MigrationState,
    source: VectorStore | None,
    *,
    batch: int = 1000,
    show_progress: bool | None = None,
) -> Verification:
    """Return whether ``dest`` holds what ``state`` says was written; all of it is read.

    Args:
        source: for a comparison with the clean vectors, by id; None leaves that out.

    Raises:
        StoreError: a store went away.
    """
    rows = checksum = bad = 0
    clean: int | None = None if source is None else 0
    total = -(-state.rows // batch)
    for part in progress(
        dest.batches(batch), "verify", total=total, show=show_progress, unit="batch"
    ):
        rows += len(part)
        if part.vectors.shape[1] != state.dimension:
            bad += len(part)
            continue
        bad += int((~np.isfinite(part.vectors).all(axis=1)).sum())
        checksum = add_rows(checksum, part.ids, part.vectors)
        if source is not None and clean is not None:
            found = _clean_rows(part, source)
            clean = None if found is None else clean + found
    same = as_hex(checksum) == state.checksum
    return Verification(rows, state.rows, same, bad, clean, dest.normalises)


def _clean_rows(part: Batch, source: VectorStore) -> int | None:
    """Return how many rows are their clean vector; None if the source lacks one of them, as a changed one does."""
    try:
        clean = source.read(part.ids).vectors
    except StoreError:
        return None
    return int(as_clean(part.vectors, clean).sum())


def as_clean(
    released: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    """Return for each row whether the two are one vector, or differ in length only."""
    if released.shape != clean.shape:
        return np.zeros(len(released), dtype=bool)
    apart = np.abs(_units(released) - _units(clean)).max(axis=1, initial=0.0)
    return np.asarray(apart <= _SAME, dtype=bool)


def same_directions(
    written: npt.NDArray[np.float32], kept: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    """Return for each row whether what a store kept has the direction of what was written."""
    if written.shape != kept.shape:
        return np.zeros(len(written), dtype=bool)
    apart = np.abs(_units(written) - _units(kept)).max(axis=1, initial=0.0)
    return np.asarray(apart <= DIRECTION, dtype=bool)


def _units(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms > 0, norms, 1.0)
