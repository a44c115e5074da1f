"""The rows of a sealed index in memory: loaded segments, and the current version of each id.

The newest segment determines the current version of an id (`vecveil.index.chain`); if it is a deletion, the id has no
row. A row that has been superseded never becomes current again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vecveil.errors import InvalidInputError
from vecveil.index.blob import check_range
from vecveil.index.filters import MetadataTable
from vecveil.index.scan import EXACT, Codes, VectorScan
from vecveil.index.segments import MANY, Positions, Segment, encode_vectors, hashes_of, schema
from vecveil.index.words import Words, scores
from vecveil.texts.encoders.text_encoder import TextEncoder

_REENCODE = "SealedIndex.reencode"
_EQUAL = 4  # so many ids of a segment may have one hash: of ten million ids two seldom have
_MANY = 65_536  # new rows from which all segments are compared by one sort, not pair by pair
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LoadedSegment:
    """A loaded segment.

    Attributes:
        version: its place in the order of versions; segments of one version have no id in common.
        deleted: which rows are deletions (N,).
        hashes: hashes of the ids, sorted (N,), with the row of each in ``order``.
    """

    segment: Segment
    version: tuple[int, int]
    scan: VectorScan
    deleted: Mask
    hashes: npt.NDArray[np.int64]
    order: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.hashes)

    def locate(
        self, ids: Callable[[Rows], Any], hashes: Rows, order: npt.NDArray[np.int32] | None = None
    ) -> tuple[Rows, Rows]:
        """Return positions of ids and the rows here that have them.

        Args:
            ids: returns the ids at some positions, as an Arrow array.
            hashes: of the ids; sorted ones are looked up several times faster.
            order: position of the id of each hash; None if it is the same.
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
            equal = pc.equal(ids(given), self.segment.strings("id", rows)).to_numpy(zero_copy_only=False)
            given, rows = given[equal], rows[equal]
        return given, rows

    def shared_with(self, other: LoadedSegment) -> tuple[Rows, Rows]:
        """Return the rows here and the rows of ``other`` that have one id."""
        if len(self) > len(other):
            theirs, mine = other.shared_with(self)
            return mine, theirs
        return other.locate(lambda rows: self.segment.strings("id", rows), self.hashes, self.order)

    def holding(self, ids: Any) -> tuple[Rows, Rows]:
        """Return positions in ``ids``, an Arrow array, and the rows here that have them."""
        return self.locate(lambda rows: ids.take(pa.array(rows)), hashes_of(ids))


@dataclass(frozen=True)
class _OnDisk:
    """The stored vectors of a segment, read on demand."""

    segment: Segment

    @property
    def shape(self) -> tuple[int, int]:
        return self.segment.rows, self.segment.dimension

    def __getitem__(self, rows: slice | Positions) -> npt.NDArray[Any]:
        return self.segment.vectors(rows)


def load(segment: Segment, version: tuple[int, int], *, in_memory: bool = True) -> LoadedSegment:
    """Return the rows of a segment; ids, texts and metadata stay where they are.

    Args:
        in_memory: whether to load the vectors; otherwise they are read as a search needs them.

    Raises:
        SealingError: a block is damaged.
    """
    stored = segment.vectors(slice(None)) if in_memory else _OnDisk(segment)
    scale = segment.array("scale", "<f4") if segment.has("scale") else None
    scan = VectorScan(stored, scale, lambda: _codes(segment), EXACT if in_memory else MANY, segment.far)
    hashes, order = segment.array("hashes", "<i8"), segment.array("order", "<i4")
    with segment.parsed():
        if len(order) and not 0 <= order.min() <= order.max() < len(order):
            raise ValueError
        # Not the sign of a difference, which overflows. Ids whose hashes are equal are compared with each other.
        if (hashes[1:] < hashes[:-1]).any() or (hashes[_EQUAL:] == hashes[:-_EQUAL]).any():
            raise ValueError
    return LoadedSegment(segment, version, scan, segment.array("deleted", np.uint8) != 0, hashes, order)


def check_rows(segment: Segment) -> None:
    """Read every part of a segment that a search reads; raise `SealingError` for an invalid one."""
    with segment.parsed():
        part, every = load(segment, (0, 0)), np.ones(segment.rows, np.bool_)
        hashes = hashes_of(segment.strings("id"))[part.order]
        if (hashes != part.hashes).any() or len(np.unique(part.order)) < len(part):
            raise ValueError  # rows that no id finds could not be deleted
        if segment.rows > MANY:
            every[part.scan.codes.poor]
        segment.strings("text")
        for text in segment.strings("metadata").to_pylist():
            parsed_metadata(text)
        if segment.has("fields"):
            MetadataTable.read(segment, segment.rows).among(every)
        if segment.has("words"):
            scores("word", [(words_in(segment).among(every), every)])


def words_in(segment: Segment) -> Words:
    """Return the words of a segment; raise `SealingError` for lengths that its texts cannot have."""
    with segment.parsed():
        if not segment.has("words"):
            return Words.of(segment.strings("text").to_pylist())
        words = Words(segment.array, segment.parsed)
        # Lengths count in the scores of all rows. A byte gives at most 4/3 words.
        sizes = np.diff(segment.array("text.ends", "<u4").astype(np.int64))
        if len(words.lengths) != segment.rows or (words.lengths > 2 * sizes).any():
            raise ValueError
        return words


def parsed_metadata(text: str) -> dict[str, Any] | None:
    """Return the metadata of a row; raise `ValueError` for what `write_segment` does not write."""
    metadata = json.loads(text, parse_constant=int)  # which refuses NaN and Infinity
    if not isinstance(metadata, dict | None):
        raise ValueError
    return metadata


def _codes(segment: Segment) -> Codes:
    N, width = segment.rows, -(-segment.dimension // 4)
    with segment.parsed():
        poor = segment.array("codes.poor", "<i4")
        if len(poor) and not 0 <= poor.min() <= poor.max() < N:
            raise ValueError
        return Codes(
            segment.array("codes.packed", np.uint8).reshape(N, width),
            segment.array("codes.levels", "<f4").reshape(4, 4 * width),
            segment.array("codes.residuals", "<f2").reshape(-1, segment.dimension),
            poor,
        )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The rows that a process has loaded: immutable, so that a search needs no lock.

    Attributes:
        parts: by name of the segment.
        current: rows of each part that no newer version supersedes.
        alive: current rows that are not deletions.
        encoder, dimension: of the vectors.
    """

    parts: Mapping[str, LoadedSegment]
    current: Mapping[str, Mask]
    alive: Mapping[str, Mask]
    encoder: TextEncoder | None = None
    dimension: int | None = None

    def with_parts(self, keep: Iterable[str], new: Mapping[str, LoadedSegment], **changes: Any) -> Snapshot:
        """Return a snapshot of the parts ``keep`` of this one and of ``new`` ones."""
        parts = {name: self.parts[name] for name in keep}
        current = {name: self.current[name] for name in keep}
        suspects = _with_common_ids({**parts, **new}) if sum(map(len, new.values())) > _MANY else {*parts, *new}
        for name, part in new.items():
            mask = np.ones(len(part), np.bool_)
            for other_name, other in parts.items():
                if name not in suspects or other_name not in suspects or part.version == other.version:
                    continue
                mine, theirs = part.shared_with(other)
                if part.version < other.version:
                    mask[mine] = False
                elif current[other_name][theirs].any():
                    changed = current[other_name].copy()
                    changed[theirs] = False
                    current[other_name] = changed
            parts[name], current[name] = part, mask
        alive = {
            name: self.alive[name] if mask is self.current.get(name) else mask & ~parts[name].deleted
            for name, mask in current.items()
        }
        return replace(self, parts=parts, current=current, alive=alive, **changes)

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
        places: list[tuple[LoadedSegment, int] | None] = [None] * len(ids)
        for part, mask in self.live():
            given, rows = part.holding(listed)
            for i, row in zip(given[mask[rows]], rows[mask[rows]], strict=True):
                places[i] = (part, int(row))
        return places


def _with_common_ids(parts: Mapping[str, LoadedSegment]) -> set[str]:
    """Return the segments that share the hash of an id with another, found by one sort of all hashes."""
    hashes = np.sort(np.concatenate([part.hashes for part in parts.values()]))
    common = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    return {name for name, part in parts.items() if np.isin(common, part.hashes).any()}


# Vectors of a different encoder -----------------------------------------------------------------------


class NewVectors:
    """Vectors of texts by one encoder, at the precision of an index; each distinct text is encoded once.

    Memory per text: the stored vector and about 200 bytes.
    """

    def __init__(self, encoder: TextEncoder, precision: str) -> None:
        self.encoder, self.precision = encoder, precision
        self._known: dict[str, tuple[bytes, float]] = {}

    def encode(self, texts: Sequence[str]) -> dict[str, Any]:
        """Encode the texts that have no vector yet; return the columns ``id`` (digest), ``vector`` and ``scale``."""
        new = {name: text for text in texts if (name := _digest(text)) not in self._known}
        if not new:
            return {}
        X = self.encoder.encode(list(new.values()), show_progress=False)
        check_range(X, self.precision, _REENCODE)
        vector, scale = encode_vectors(X, self.precision)
        columns = {"id": pa.array(list(new), pa.string()), "vector": vector}
        columns |= {} if scale is None else {"scale": scale}
        self.learn(columns)
        return columns

    def replaced(self, table: Any) -> Any:
        """Return a table of a segment with the vectors of this encoder; rows without a text raise."""
        live = ~table["deleted"].to_numpy()
        check_texts_there(int(np.count_nonzero(live & ~table["has_text"].to_numpy())))
        new = self.columns([t if is_live else None for t, is_live in zip(table["text"].to_pylist(), live, strict=True)])
        fields = schema(self.encoder.dimension, self.precision)
        return pa.table([new[name] if name in new else table[name] for name in fields.names], schema=fields)

    def learn(self, columns: Any) -> None:
        """Add columns that `encode` returned, in this run or an earlier one."""
        vectors = columns["vector"].to_pylist()
        scales = columns["scale"].to_pylist() if self.precision == "int8" else [0.0] * len(vectors)
        self._known.update(zip(columns["id"].to_pylist(), zip(vectors, scales, strict=True), strict=True))

    def columns(self, texts: Sequence[str | None]) -> dict[str, Any]:
        """Return the columns ``vector`` and ``scale`` of texts; a row is zeros for None."""
        self.encode([text for text in texts if text is not None])
        width = self.encoder.dimension * (1 if self.precision == "int8" else 2)
        zeros = bytes(width), 0.0
        rows = [zeros if text is None else self._known[_digest(text)] for text in texts]
        columns = {"vector": pa.array([vector for vector, _ in rows], pa.binary(width))}
        return columns | {"scale": pa.array([scale for _, scale in rows], pa.float32())}


def check_texts_there(lacking: int) -> None:
    """Raise `InvalidInputError` if rows lack a text to encode."""
    if lacking:
        raise InvalidInputError(
            f"{_REENCODE}: {lacking:,} rows have no text to encode. Add them again with their texts, or delete them. "
            "To keep their vectors, make a new index from vectors of the new encoder.",
            code="E-INDEX-TEXT",
            param="encoder",
        )


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
