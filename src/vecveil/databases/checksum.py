"""A checksum of a store that does not depend on the order of its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["add_rows", "as_hex"]

_MODULUS = 1 << 256


def add_rows(checksum: int, ids: Sequence[str], vectors: npt.NDArray[np.float32]) -> int:
    """Return ``checksum`` plus the SHA-256 of each row, modulo 2²⁵⁶.

    What enters of a row is its id, with its length, and its values as little-endian float32; −0 counts as 0. It is
    for released vectors alone: sums of clean rows would let somebody test guesses of them.
    """
    values = np.ascontiguousarray(vectors + np.float32(0), dtype="<f4")
    for one, row in zip(ids, values, strict=True):
        name = one.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(len(name).to_bytes(8, "little") + name + row.tobytes())
        checksum += int.from_bytes(digest.digest(), "little")
    return checksum % _MODULUS


def as_hex(checksum: int) -> str:
    """Return 64 hexadecimal digits."""
    return f"{checksum:064x}"
