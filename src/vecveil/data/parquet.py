"""Read Parquet in batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from vecveil.data.columns import (
    Batch,
    Source,
    check_names,
    check_rows,
    import_pyarrow,
    undictionaried,
)
from vecveil.data.files import InputFile, not_usable, readable
from vecveil.errors import VecveilError

__all__ = [
    "METADATA_KEY",
    "ParquetSource",
    "Struct",
    "largest_values",
    "metadata_in",
    "promises_too_much",
    "read_footer",
    "read_struct",
]

Struct = dict[int, Any]
"""Field number to value: an int, bytes, a list, or a struct; of maps and doubles nothing."""
_DEEPEST = 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12


def read_struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at ``at``, and where it ends.

    Raises:
        ValueError, IndexError: it is none, breaks off, or is nested too deeply.
    """
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    found: Struct = {}
    field = 0
    while head := data[at]:
        at += 1
        kind, step = head & 15, head >> 4
        if step:
            field += step
        else:
            number, at = _varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        if kind in (_TRUE, _FALSE):
            found[field] = int(kind == _TRUE)
        else:
            found[field], at = _value(data, at, kind, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if _BYTE < kind < _DOUBLE:
        number, at = _varint(data, at)
        return (number >> 1) ^ -(number & 1), at
    if kind == _BINARY:
        size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("breaks off")
        return data[at : at + size], at + size
    if kind == _STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (_LIST, _SET):
        return _list(data, at, depth + 1)
    if kind == _MAP:
        return _map(data, at, depth + 1)
    if kind in (_TRUE, _FALSE, _BYTE):  # in lists and maps
        return data[at], at + 1
    if kind == _DOUBLE and at + 8 <= len(data):
        return None, at + 8
    raise ValueError("another type")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:
        size, at = _varint(data, at)
    if size > len(data) - at:  # each takes a byte at least
        raise ValueError("breaks off")
    values = []
    for _ in range(size):
        value, at = _value(data, at, kind, depth)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, depth: int) -> tuple[None, int]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    size, at = _varint(data, at)
    if size > len(data) - at:
        raise ValueError("breaks off")
    kinds = data[at] if size else 0
    at += bool(size)
    for _ in range(size):
        _, at = _value(data, at, kinds >> 4, depth)
        _, at = _value(data, at, kinds & 15, depth)
    return None, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number of more than 64 bits")


FREELY = 1 << 24
"""Rows, or values of one column, that a file may have whatever its size is."""
VALUES_A_BYTE = 100
"""Beyond that. Texts and vectors take bytes; a column of one and the same value takes none."""
LARGEST_LOOKED_INTO = 1 << 24
"""Bytes of a dictionary; writers stop at about one million."""
_LONGEST_HEADER = 1 << 16

# Numbers of fields and values, from parquet.thrift.
_ROWS, _GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK = 3
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _PLAIN_SIZE, _PACKED_SIZE, _DATA, _DICTIONARY = (
    1, 2, 3, 4, 5, 6, 7, 9, 11,
)  # fmt: skip
_BYTE_ARRAY, _DELTA_BYTE_ARRAY, _DICTIONARY_PAGE = 6, 7, 2
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


def read_footer(file: BinaryIO) -> tuple[Struct, int]:
    """Return a file's metadata and its size.

    Raises:
        ValueError, IndexError: it has none, or a damaged one.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length + 12 > size:
        raise ValueError("no footer")
    file.seek(size - 8 - length)
    footer, _ = read_struct(file.read(length))
    return footer, size


def promises_too_much(footer: Struct, size: int, groups: Iterable[int]) -> bool:
    """Return whether rows or lists are declared that no such file of texts or vectors can hold.

    Args:
        footer: of `read_footer`.
        size: of the file, bytes.
        groups: the row groups to look at.
    """
    if footer[_ROWS] > FREELY + VALUES_A_BYTE * size:
        return True
    # Rows are read in batches; the lists in one row are read at once.
    return any(
        chunk[_VALUES] > max(rows, FREELY + VALUES_A_BYTE * chunk[_PACKED_SIZE])
        for rows, chunk in _chunks(footer, groups)
    )


def largest_values(
    file: BinaryIO, footer: Struct, groups: Iterable[int], columns: Sequence[str]
) -> int:
    """Return a bound of the bytes of one text in ``columns`` that many rows may share; 0 if none do."""
    wanted = {*columns}
    largest = 0
    for _, chunk in _chunks(footer, groups):
        if chunk[_TYPE] != _BYTE_ARRAY or not wanted & _names(chunk[_PATH]):
            continue
        if _DELTA_BYTE_ARRAY in chunk[_ENCODINGS]:  # each value repeats what the last begins with
            largest = max(largest, chunk[_PLAIN_SIZE])
        largest = max(largest, _longest_entry(file, chunk))
    return largest


def _chunks(footer: Struct, groups: Iterable[int]) -> Iterator[tuple[int, Struct]]:
    every = footer[_GROUPS]
    for group in (every[i] for i in groups):
        for column in group[_COLUMNS]:
            yield group[_GROUP_ROWS], column[_CHUNK]


def _names(path: list[bytes]) -> set[str]:
    """Return the columns that a leaf may belong to: names may hold dots themselves."""
    parts = b".".join(path).decode("utf-8", "replace").split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))}


def _longest_entry(file: BinaryIO, chunk: Struct) -> int:
    """Return a bound of the longest value in a column's dictionary, 0 if it has none; exact for usual sizes."""
    # Some writers do not say where the dictionary is: then it is where data should begin.
    start = min(chunk[_DATA], chunk.get(_DICTIONARY) or chunk[_DATA])
    file.seek(max(0, start))
    page, end = read_struct(file.read(_LONGEST_HEADER))
    kind, size, packed = page[1], page[2], page[3]
    if kind != _DICTIONARY_PAGE:
        return 0
    if not 0 < size <= LARGEST_LOOKED_INTO:
        return max(1, int(size))
    file.seek(start + end)
    try:
        values = _unpacked(file.read(max(0, packed)), size, chunk[_CODEC])
    except Exception:  # another codec, or damaged: then the reader says so
        return int(size)
    longest = at = 0
    while at + 4 <= len(values):
        length = int.from_bytes(values[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest if at == len(values) else int(size)


def _unpacked(packed: bytes, size: int, codec: int) -> bytes:
    if codec == 0:
        return packed
    pa: Any = import_pyarrow()
    return bytes(pa.Codec(_CODECS[codec]).decompress(packed, decompressed_size=size))


METADATA_KEY = b"vecveil"
READ_AHEAD = 1 << 20
BATCH_BYTES = 1 << 26
EXPANDED_BYTES = 1 << 29
"""What the texts of a batch may take if all of them are the longest that a dictionary may hold."""


class ParquetSource(Source):
    """A Parquet file; columns keep their Arrow types, but dictionaries become plain values.

    Attributes:
        row_groups: the rows of each, all of the file's.
        group_bytes: what each takes before compression.

    A dictionary may hold values that no row has, such as those of rows that were dropped; they
    would be written with the column.
    """

    def __init__(self, file: InputFile, groups: Sequence[int] | None = None) -> None:
        """Read the header; ``groups``: the row groups to read, one after another, None all."""
        self.name, self.format = file.name, file.format
        self._open = file.opener
        with self._opened() as (parquet, opened), self._guarded():
            schema = parquet.schema_arrow
            every = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
            sizes = self.row_groups = [group.num_rows for group in every]
            self.group_bytes = [group.total_byte_size for group in every]
            self._groups = list(range(len(sizes)) if groups is None else groups)
            self.first_row = sum(sizes[: self._groups[0]]) if self._groups else 0
            self.rows = sum(sizes[i] for i in self._groups)
            names = list(schema.names)
            check_names(self.name, names)
            self.types = dict(zip(names, map(undictionaried, schema.types), strict=True))
            check_rows(self.name, self.rows, len(names))
            self._footer, size = read_footer(opened)
            if promises_too_much(self._footer, size, self._groups):
                raise not_usable(
                    self.name,
                    "a Parquet file with about as many values as it has room for",
                    "one that declares many more",
                    fix="If you trust it, write it again in another format.",
                )
            size = max((self.group_bytes[i] // max(1, sizes[i]) for i in self._groups), default=1)
            self._most = max(1, BATCH_BYTES // max(1, size))
            self.metadata = metadata_in(schema.metadata)

    def batches(self, columns: Sequence[str], chunk_rows: int) -> Iterator[tuple[int, Batch]]:
        count = min(chunk_rows, self._most)
        with self._opened() as (parquet, opened):
            with self._guarded():
                longest = largest_values(opened, self._footer, self._groups, columns)
            count = max(1, min(count, EXPANDED_BYTES // max(1, longest)))
            batches = parquet.iter_batches(
                batch_size=count,
                row_groups=self._groups,
                columns=list(columns),
                use_threads=False,
            )
            seen = 0
            while True:
                with self._guarded():
                    batch = next(batches, None)
                    if batch is None:
                        break
                    batch.validate(full=True)
                    found = {name: self._plain(name, batch.column(name)) for name in columns}
                seen += batch.num_rows
                if batch.num_rows:
                    yield batch.num_rows, found
        if columns and seen != self.rows:
            raise self._damaged()

    def _plain(self, name: str, values: Any) -> Any:
        kind = self.types[name]
        return values if values.type == kind else values.cast(kind)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        pa = import_pyarrow()
        with readable(self.name), self._open() as file:
            with self._guarded():
                parquet = pa.parquet.ParquetFile(file, buffer_size=READ_AHEAD, pre_buffer=False)
            yield parquet, file

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn what pyarrow raises on a damaged file into one error; its own may quote values."""
        pa = import_pyarrow()
        try:
            yield
        except VecveilError:
            raise
        except MemoryError:
            raise not_usable(
                self.name,
                "a whole Parquet file whose row groups fit into memory",
                "one that asks for more memory than there is",
                fix="Raise the limit of memory; if there is enough, the file is damaged: write it again.",
            ) from None
        except (
            pa.ArrowException,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            OverflowError,
            RuntimeError,  # what its C++ throws that is of no class of its own
        ):
            raise self._damaged() from None

    def _damaged(self) -> VecveilError:
        return not_usable(
            self.name,
            "a whole Parquet file",
            "a truncated or damaged one",
            fix="Copy or write it again.",
        )


def metadata_in(raw: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return what vecveil wrote into the metadata of a schema, or nothing."""
    try:
        found = json.loads((raw or {}).get(METADATA_KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
