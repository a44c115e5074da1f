"""Base class of mechanisms: one public method that checks, draws, rounds and checks again.

Finite precision. Noise is drawn with 53 significant bits and a release is rounded to a grid that is 2¹⁶
times finer than the noise and 2³⁶ times coarser than what the noise is drawn with, less by the ratio of the
largest to the least deviation of a shape (Mironov 2012: otherwise the low-order bits of a release tell which
inputs are impossible). The grid is a power of two that depends on the mechanism's parameters alone; a cast to
float32 after it is post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt

from vecveil.accounting import Guarantee
from vecveil.errors import ReleaseError
from vecveil.randomness import WordStream, kernel, resolve_stream
from vecveil.randomness.elementary import Words
from vecveil.runtime import in_chunks
from vecveil.types import Embeddings, Matrix, RandomSource, Vector
from vecveil.validation import check_embeddings

__all__ = [
    "BLOCK_ROWS",
    "GRID_BITS",
    "Arrays",
    "Mechanism",
    "grid_step",
    "not_finite",
]

Arrays = Mapping[str, np.ndarray[Any, Any]]

GRID_BITS = 16
BLOCK_ROWS = 8192
BLOCK_VALUES = 2**19
CHUNK_VALUES = 2**17
"""A block is checked and mapped at once, a chunk is what one thread draws: neither grows with N."""


def grid_step(deviation: float) -> float:
    """Return the grid for noise of that standard deviation per coordinate: a power of two, 2⁻¹⁶ of it."""
    return float(2.0 ** np.clip(np.floor(np.log2(deviation)) - GRID_BITS, -1000, 1000))


class Mechanism(ABC):
    """Adds noise to embeddings. A mechanism whose noise law changes gets a new ``name``."""

    name: ClassVar[str]
    is_random: ClassVar[bool] = True

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Return n."""

    @property
    @abstractmethod
    def step(self) -> float:
        """Return the grid that releases are rounded to."""

    @final
    def protect(self, X: Embeddings, *, rng: RandomSource | WordStream = None) -> Embeddings:
        """Return ``X`` (N, n) with noise, in the same dtype, on the grid of `step`.

        Args:
            X: (N, n) float32 or float64, finite.
            rng: None for a fresh cryptographic key; a seed or generator for repeatable, insecure noise; or
                a `vecveil.randomness.WordStream` of N rows.

        Raises:
            InvalidInputError: wrong type, shape or a NaN.
            IncompatibleError: another dimension.
            ReleaseError: the noise overflowed the dtype; nothing is returned.
        """
        owner = f"{type(self).__name__}.protect"
        X = check_embeddings(X, owner=owner, param="X", dimension=self.dimension, finite=False)
        # One key for the whole call: rows are addressed by number, blocks share it.
        stream = resolve_stream(rng, len(X), owner=owner)
        released = np.empty_like(X)
        for start in range(0, len(X), BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, len(X))
            if not self.release_block(
                X[start:stop], stream.part(start, stop), released[start:stop]
            ):
                raise not_finite(X, owner)
        return released

    @final
    def release_block(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        """Write the noisy rows of ``X`` to ``out``; return whether all are finite. If not, out is zeros.

        Args:
            X: contiguous rows of the right dtype and dimension, not yet checked for NaN.
            out: of the same shape and dtype.
        """
        finite = False
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                finite = self._release(X, stream, out)
        finally:
            # Nothing of a failed release may remain in the caller's buffer.
            if not finite:
                out[:] = 0
        return finite

    @abstractmethod
    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        """Write the noised rows to ``out``; return whether every value is finite."""

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        """Return for each row of ``X`` (N, n), finite, whether the mechanism takes it: (N,)."""
        return np.ones(len(X), dtype=bool)

    def check_rows(self, X: Embeddings) -> None:  # noqa: B027 - most mechanisms take every row
        """Raise InvalidInputError for rows that the mechanism does not take; ``X`` is finite."""

    def without_noise(self, X: Embeddings) -> Embeddings:
        """Return the deterministic part of the mechanism: a copy of ``X`` where it only adds noise."""
        return X.copy()

    @abstractmethod
    def noise_covariance(self) -> Matrix:
        """Return the covariance of the added noise, (n, n): declared to attackers."""

    def distances(
        self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None
    ) -> Vector:
        """Return the distance of each pair of rows in the mechanism's own metric, behind T: Euclidean by default."""
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        return np.asarray(np.linalg.norm(differences, axis=1))

    def advantage(self, distances: Vector) -> Vector:
        """Return the largest advantage of any attacker at telling two inputs so far apart.

        By default 1 for any two inputs that differ: an upper bound for every mechanism, exact without noise.
        """
        return np.where(np.asarray(distances) > 0, 1.0, 0.0)

    @abstractmethod
    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return what is promised of y = T(x + z), T given by its (m, n) matrix ``down``."""

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores: none by default."""
        return {}

    def parameters(self) -> dict[str, float]:
        """Return the scalar parameters that a protector file stores: none by default."""
        return {}

    @classmethod
    @abstractmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        """Return the mechanism of a protector file; raises ValueError naming a part that is wrong."""


def not_finite(X: Embeddings, owner: str) -> ReleaseError:
    """Return the error for a release that is not finite; raises if ``X`` is to blame, naming the row."""
    check_embeddings(X, owner=owner, param="X")
    return ReleaseError(
        f"{owner}: the noise left the range of {X.dtype}, or the vectors are so long that it is lost beside "
        "them, so nothing was released. Use less noise, float64, or vectors of ordinary length."
    )


def chunk_rows(dimension: int) -> int:
    """Return how many rows one thread draws at a time."""
    return max(1, min(2048, CHUNK_VALUES // dimension))


Factors = Callable[[WordStream, Words], Vector]
"""The scalar factors of some rows, from their stream and its words."""


def add_noise(
    kind: kernel.NoiseKind,
    X: Embeddings,
    stream: WordStream,
    factors: Factors,
    root: Vector | None,
    step: float,
    out: Embeddings,
    *,
    more_blocks: int = 0,
) -> bool:
    """Write noisy rows to ``out`` with a fresh normal vector for each, on all cores.

    Args:
        more_blocks: how many counter blocks behind those of the normals ``factors`` reads.
    """
    n = X.shape[1]
    blocks = (n + 1) // 2 + more_blocks
    finite: list[bool] = []

    def work(start: int, stop: int) -> None:
        part = stream.part(start, stop)
        words = part.words(blocks)
        scalars = factors(part, words)
        ok = kernel.release(kind, X[start:stop], words, scalars, root, step, out[start:stop])
        finite.append(ok)

    # Threads write to separate rows, and a row's words do not depend on its chunk.
    in_chunks(len(X), chunk_rows(n), work)
    return all(finite)


def add_given(
    X: Embeddings, noise: Embeddings, factors: Vector, step: float, out: Embeddings
) -> bool:
    """Write x + factor · noise to ``out``, rounded, on all cores."""
    finite: list[bool] = []

    def work(start: int, stop: int) -> None:
        finite.append(
            kernel.release(
                kernel.NoiseKind.ADD_GIVEN,
                X[start:stop], noise[start:stop], factors[start:stop], None, step, out[start:stop],
            )
        )  # fmt: skip

    in_chunks(len(X), chunk_rows(X.shape[1]), work)
    return all(finite)


def standard_normals(stream: WordStream, dimension: int, *, splits: int = 1) -> Embeddings:
    """Return (rows, n) standard normals in float64.

    Args:
        splits: each variate is the sum of so many independent ones over √splits (Holohan & Braghin 2021):
            an attacker on the bits of one must then search the combinations of all.
    """
    pairs = (dimension + 1) // 2
    noise = np.empty((stream.rows, dimension))

    def work(start: int, stop: int) -> None:
        words = stream.part(start, stop).words(pairs * splits)
        total = kernel.normals(np.ascontiguousarray(words[:, : 2 * pairs]), pairs)
        for k in range(1, splits):
            part = words[:, 2 * pairs * k : 2 * pairs * (k + 1)]
            total += kernel.normals(np.ascontiguousarray(part), pairs)
        if splits > 1:
            total /= np.sqrt(splits)
        noise[start:stop] = total[:, :dimension]

    in_chunks(stream.rows, chunk_rows(dimension * splits), work)
    return noise
