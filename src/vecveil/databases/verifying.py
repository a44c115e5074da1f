"""Verify that a destination holds exactly the rows that a migration wrote, none of them clean."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.fields import leaves
from vecveil.databases.state import MigrationState
from vecveil.databases.store import Batch, VectorStore
from vecveil.errors import StoreError
from vecveil.runtime import progress
from vecveil.sealing import Sealer
from vecveil.sealing.blob import SEALED_FIELD, decoded

_DIRECTION = 1e-5  # tolerance per coordinate of unit vectors, for a store that normalises in float32
_SAME = 1e-6  # a few units of float32 rounding; the smallest useful noise is far larger
_TRACED = 1000  # rows to look for in the files; a database that keeps clean rows keeps all or many
_WINDOW = 4  # consecutive values of a vector: 16 bytes, which no other row has by chance
_LEAST, _MOST = 24, 64  # bytes of a text to look for
_BLOCK = 1 << 25


@dataclass(frozen=True)
class Verification:
    """Comparison of a destination with what was written to it.

    Attributes:
        rows, expected: number of rows in the destination, and of rows written.
        checksum: ids and values equal the written ones.
        bad: number of rows without a finite vector of the right dimension.
        clean: number of rows that equal the source's vector; None if the source could not be read.
        unopened: number of rows whose sealed blob does not open; None without a sealer.
        traces: number of the destination's files with bytes of a clean vector or withheld text, for a thousand rows;
            None without the source, on a server, and in files that hold other collections too.
        directions: the store normalises, so vectors were compared by direction when written.
    """

    rows: int
    expected: int
    checksum: bool
    bad: int
    clean: int | None
    directions: bool
    unopened: int | None = None
    traces: int | None = None

    @property
    def ok(self) -> bool:
        """True without failures."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """Failures, one sentence each."""
        sentences = (
            (self.rows != self.expected,
             f"The destination has {self.rows:,} rows where {self.expected:,} were written."),
            (not self.checksum, "Ids or vectors in the destination are not those that were written."),
            (self.bad, f"{self.bad:,} rows of the destination have no finite vector of the right dimension."),
            (self.clean, f"{self.clean or 0:,} rows of the destination hold their clean vector."),
            (self.unopened, f"{self.unopened or 0:,} rows of the destination have no sealed blob that opens."),
            (self.traces, f"{self.traces or 0:,} files of the destination hold bytes of clean vectors or texts."),
        )  # fmt: skip
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
    traces: list[bytes] = []
    step = max(1, state.rows // _TRACED)
    for part in progress(
        dest.batches(batch), "verify", total=total, show=show_progress, unit="batch"
    ):
        rows += len(part)
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
            chosen = [i for i in range(len(part)) if (rows - len(part) + i) % step == 0]
            traces += traces_of(originals.rows(chosen), part.vectors[chosen], set(state.withheld))
    same = as_hex(checksum) == state.checksum
    files = _files_of(dest) if traces and clean is not None else None
    holding_traces = None if files is None else len(files_with(files, traces))
    return Verification(rows, state.rows, same, bad, clean, dest.normalises, unopened, holding_traces)


def _files_of(dest: VectorStore) -> list[str] | None:
    try:
        return dest.files()
    except StoreError:
        return None


def traces_of(clean: Batch, stored: npt.NDArray[np.float32], withheld: Set[str]) -> list[bytes]:
    """Return bytes that a file with one of the ``clean`` rows may hold, and one with their ``stored`` vectors not.

    These are values of each vector as float32, of its unit vector, and as Python pickles them (Qdrant), and texts of
    the fields ``withheld``, plain and in JSON.
    """
    traces: list[bytes] = []
    units = _units(clean.vectors)
    moved = np.abs(_units(stored) - units) if stored.shape == units.shape else np.ones_like(units)
    for row, unit, by, fields, name in zip(clean.vectors, units, moved, clean.fields, clean.ids, strict=True):
        # A protector may leave some values as they are: take those that it changes most.
        start = max(0, min(int(by.argmax()), len(row) - _WINDOW))
        window, scaled = row[start : start + _WINDOW], unit[start : start + _WINDOW].astype("<f4")
        if len(set(window.tolist())) == _WINDOW:  # equal values occur by chance
            pickled = b"".join(b"G" + struct.pack(">d", float(value)) for value in window)
            traces += [window.astype("<f4").tobytes(), scaled.tobytes(), pickled[2:]]
        readable = [name, *(text for key, text in leaves(fields) if key not in withheld and isinstance(text, str))]
        for key, text in leaves(fields):
            if key in withheld and isinstance(text, str) and not any(text in other for other in readable):
                forms = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
                encoded = {form.encode("utf-8", "surrogatepass") for form in forms}
                # From the middle: texts often begin with a title, which another field may hold.
                traces += [form[len(form) // 2 :][:_MOST] for form in encoded if len(form) >= 2 * _LEAST]
    return traces


def files_with(paths: Iterable[str], traces: Iterable[bytes]) -> list[Path]:
    """Return the files, also those in folders, that hold one of ``traces`` (at most 64 bytes each) at any offset."""
    starts: dict[bytes, list[bytes]] = defaultdict(list)
    for trace in traces:
        starts[trace[:4]].append(trace)
    known = np.zeros(1 << 24, dtype=bool)
    known[np.frombuffer(b"".join(starts), "<u4") & 0xFFFFFF] = True
    return [path for path in _all_files(paths) if _holds(path, known, starts)]


def _all_files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from (inner for inner in sorted(path.rglob("*")) if inner.is_file())
        if path.is_file():
            yield path


def _holds(path: Path, known: npt.NDArray[np.bool_], starts: dict[bytes, list[bytes]]) -> bool:
    raw = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            raw = raw[1 - _MOST :] + block
            for shift in range(min(4, len(raw) - 3)):
                words = np.frombuffer(raw, "<u4", (len(raw) - shift) // 4, shift)
                for at in 4 * np.flatnonzero(known[words & 0xFFFFFF]) + shift:
                    if any(raw.startswith(trace, at) for trace in starts.get(raw[at : at + 4], ())):
                        return True
    return False


def is_clean(
    released: npt.NDArray[np.float32], clean: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows with equal directions."""
    # Lengths do not count: encoders' vectors have norm 1, so a scaled clean vector is a clean vector.
    return _near(released, clean, _SAME)


def same_directions(
    written: npt.NDArray[np.float32], stored: npt.NDArray[np.float32]
) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of the rows whose direction the store kept."""
    return _near(written, stored, _DIRECTION)


def _near(
    A: npt.NDArray[np.float32], B: npt.NDArray[np.float32], tolerance: float
) -> npt.NDArray[np.bool_]:
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

    The hash covers the id with its length, and the values as little-endian float32 with −0 as 0. Only released vectors
    may enter: with sums of clean rows an attacker could test guesses of them.
    """
    # A sum, because stores return rows in another order than they were written.
    values = np.ascontiguousarray(vectors + np.float32(0), dtype="<f4")
    for name, row in zip(ids, values, strict=True):
        encoded = name.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(len(encoded).to_bytes(8, "little") + encoded + row.tobytes())
        checksum += int.from_bytes(digest.digest(), "little")
    return checksum % (1 << 256)


def as_hex(checksum: int) -> str:
    """Return the checksum as 64 hexadecimal digits."""
    return f"{checksum:064x}"
