"""Segments of a sealed index: immutable encrypted objects, in sections of which any rows can be read.

The content of an object (`vecveil.index.blocks`) is sections, zeros, the directory and its position (8 bytes). The
directory is a JSON object; docs/formats.md specifies it. The zeros bring the content to a Padmé length, so that the
size of the object is all that the storage learns.

The rows have the columns ``id``, ``deleted``, ``vector``, ``scale`` (of int8), ``text``, ``has_text`` and ``metadata``.
The other sections follow from these: the hashes of the ids, and of many rows the codes, the words and the metadata by
field. A few rows have none of these: they are made when they are needed, and would show in the size of a small object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from vecveil.errors import VecveilError, optional_import
from vecveil.index.blob import padded_length, quantised
from vecveil.index.blocks import BlockReader, BlockWriter, Readable, not_opened
from vecveil.index.filters import field_sections
from vecveil.index.index_keys import IndexKeys
from vecveil.index.scan import encoded
from vecveil.index.words import word_sections

with optional_import("A sealed index", "pyarrow", "index"):
    import pyarrow as pa

PRECISIONS = ("float16", "int8")
_LEAST = 4096  # bytes of a content
MANY = 2000  # rows; a segment with more has codes, words and metadata by field
_AT_ONCE = 1 << 23  # bytes
_STRINGS = ("id", "text", "metadata")
Positions = npt.NDArray[np.int64]
Rows = slice | Positions


def schema(n: int, precision: str) -> Any:
    """Return the Arrow schema of the rows of a segment of dimension ``n``."""
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("vector", pa.binary(n * (2 if precision == "float16" else 1)), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("has_text", pa.bool_(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
    ]
    if precision == "int8":
        fields.insert(3, pa.field("scale", pa.float32(), nullable=False))
    return pa.schema(fields)


def write_segment(
    file: IO[bytes], name: str, keys: IndexKeys, key_id: str, rows: Any, *, n: int, precision: str
) -> tuple[str, int, str]:
    """Write rows, an Arrow table, as the object ``name`` to an empty file; return its SHA-256, size and front.

    Args:
        key_id: of the data key that wraps the object's key.
    """
    out, sections = BlockWriter(file, name, keys, key_id), dict[str, tuple[int, int]]()
    for section, content in _sections(rows, n, precision):
        start = out.length
        out.write(content)
        sections[section] = start, out.length - start
    record = {"format": 3, "rows": len(rows), "dimension": n, "precision": precision, "sections": sections}
    directory = json.dumps(record, separators=(",", ":")).encode()
    end = len(directory) + 8
    out.write(bytes(padded_length(out.length + end, _LEAST) - out.length - end))
    at = out.length
    out.write(directory)
    out.write(at.to_bytes(8, "little"))
    return *out.close(), out.front


def _sections(rows: Any, n: int, precision: str) -> Iterator[tuple[str, Any]]:
    """Yield the sections of a table by name."""
    hashes = hashes_of(rows["id"])
    order = np.argsort(hashes, kind="stable")
    yield "hashes", hashes[order]
    yield "order", order.astype(np.int32)
    vectors = vectors_of(rows["vector"], n, precision)
    yield "vector", vectors
    if len(rows) > MANY:
        yield from ((f"codes.{part}", values) for part, values in encoded(vectors))
    del vectors  # the columns are large: one is copied at a time
    if precision == "int8":
        yield "scale", rows["scale"].to_numpy()
    for name in ("deleted", "has_text"):
        yield name, rows[name].to_numpy().astype(np.uint8)
    for name in _STRINGS:
        ends, content = string_buffers(_chunk(rows[name]))
        yield f"{name}.ends", ends
        yield name, content
    if len(rows) > MANY:
        yield from word_sections(rows["text"].to_pylist())
        yield from field_sections(rows["metadata"].to_pylist())


class _Directory(Struct, frozen=True):
    """The sections of a segment, each with its position and length, as its writer gives them: nothing is trusted."""

    format: Literal[3]
    rows: Annotated[int, Meta(ge=0)]
    dimension: Annotated[int, Meta(ge=1)]
    precision: Literal["float16", "int8"]
    sections: dict[str, tuple[int, int]]

    def sizes(self) -> Iterator[tuple[str, int | None]]:
        """Yield the name of each section that a segment must have, and its length if the rows determine it."""
        N, width = self.rows, 2 if self.precision == "float16" else 1
        fixed = {"hashes": 8 * N, "order": 4 * N, "vector": N * self.dimension * width, "deleted": N, "has_text": N}
        yield from fixed.items()
        for name in _STRINGS:
            yield f"{name}.ends", 4 * (N + 1)
            yield name, None
        if self.precision == "int8":
            yield "scale", 4 * N


class Segment:
    """An open segment, whose rows are read by position; threads may share it.

    Args:
        source: the open object.
        again: fetches the object anew; called where a local copy is damaged after it was opened.
        front: what the chain says of the object's key.

    Attributes:
        name: of the object.
        rows: their number.
        dimension, precision: of the vectors.
        far: whether a read is a request over a network.

    Raises:
        SealingError: the object is damaged, of another name or index, or of another format.
        KeyFileError: no key of the index opens it.
    """

    def __init__(
        self,
        source: Readable,
        name: str,
        keys: IndexKeys,
        *,
        again: Callable[[], Readable] | None = None,
        front: str | None = None,
    ) -> None:
        self.name, self.far, self._blocks = name, source.far, BlockReader(source, name, keys, again, front)
        try:
            length = self._blocks.length
            tail = self._blocks.read([(max(0, length - _LEAST), length)])[0]
            at = int.from_bytes(tail[-8:], "little")
            if not 0 <= at <= length - 8:
                raise ValueError
            inside = at - (length - len(tail))
            text = tail[inside:-8] if inside >= 0 else self._blocks.read([(at, length - 8)])[0]
            record = msgspec.json.decode(text, type=_Directory)
            self.rows, self.dimension, self.precision = record.rows, record.dimension, record.precision
            self._sections = record.sections
            if any(min(span) < 0 or sum(span) > length for span in self._sections.values()):
                raise ValueError
            if any(size not in (None, self._sections[section][1]) for section, size in record.sizes()):
                raise ValueError
        except BaseException as error:
            self._blocks.close()
            raise not_opened(name, error) from error

    def has(self, section: str) -> bool:
        """Return whether the segment has a section."""
        return section in self._sections

    def content(self, section: str) -> bytes:
        """Return a whole section.

        Raises:
            SealingError: a block is damaged.
        """
        start, length = self._sections[section]
        return self._blocks.read([(start, start + length)])[0]

    def array(self, section: str, dtype: npt.DTypeLike, part: slice = slice(None)) -> npt.NDArray[Any]:
        """Return a section, or some values of it, as an array."""
        kind = np.dtype(dtype)
        start, length = self._sections[section]
        first, stop, _ = part.indices(length // kind.itemsize)
        result = np.empty(max(stop - first, 0), kind)
        raw = result.view(np.uint8)
        start += first * kind.itemsize
        for at in range(0, len(raw), _AT_ONCE):
            end = min(at + _AT_ONCE, len(raw))
            raw[at:end] = np.frombuffer(self._blocks.read([(start + at, start + end)])[0], np.uint8)
        return result

    def values(self, section: str, dtype: npt.DTypeLike, width: int, rows: Rows) -> npt.NDArray[Any]:
        """Return ``width`` values a row from a section (N, width)."""
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.rows)
            return self.array(section, dtype, slice(first * width, stop * width)).reshape(-1, width)
        size = np.dtype(dtype).itemsize * width
        raw = self._blocks.gather(self._sections[section][0] + np.asarray(rows, np.int64) * size, size)
        return np.ascontiguousarray(raw).view(dtype).reshape(len(rows), width)

    def vectors(self, rows: Rows) -> npt.NDArray[Any]:
        """Return the stored values of vectors (N, n), float16 or int8."""
        return self.values("vector", "<f2" if self.precision == "float16" else "i1", self.dimension, rows)

    def strings(self, name: str, rows: Rows = slice(None)) -> Any:
        """Return an Arrow array of ids, texts or metadata."""
        base = self._sections[name][0]
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(self.rows)
            ends = self.array(f"{name}.ends", "<u4", slice(first, stop + 1))
            content = self._blocks.read([(base + int(ends[0]), base + int(ends[-1]))])[0]
            return self._strings(ends - ends[0], content)
        positions = self._sections[f"{name}.ends"][0] + np.asarray(rows, np.int64) * 4
        ends = np.ascontiguousarray(self._blocks.gather(positions, 8)).view("<u4").astype(np.int64).reshape(-1, 2)
        parts = self._blocks.read([(base + start, base + stop) for start, stop in ends.tolist()])
        lengths = np.concatenate([[0], np.cumsum(ends[:, 1] - ends[:, 0])])
        return self._strings(lengths.astype(np.uint32), b"".join(parts))

    def _strings(self, ends: npt.NDArray[np.uint32], content: bytes) -> Any:
        """Return the Arrow array whose `string_buffers` these are."""
        array = pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content))
        with self.parsed():
            array.validate(full=True)  # Arrow would read beyond the content
        return array

    def table(self, names: Sequence[str] | None = None, rows: Rows = slice(None)) -> Any:
        """Return rows as an Arrow table with these columns, or all."""
        fields = schema(self.dimension, self.precision)
        columns = []
        for name in names or fields.names:
            if name in _STRINGS:
                columns.append(self.strings(name, rows))
            elif name == "vector":
                columns.append(_fixed(self.vectors(rows)))
            elif name == "scale":
                columns.append(pa.array(self.values(name, "<f4", 1, rows)[:, 0]))
            else:
                columns.append(pa.array(self.values(name, np.uint8, 1, rows)[:, 0] != 0))
        return pa.table(columns, schema=pa.schema([fields.field(name) for name in names or fields.names]))

    def stored_vectors(self, rows: Positions) -> npt.NDArray[np.uint8]:
        """Return the ciphertext of the vectors of rows (N, bytes of a vector), for an audit."""
        width = self.dimension * (2 if self.precision == "float16" else 1)
        return self._blocks.gather(self._sections["vector"][0] + rows * width, width, encrypted=True)

    @contextlib.contextmanager
    def parsed(self) -> Iterator[None]:
        """Raise `SealingError` if the block fails on contents that `write_segment` does not write.

        A writer may write any contents: no other member reads a segment before its commit.
        """
        try:
            yield
        except (FileNotFoundError, MemoryError, VecveilError):
            raise
        except Exception as error:
            raise not_opened(self.name, ValueError()) from error

    def check(self) -> None:
        """Decrypt every block.

        Raises:
            SealingError: one is damaged.
        """
        self._blocks.check()

    def close(self) -> None:
        self._blocks.close()


def hashes_of(ids: Any) -> npt.NDArray[np.int64]:
    """Return a hash of each id of an Arrow array. Ids whose hashes are equal are compared."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids.to_pylist())
    return np.frombuffer(b"".join(digests), "<i8")


def encode_vectors(X: npt.NDArray[np.floating[Any]], precision: str) -> tuple[Any, Any]:
    """Return ``X`` (N, n) as the columns ``vector`` and ``scale``; the scale is None for float16."""
    body, scale = quantised(X, precision)
    return _fixed(np.ascontiguousarray(body)), None if scale is None else pa.array(scale, pa.float32())


def vectors_of(column: Any, n: int, precision: str) -> npt.NDArray[Any]:
    """Return the stored values (N, n), float16 or int8, of the column ``vector``."""
    column = _chunk(column)
    dtype = "<f2" if precision == "float16" else "i1"
    width = n * (2 if precision == "float16" else 1)
    raw = np.frombuffer(column.buffers()[1], np.uint8, count=len(column) * width, offset=column.offset * width)
    return raw.view(dtype).reshape(len(column), n)


def string_buffers(column: Any) -> tuple[npt.NDArray[np.uint32], memoryview]:
    """Return the ends (N + 1) and the bytes of an Arrow array of strings."""
    _, offsets, content = column.buffers()
    ends = (
        np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4) if len(column) else np.zeros(1, np.int32)
    )
    whole = memoryview(content) if content is not None else memoryview(b"")
    return (ends - ends[0]).astype(np.uint32), whole[int(ends[0]) : int(ends[-1])]


def _chunk(column: Any) -> Any:
    """Return a column of a table as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fixed(body: npt.NDArray[Any]) -> Any:
    width = body.itemsize * body.shape[1]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(body), [None, pa.py_buffer(body)])
