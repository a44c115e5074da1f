"""The rows of a sealed index in memory: segments that are loaded, and which version of each id is current.

A version of a row is ordered by (Lamport number, writer); no clock takes part. Of the versions of one id the largest is
current; if it is a deletion, the id has no row. Once a row is not current, it never becomes current again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vecveil.encoders.text_encoder import TextEncoder
from vecveil.sealing.segments import LIVE, Segment, vectors_of
from vecveil.search.scan import VectorScan

_MANY = 65_536  # new rows from which all segments are compared by one sort, not pair by pair
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LoadedSegment:
    """A loaded segment.

    Attributes:
        ids: Arrow array of strings (N,).
        lamport, writers, deleted: columns of the segment (N,); ``writers`` are positions in ``names``.
        hashes: hashes of the ids, sorted (N,), with the row of each in ``order``.
    """

    segment: Segment
    scan: VectorScan
    ids: Any
    lamport: npt.NDArray[np.int64]
    writers: npt.NDArray[np.uint16]
    names: list[bytes]
    deleted: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.int64]
    order: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def locate(self, ids: Any, hashes: Rows, order: npt.NDArray[np.int32] | None = None) -> tuple[Rows, Rows]:
        """Return positions in ``ids`` (an Arrow array) and the rows here that have them.

        Args:
            hashes: of the ids; sorted ones are looked up several times faster.
            order: position in ``ids`` of each hash; None if it is the same.
        """
        first = np.searchsorted(self.hashes, hashes, "left")
        beyond = np.searchsorted(self.hashes, hashes, "right")
        counts = beyond - first
        given = np.repeat(np.arange(len(hashes)), counts)  # more than one: ids whose hashes are equal
        steps = np.arange(len(given)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.order[np.repeat(first, counts) + steps].astype(np.int64)
        if order is not None:
            given = order[given].astype(np.int64)
        if len(rows):
            equal = pc.equal(ids.take(pa.array(given)), self.ids.take(pa.array(rows))).to_numpy(zero_copy_only=False)
            given, rows = given[equal], rows[equal]
        return given, rows

    def beaten_by(self, other: LoadedSegment) -> tuple[Rows, Rows]:
        """Return the rows here and the rows of ``other`` that lose to a version of the other."""
        if len(self) > len(other):
            theirs, mine = other.beaten_by(self)
            return mine, theirs
        given, rows = other.locate(self.ids, self.hashes, self.order)
        a, b = self.lamport[given], other.lamport[rows]
        older = a < b
        for i in np.flatnonzero(a == b):
            older[i] = self.names[self.writers[given[i]]] < other.names[other.writers[rows[i]]]
        return given[older], rows[~older]


def hashes_of(ids: Any) -> npt.NDArray[np.int64]:
    """Return a hash of each id of an Arrow array; it differs from process to process."""
    return np.fromiter(map(hash, ids.to_pylist()), np.int64, len(ids))


def load(segment: Segment, *, vectors: bool = True) -> LoadedSegment:
    """Return the rows of a segment; their texts stay on disk.

    Args:
        vectors: False for a segment that is not searched.

    Raises:
        SealingError: a page is damaged.
    """
    rows, n, precision = segment.record["rows"], segment.record["dimension"], segment.record["precision"]
    stored = np.empty((rows if vectors else 0, n), np.float16 if precision == "float16" else np.int8)
    scale = np.empty(len(stored), np.float32) if precision == "int8" else None
    lamport, deleted = np.empty(rows, np.int64), np.empty(rows, np.int32)
    writers, ids = np.empty(rows, np.uint16), []
    names: dict[bytes, int] = {}
    start = 0
    columns = ["id", "lamport", "writer", "deleted"]
    columns += ["vector", *(["scale"] if precision == "int8" else [])] if vectors else []
    for table in segment.columns(columns):
        end = start + len(table)
        if len(table):
            if vectors:
                stored[start:end] = vectors_of(table["vector"].combine_chunks(), n, precision)
            lamport[start:end] = table["lamport"].to_numpy()
            deleted[start:end] = table["deleted"].to_numpy()
            coded = table["writer"].combine_chunks().dictionary_encode()
            local = [names.setdefault(name, len(names)) for name in coded.dictionary.to_pylist()]
            writers[start:end] = np.asarray(local, np.uint16)[coded.indices.to_numpy()]
            if scale is not None and vectors:
                scale[start:end] = table["scale"].to_numpy()
            ids.append(table["id"].combine_chunks())
        start = end
    joined = pa.concat_arrays(ids) if ids else pa.array([], pa.string())
    hashes = hashes_of(joined)
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    scan = VectorScan(stored, scale)
    return LoadedSegment(segment, scan, joined, lamport, writers, list(names), deleted, hashes[order], order)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a process has loaded: immutable, so that a search needs no lock.

    Attributes:
        parts: by name of the segment.
        current: rows of each part that no other version of their id replaces.
        alive: of these, the rows that are no deletions.
        commit: number of the last commit.
        covered: last number of each writer's appends that the commit took over.
        newest: last number of each writer that was seen.
        lamport: largest Lamport number that was seen.
        encoder, dimension: of the vectors.
    """

    parts: Mapping[str, LoadedSegment]
    current: Mapping[str, Mask]
    alive: Mapping[str, Mask]
    commit: int = 0
    covered: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)
    lamport: int = 0
    encoder: TextEncoder | None = None
    dimension: int | None = None

    def with_parts(self, keep: Iterable[str], new: Mapping[str, LoadedSegment], **numbers: Any) -> Snapshot:
        """Return a snapshot of the parts ``keep`` of this one and of ``new`` ones."""
        parts = {name: self.parts[name] for name in keep}
        current = {name: self.current[name] for name in keep}
        suspects = _with_common_ids({**parts, **new}) if sum(map(len, new.values())) > _MANY else {*parts, *new}
        for name, part in new.items():
            mask = np.ones(len(part), np.bool_)
            for other_name, other in parts.items():
                if name not in suspects or other_name not in suspects or _disjoint(part, other):
                    continue
                mine, theirs = part.beaten_by(other)
                mask[mine] = False
                if len(theirs) and current[other_name][theirs].any():
                    changed = current[other_name].copy()
                    changed[theirs] = False
                    current[other_name] = changed
            parts[name], current[name] = part, mask
        alive = {
            name: self.alive[name] if mask is self.current.get(name) else mask & (parts[name].deleted == LIVE)
            for name, mask in current.items()
        }
        return replace(self, parts=parts, current=current, alive=alive, **numbers)

    def live(self) -> Iterator[tuple[LoadedSegment, Mask]]:
        """Yield each part with the mask of its current rows that are no deletions."""
        for name, part in self.parts.items():
            yield part, self.alive[name]

    def count(self) -> int:
        """Return the number of rows."""
        return sum(int(np.count_nonzero(mask)) for mask in self.alive.values())

    def locate(self, ids: Sequence[str]) -> list[tuple[LoadedSegment, int] | None]:
        """Return part and row of each id, or None for an id without a row."""
        listed = pa.array(ids, pa.string())
        hashes = hashes_of(listed)
        places: list[tuple[LoadedSegment, int] | None] = [None] * len(ids)
        for part, mask in self.live():
            given, rows = part.locate(listed, hashes)
            for i, row in zip(given[mask[rows]], rows[mask[rows]], strict=True):
                places[i] = (part, int(row))
        return places


def _with_common_ids(parts: Mapping[str, LoadedSegment]) -> set[str]:
    """Return the segments that share the hash of an id with another, found by one sort of all hashes."""
    hashes = np.sort(np.concatenate([part.hashes for part in parts.values()]))
    common = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return {name for name, part in parts.items() if np.isin(common, part.hashes).any()}


def _disjoint(a: LoadedSegment, b: LoadedSegment) -> bool:
    """Return whether one commit wrote both, which then have no id in common."""
    commit = a.segment.record.get("commit")
    return commit is not None and commit == b.segment.record.get("commit")
