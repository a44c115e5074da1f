"""What a small Parquet file may grow to: one value can stand for millions, and a reader writes them all out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from vecveil.data.arrow import import_pyarrow
from vecveil.data.thrift import Struct, read_struct

__all__ = ["largest_values", "promises_too_much", "read_footer"]

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
