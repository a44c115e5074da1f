"""Random words of each row, and the kernel that turns them into noise, compiled or in NumPy.

The words are AES-256 in counter mode: block j of row i is AES(key, start_i + j), so rows can be drawn in any order and
in any thread with the same result; two rows never share a counter. The source of the key decides the properties of the
noise:

- the operating system, afresh for every call (the default): unpredictable, with no state that a forked or spawned
  worker could repeat;
- a seed or a NumPy generator: repeatable and insecure, since the seed suffices to remove the noise;
- a secret key and each item's identity (`vecveil.privacy.randomness.keyed`): the same item always gets the same words.

The compiled form gives the same bits as `elementary`, several times faster, and releases the interpreter lock.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import threading
from collections.abc import Callable
from types import ModuleType

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vecveil.errors import IncompatibleError, wrong_type
from vecveil.privacy.randomness import elementary
from vecveil.privacy.randomness.elementary import NoiseKind as NoiseKind
from vecveil.privacy.randomness.elementary import Words
from vecveil.runtime import in_chunks
from vecveil.types import Embeddings, RandomSource, Vector

_compiled: ModuleType | None = None
if os.environ.get("VECVEIL_KERNEL") != "numpy":
    with contextlib.suppress(ImportError):
        _compiled = importlib.import_module("vecveil.privacy.randomness._kernel")

_NOTHING = b""  # stands for no root in the C call


def compiled() -> bool:
    return _compiled is not None


def normals(words: Words, pairs: int) -> Embeddings:
    if _compiled is None:
        return elementary.normals(words, pairs)
    out = np.empty((len(words), 2 * pairs))
    _compiled.normals(words, out, len(words), words.shape[1], pairs)
    return out


def exponentials(words: Words) -> Vector:
    if _compiled is None:
        return elementary.exponentials(words)
    contiguous, out = np.ascontiguousarray(words), np.empty(len(words))
    _compiled.exponentials(contiguous, out, len(words))
    return out


def gammas(words: Words, first: int, tries: int, shape: float) -> Vector:
    if _compiled is None:
        return elementary.gammas(words, first, tries, shape)
    out = np.empty(len(words))
    _compiled.gammas(words, out, len(words), words.shape[1], first, tries, shape)
    return out


def release(
    kind: NoiseKind,
    X: Embeddings,
    words: Words | Embeddings,
    factors: Vector,
    root: Vector | None,
    step: float,
    out: Embeddings,
) -> bool:
    """Write the noisy rows of `elementary.release` to C-contiguous ``out``; return whether all are finite."""
    if _compiled is None:
        out[:], finite = elementary.release(kind, X, words, factors, root, step)
        return finite
    rows, n = X.shape
    wide = X.dtype == np.float64
    scale = _NOTHING if root is None else root
    ok: bool = _compiled.release(int(kind), X, words, factors, scale, out, rows, n, words.shape[1], wide, step)
    return ok


def counters(starts: Words, blocks: int, first: int) -> Words:
    if _compiled is None:
        return elementary.counters(starts, blocks, first)
    out = np.empty((len(starts), blocks, 2), dtype=np.uint64)
    _compiled.counters(starts, out, len(starts), blocks, first)
    return out


def resolve_generator(rng: RandomSource = None, *, owner: str = "resolve_generator") -> np.random.Generator:
    """Return the NumPy generator for ``rng``, seeded by the system for None; not for protecting noise."""
    if rng is None:
        return np.random.default_rng(secrets.randbits(128))
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise wrong_type(owner, "rng", "None, a seed ≥ 0 or a numpy.random.Generator", rng)


_AES_BLOCK = 16
TRIES = 4  # of Marsaglia and Tsang; each is accepted with probability above 0.95, so 4 rarely fail
GAMMA_BLOCKS = 6
"""Counter blocks per round of `TRIES` at a gamma variate: 12 words, three for each try."""


class BlockCipher:
    """AES-256 of single blocks under one key, with one context per thread, since creating one is slow."""

    __slots__ = ("_cipher", "_own")

    def __init__(self, key: bytes) -> None:
        # A shorter key would silently select AES-128 or AES-192.
        if len(key) != 32:
            raise ValueError("a key of AES-256 has 32 bytes")
        # ECB of our own counter blocks is counter mode, with counters that need not be consecutive.
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())
        self._own = threading.local()

    def encrypt(self, plain: memoryview, out: memoryview) -> None:
        """Write the blocks of ``plain`` to ``out``, 15 bytes longer as the library requires."""
        context = getattr(self._own, "context", None)
        if context is None:
            context = self._own.context = self._cipher.encryptor()
        context.update_into(plain, out)


class WordStream:
    """Random words for a number of rows; its repr shows no key.

    ``starts`` (rows, 2) contains the first counter of each row, high and low word; None numbers the rows from 0.
    """

    __slots__ = ("_cipher", "_first", "rows", "starts")

    def __init__(self, key: bytes | BlockCipher, rows: int, starts: Words | None = None) -> None:
        self._cipher = key if isinstance(key, BlockCipher) else BlockCipher(key)
        self._first = 0
        self.rows = rows
        self.starts = starts

    def __repr__(self) -> str:
        return f"WordStream(rows={self.rows})"

    def _other(self, rows: int, first: int, starts: Words | None) -> WordStream:
        # Past __init__: the part shares the cipher and starts at another row.
        other = object.__new__(WordStream)
        other._cipher, other._first, other.rows, other.starts = self._cipher, first, rows, starts
        return other

    def part(self, start: int, stop: int) -> WordStream:
        if start == 0 and stop == self.rows:
            return self
        starts = None if self.starts is None else self.starts[start:stop]
        return self._other(stop - start, self._first + start, starts)

    def take(self, rows: npt.NDArray[np.intp]) -> WordStream:
        return self._other(len(rows), 0, self._starts()[rows])

    def words(self, blocks: int, first_block: int = 0) -> Words:
        """Return (rows, 2·blocks) words: the blocks from ``first_block`` on of each row."""
        plain = counters(self._starts(), blocks, first_block)
        drawn = np.empty(plain.nbytes + _AES_BLOCK - 1, dtype=np.uint8)
        self._cipher.encrypt(plain.data.cast("B"), drawn.data)
        return drawn[: plain.nbytes].view(np.uint64).reshape(self.rows, 2 * blocks)

    def gammas(self, shape: float, first_block: int, words: Words | None = None, at: int = 0) -> Vector:
        """Return one Gamma(shape, 1) variate per row, shape ≥ 1, from counter block ``first_block`` on.

        No other use may follow that block. ``words`` contain its `GAMMA_BLOCKS` blocks at position ``at``; None draws
        them.
        """
        if words is None:
            words = self.words(GAMMA_BLOCKS, first_block)
        drawn = gammas(words, 2 * at, TRIES, shape)
        # 0 marks a row whose tries were all rejected: redrawing only those keeps rows independent.
        while not drawn.all():
            first_block += GAMMA_BLOCKS
            again = np.flatnonzero(drawn == 0)
            more = self.take(again).words(GAMMA_BLOCKS, first_block)
            drawn[again] = gammas(more, 0, TRIES, shape)
        return drawn

    def normals(self, dimension: int, *, splits: int = 1) -> Embeddings:
        """Return (rows, n) standard normals in float64, each the sum of ``splits`` independent ones over √splits.

        An attacker on the bits of one variate must then search the combinations of all (Holohan & Braghin 2021).
        """
        pairs = (dimension + 1) // 2
        noise = np.empty((self.rows, dimension))

        def work(start: int, stop: int) -> None:
            words = self.part(start, stop).words(pairs * splits)
            total = normals(np.ascontiguousarray(words[:, : 2 * pairs]), pairs)
            # Each split reads its own words: sums of the same words would not be independent.
            for k in range(1, splits):
                part = words[:, 2 * pairs * k : 2 * pairs * (k + 1)]
                total += normals(np.ascontiguousarray(part), pairs)
            if splits > 1:
                total /= np.sqrt(splits)
            noise[start:stop] = total[:, :dimension]

        in_chunks(self.rows, _chunk_rows(dimension * splits), work)
        return noise

    def add_noise(
        self,
        kind: NoiseKind,
        X: Embeddings,
        factors: Factors,
        root: Vector | None,
        step: float,
        out: Embeddings,
        *,
        more_blocks: int = 0,
    ) -> bool:
        """Write the rows of ``X`` with a fresh normal vector each to ``out``; return whether all are finite.

        ``factors`` reads the ``more_blocks`` counter blocks after the blocks of the normals.
        """
        n = X.shape[1]
        blocks = (n + 1) // 2 + more_blocks
        finite: list[bool] = []

        def work(start: int, stop: int) -> None:
            part = self.part(start, stop)
            # Words of the normals and of the factors come from one encryption call.
            words = part.words(blocks)
            scalars = factors(part, words)
            finite.append(release(kind, X[start:stop], words, scalars, root, step, out[start:stop]))

        # Threads write to separate rows, and a row's words do not depend on its chunk.
        in_chunks(len(X), _chunk_rows(n), work)
        return all(finite)

    def _starts(self) -> Words:
        if self.starts is not None:
            return self.starts
        # Row number in the high word: a row has 2⁶⁴ blocks before it meets the next row.
        starts = np.zeros((self.rows, 2), dtype=np.uint64)
        starts[:, 0] = np.arange(self._first, self._first + self.rows, dtype=np.uint64)
        return starts


Factors = Callable[[WordStream, Words], Vector]
"""Return the scalar factors of the rows of a stream, from the stream and its words."""

CHUNK_VALUES = 2**17


def _chunk_rows(dimension: int) -> int:
    return max(1, min(2048, CHUNK_VALUES // dimension))


def add_given(X: Embeddings, noise: Embeddings, factors: Vector, step: float, out: Embeddings) -> bool:
    """Write x + factor · noise to ``out``, rounded, on all cores."""
    finite: list[bool] = []

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        finite.append(release(NoiseKind.ADD_GIVEN, X[rows], noise[rows], factors[rows], None, step, out[rows]))

    in_chunks(len(X), _chunk_rows(X.shape[1]), work)
    return all(finite)


def resolve_stream(rng: RandomSource | WordStream, rows: int, *, owner: str = "resolve_stream") -> WordStream:
    """Return the stream of words of ``rows`` rows for ``rng``: secure for None, repeatable and insecure for a seed."""
    if rng is None:
        return WordStream(secrets.token_bytes(32), rows)
    if isinstance(rng, WordStream):
        if rng.rows != rows:
            raise IncompatibleError(f"{owner}: `rng` is a stream of {rng.rows} rows, not {rows}.", param="rng")
        return rng
    return WordStream(resolve_generator(rng, owner=owner).bytes(32), rows)
