"""Random words, addressed by row: AES-256 in counter mode under a key of the caller's kind.

Block j of row i is AES(key, start_i + j), so any rows can be drawn in any order, in any thread, and
give the same words; two rows never share a counter. Where the key comes from decides what the noise is:

- the operating system, afresh for every call (the default): unpredictable, and nothing is kept that a
  forked or spawned worker could repeat;
- a seed or a NumPy generator: repeatable, and insecure, since whoever knows the seed removes the noise;
- a secret key and each item's identity (`vecveil.randomness.keyed`): the same item always gets the same words.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vecveil.errors import IncompatibleError, message
from vecveil.randomness import kernel
from vecveil.randomness.elementary import Words
from vecveil.types import RandomSource, Vector

__all__ = ["WordStream", "resolve_stream"]

_AES_BLOCK = 16
_TRIES = 4


@dataclass(frozen=True, eq=False, repr=False)
class WordStream:
    """Words for a number of rows; it prints no key.

    Attributes:
        key: of AES-256.
        rows: how many rows it serves.
        starts: (rows, 2) first counter of each row, high and low word; None counts rows from ``first``.
        first: number of the first row, without ``starts``.
    """

    key: bytes
    rows: int
    starts: Words | None = None
    first: int = 0

    def __repr__(self) -> str:
        return f"WordStream(rows={self.rows})"

    def part(self, start: int, stop: int) -> WordStream:
        """Return the stream of the rows ``start`` to ``stop``."""
        if self.starts is not None:
            return replace(self, rows=stop - start, starts=self.starts[start:stop])
        return replace(self, rows=stop - start, first=self.first + start)

    def take(self, rows: npt.NDArray[np.intp]) -> WordStream:
        """Return the stream of the given rows."""
        return replace(self, rows=len(rows), starts=self._starts()[rows], first=0)

    def words(self, blocks: int, first_block: int = 0) -> Words:
        """Return (rows, 2·blocks) words, the blocks from ``first_block`` on of each row."""
        plain = kernel.counters(self._starts(), blocks, first_block)
        drawn = np.empty(plain.nbytes + _AES_BLOCK - 1, dtype=np.uint8)
        # Each counter block is encrypted for itself: that is counter mode with our own counters.
        cipher = Cipher(algorithms.AES(self.key), modes.ECB()).encryptor()
        cipher.update_into(plain.data.cast("B"), drawn.data)
        return drawn[: plain.nbytes].view(np.uint64).reshape(self.rows, 2 * blocks)

    def gammas(self, shape: float, first_block: int) -> Vector:
        """Return one Gamma(shape, 1) variate a row, shape ≥ 1, from the blocks at ``first_block`` on."""
        blocks = (3 * _TRIES + 1) // 2
        drawn = kernel.gammas(self.words(blocks, first_block), 0, _TRIES, shape)
        if not drawn.all():  # every try was rejected: go on with further blocks of these rows
            again = np.flatnonzero(drawn == 0)
            drawn[again] = self.take(again).gammas(shape, first_block + blocks)
        return drawn

    def _starts(self) -> Words:
        if self.starts is not None:
            return self.starts
        starts = np.zeros((self.rows, 2), dtype=np.uint64)
        starts[:, 0] = np.arange(self.first, self.first + self.rows, dtype=np.uint64)
        return starts


def resolve_stream(
    rng: RandomSource | WordStream, rows: int, *, owner: str = "resolve_stream"
) -> WordStream:
    """Return the stream of words that ``rng`` stands for.

    Args:
        rng: None for a fresh key from the operating system; a seed or a `numpy.random.Generator` for a
            repeatable, insecure stream; a stream as it is.
        rows: how many rows are to be protected.
    """
    if rng is None:
        return WordStream(secrets.token_bytes(32), rows)
    if isinstance(rng, WordStream):
        if rng.rows != rows:
            raise IncompatibleError(message(owner, "rng", f"a stream of {rows} rows", rng.rows))
        return rng
    from vecveil.randomness.source import resolve_generator

    return WordStream(resolve_generator(rng, owner=owner).bytes(32), rows)
