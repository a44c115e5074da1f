"""Verify that a destination holds exactly the rows that a migration wrote, none of them clean."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import StoreError
from vecveil.runtime import progress
from vecveil.sealing import Sealer
from vecveil.sealing.blob import SEALED_FIELD, canonical_ids, decoded
from vecveil.stores.state import MigrationState
from vecveil.stores.store import VectorStore

_DIRECTION = 1e-5  # tolerance per coordinate of unit vectors, for a store that normalises in float32
_SAME = 1e-6  # a few units of float32 rounding; the smallest useful noise is far larger


@dataclass(frozen=True)
class Verification:
    """Comparison of a destination with what was written to it.

    Attributes:
        rows, expected: number of rows in the destination, and of rows written.
        checksum: ids and values equal the written ones.
        bad: number of rows without a finite vector of the right dimension.
        clean: number of rows that equal the source's vector; None if the source could not be read.
        unopened: number of rows whose sealed blob does not open; None without a sealer.
        missing: number of rows of the source that were neither copied nor skipped; None without it.
        directions: the store normalises, so vectors were compared by direction when written.
    """

    rows: int
    expected: int
    checksum: bool
    bad: int
    clean: int | None
    directions: bool
    unopened: int | None = None
    missing: int | None = None

    @property
    def ok(self) -> bool:
        """True without failures."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """Failures, one sentence each."""
        sentences = (
            (
                self.rows != self.expected,
                f"The destination has {self.rows:,} rows where {self.expected:,} were written.",
            ),
            (not self.checksum, "Ids or vectors in the destination are not those that were written."),
            (self.bad, f"{self.bad:,} rows of the destination have no finite vector of the right dimension."),
            (self.clean, f"{self.clean or 0:,} rows of the destination hold their clean vector."),
            (self.unopened, f"{self.unopened or 0:,} rows of the destination have no sealed blob that opens."),
            (self.missing, f"{self.missing or 0:,} rows of the source were not copied: it has changed."),
        )
        return tuple(sentence for wrong, sentence in sentences if wrong)

    def to_record(self) -> dict[str, Any]:
        return {**vars(self), "ok": self.ok, "failures": list(self.failures)}


def verify(
    dest: VectorStore,
    state: MigrationState,
    source: VectorStore | None,
    *,
    batch: int = 1000,
    sealer: Sealer | None = None,
    show_progress: bool | None = None,
) -> Verification:
    """Compare all rows of ``dest`` with the checksum in ``state``, and by id with the clean ``source`` if given.

    Raises:
        StoreError: a store does not answer.
    """
    rows = checksum = bad = 0
    clean: int | None = None if source is None else 0
    unopened: int | None = None if sealer is None else 0
    total = -(-state.rows // batch)
    copied: set[int] = set()
    for part in progress(dest.every_row(batch), "verify", total=total, show=show_progress, unit="batch"):
        rows += len(part)
        copied.update(map(hash, _keys(part.ids)))
        if part.vectors.shape[1] != state.dimension:
            bad += len(part)
            continue
        bad += int((~np.isfinite(part.vectors).all(axis=1)).sum())
        checksum = add_rows(checksum, part.ids, part.vectors)
        if sealer is not None and unopened is not None:
            blobs = [decoded(row.get(SEALED_FIELD)) for row in part.fields]
            opened = sealer.unseal(blobs, ids=part.ids, collection=state.dest, on_invalid="skip")
            unopened += len(opened.skipped)
        if source is not None and clean is not None:
            try:
                originals = source.read(part.ids)
            except StoreError:
                clean = None  # the source lacks a row
                continue
            clean += int(is_clean(part.vectors, originals.vectors).sum())
    same, missing = as_hex(checksum) == state.checksum, None
    # The source's ids, asked for once more: the copy may not have read every row. Lost rows are told by the checksum.
    if source is not None and same:
        absent = sum(hash(key) not in copied for names in source.ids() for key in _keys(dest.spelled(names)))
        missing = max(absent - state.skipped, 0)
    return Verification(rows, state.rows, same, bad, clean, dest.normalises, unopened, missing)


def _keys(ids: Sequence[str]) -> list[bytes]:
    return canonical_ids(list(ids), len(ids), owner="verify")


def is_clean(released: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows with equal directions."""
    # Lengths do not count: encoders' vectors have norm 1, so a scaled clean vector is a clean vector.
    return _near(released, clean, _SAME)


def same_directions(written: npt.NDArray[np.float32], stored: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows whose direction the store kept."""
    return _near(written, stored, _DIRECTION)


def _near(A: npt.NDArray[np.float32], B: npt.NDArray[np.float32], tolerance: float) -> npt.NDArray[np.bool_]:
    if A.shape != B.shape:  # a reduced release has fewer dimensions than the clean vectors
        return np.zeros(len(A), dtype=bool)
    difference = np.abs(_units(A) - _units(B)).max(axis=1, initial=0.0)
    return np.asarray(difference <= tolerance, dtype=bool)


def _units(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(norms > 0, norms, 1.0)


def add_rows(checksum: int, ids: Sequence[str], vectors: npt.NDArray[np.float32]) -> int:
    """Return ``checksum`` plus the SHA-256 of each row, modulo 2²⁵⁶.

    The hash covers the id, in one spelling of a UUID and with its length, and the values as little-endian float32 with
    −0 as 0. Only released vectors may enter: with sums of clean rows an attacker could test guesses of them.
    """
    # A sum, because stores return rows in another order than they were written.
    values = np.ascontiguousarray(vectors + np.float32(0), dtype="<f4")
    for key, row in zip(_keys(ids), values, strict=True):
        digest = hashlib.sha256(key + row.tobytes())
        checksum += int.from_bytes(digest.digest(), "little")
    return checksum % (1 << 256)


def as_hex(checksum: int) -> str:
    """Return the checksum as 64 hexadecimal digits."""
    return f"{checksum:064x}"
