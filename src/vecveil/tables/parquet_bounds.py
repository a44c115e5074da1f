"""What a small Parquet file may grow to: one value can stand for millions, and a reader writes them all out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from vecveil.tables.arrow import import_pyarrow

__all__ = ["largest_values", "promises_too_much"]

FREELY = 1 << 24
"""Rows, or values of one column, that a file may have whatever its size is."""
VALUES_A_BYTE = 100
"""Beyond that. Texts and vectors take bytes; a column of one and the same value takes none."""
_DICTIONARY_PAGE = 2
_LARGEST_LOOKED_INTO = 1 << 24
"""Bytes of a dictionary; writers stop at about one million."""


def promises_too_much(metadata: Any, size: int, groups: Iterable[int]) -> bool:
    """Return whether rows or lists are declared that no such file of texts or vectors can hold.

    Args:
        metadata: of pyarrow.
        size: of the file, bytes.
        groups: the row groups to look at.
    """
    if metadata.num_rows > FREELY + VALUES_A_BYTE * size:
        return True
    for group in map(metadata.row_group, groups):
        for column in map(group.column, range(group.num_columns)):
            # Rows are read in batches; the lists in one row are read at once.
            if column.num_values > max(
                group.num_rows, FREELY + VALUES_A_BYTE * column.total_compressed_size
            ):
                return True
    return False


def largest_values(file: BinaryIO, metadata: Any, groups: Iterable[int], columns: Sequence[str]) -> int:  # fmt: skip
    """Return a bound of the bytes of one text in ``columns`` that many rows may share; 0 if none do."""
    wanted = {*columns}
    largest = 0
    for group in map(metadata.row_group, groups):
        for column in map(group.column, range(group.num_columns)):
            if column.physical_type != "BYTE_ARRAY" or not wanted & _names(column.path_in_schema):
                continue
            if (
                "DELTA_BYTE_ARRAY" in column.encodings
            ):  # each value repeats what the last begins with
                largest = max(largest, column.total_uncompressed_size)
            largest = max(largest, _longest_entry(file, column))
    return largest


def _names(path: str) -> set[str]:
    """Return the columns that a leaf may belong to: names may hold dots themselves."""
    parts = path.split(".")
    return {".".join(parts[: i + 1]) for i in range(len(parts))}


def _longest_entry(file: BinaryIO, column: Any) -> int:
    """Return a bound of the longest value in a column's dictionary, 0 if it has none; exact for usual sizes."""
    starts = (column.dictionary_page_offset, column.data_page_offset)
    first = min(start for start in starts if start is not None and start >= 0)
    file.seek(first)
    # Of Parquet's PageHeader: what the page is, and its bytes before and after compression.
    kind, rest = _number(file.read(32))
    size, rest = _number(rest)
    packed, _ = _number(rest)
    if kind != _DICTIONARY_PAGE:
        return 0
    body = column.data_page_offset - packed  # the pages follow each other
    if not 0 < size <= _LARGEST_LOOKED_INTO or not first < body:
        return size
    file.seek(body)
    try:
        values = _unpacked(file.read(packed), size, column.compression)
    except Exception:  # another codec, or damaged: then the reader says so
        return size
    longest = at = 0
    while at + 4 <= len(values):
        length = int.from_bytes(values[at : at + 4], "little")
        longest = max(longest, length)
        at += 4 + length
    return longest if at == len(values) else size


def _unpacked(packed: bytes, size: int, compression: str) -> bytes:
    if compression == "UNCOMPRESSED":
        return packed
    pa = import_pyarrow()
    codec = {"LZ4": "lz4_raw"}.get(compression, compression.lower())
    return bytes(pa.Codec(codec).decompress(packed, decompressed_size=size))


def _number(head: bytes) -> tuple[int, bytes]:
    """Return the 32-bit number of the field that ``head`` begins with (Thrift, compact), and what follows."""
    if (
        head[:1] != b"\x15"
    ):  # the next field, an i32; anything else is damaged, and the reader says so
        return 0, b""
    value = 0
    for i, byte in enumerate(head[1:6]):
        value |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return value >> 1, head[i + 2 :]
    return 0, b""
