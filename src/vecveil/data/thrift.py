"""Structs in Thrift's compact protocol, as Parquet's footers and page headers are written.

PyArrow shows the same, but a damaged footer that it looks at column by column ends the whole process.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Struct", "read_struct"]

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
