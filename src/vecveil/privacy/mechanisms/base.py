"""Base class of mechanisms: check, draw, round to the grid, check again.

Finite precision: noise has 53 significant bits, and releases are rounded to a grid 2¹⁶ times finer than the noise and
2³⁶ times coarser than its draws, less by the ratio of the largest to the least deviation of a shape. Without the grid
the low-order bits of a release reveal which inputs are impossible (Mironov 2012). The grid is a power of two that
depends only on the mechanism's parameters; a later cast to float32 is post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, ReleaseError
from vecveil.privacy.accounting import Guarantee
from vecveil.privacy.randomness import WordStream, resolve_stream
from vecveil.types import Embeddings, Matrix, RandomSource, Vector
from vecveil.validation import check_embeddings

Arrays = Mapping[str, np.ndarray[Any, Any]]

# The grid is 2⁻¹⁶ of the noise: too fine to change utility, too coarse to show the bits of a draw.
GRID_BITS = 16
BLOCK_ROWS = 8192
BLOCK_VALUES = 2**19
"""Values per block that is checked and mapped at once, which bounds memory for any N."""


def grid_step(deviation: float) -> float:
    """Return the power of two at or below 2⁻¹⁶ of ``deviation``, the noise's deviation per coordinate."""
    # Division by a power of two is exact, so the grid adds no other error; the clip keeps 1/step finite.
    return float(2.0 ** np.clip(np.floor(np.log2(deviation)) - GRID_BITS, -1000, 1000))


class Mechanism(ABC):
    """Base class of mechanisms. A subclass whose noise law changes needs a new ``name``."""

    name: ClassVar[str]
    is_random: ClassVar[bool] = True
    checks_norms: ClassVar[bool] = False  # in `check_rows`, more closely than a protector does

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Return n."""

    @cached_property
    def least_deviation(self) -> float:
        """The noise's least standard deviation in any direction; 0 if no guarantee depends on a noise law."""
        return 0.0

    @cached_property
    def step(self) -> float:
        """The grid step of releases, 2⁻¹⁶ of `least_deviation` or the next smaller one; 0 for no rounding."""
        return grid_step(self.least_deviation) if self.least_deviation else 0.0

    @final
    def protect(self, X: Embeddings, *, rng: RandomSource | WordStream = None) -> Embeddings:
        """Return ``X`` with noise, in the same dtype, on the grid of `step`.

        Args:
            X: (N, n) float32 or float64, finite.
            rng: None draws a fresh cryptographic key; a seed or generator gives repeatable, insecure noise; a
                `vecveil.privacy.randomness.WordStream` has N rows.

        Raises:
            ReleaseError: the noise overflowed the dtype, or is below its spacing; nothing is returned.
        """
        owner = f"{type(self).__name__}.protect"
        # The release is checked for NaN instead, which saves a pass over X.
        X = check_embeddings(X, owner=owner, param="X", dimension=self.dimension, finite=False)
        # All blocks share one key: words are addressed by row number, so blocks never reuse words.
        stream = resolve_stream(rng, len(X), owner=owner)
        released = np.empty_like(X)
        for start in range(0, len(X), BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, len(X))
            if not self.release_block(X[start:stop], stream.part(start, stop), released[start:stop]):
                raise release_error(X, owner)
        return released

    @final
    def release_block(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        """Write the noisy rows of ``X`` (NaN allowed) to ``out``; return False and zeros unless all are finite."""
        finite = False
        try:
            # An overflow becomes infinity, which makes the whole release fail below.
            with np.errstate(over="ignore", invalid="ignore"):
                finite = self._release(X, stream, out)
        finally:
            # Nothing of a failed release may remain in the caller's buffer.
            if not finite:
                out[:] = 0
        return finite

    @abstractmethod
    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        """Write the noisy rows to ``out``; return whether every value is finite."""

    def takes(self, X: Embeddings) -> npt.NDArray[np.bool_]:
        """Return a mask (N,) of the rows of ``X`` that the mechanism accepts; ``X`` is finite."""
        return np.ones(len(X), dtype=bool)

    def check_rows(self, X: Embeddings) -> None:  # noqa: B027 - most mechanisms take every row
        """Raise InvalidInputError for rows that the mechanism rejects; ``X`` is finite."""

    def without_noise(self, X: Embeddings) -> Embeddings:
        """Return the deterministic part of the mechanism: a copy of ``X`` for additive noise."""
        return X.copy()

    @abstractmethod
    def noise_covariance(self) -> Matrix:
        """Return the (n, n) covariance of the added noise, which is public: attackers know it."""

    def noise_ratio(self, rms_norm: float) -> float:
        """Return the root mean square norm of the perturbation divided by the vectors'."""
        return float(np.sqrt(np.trace(self.noise_covariance()))) / rms_norm

    def rescaled(self, factor: float) -> Mechanism | None:
        """Return the mechanism with ``factor`` times the noise, or None if its noise has no scale."""
        return None

    def describe(self) -> str:
        """Return the scale of the noise, for a ``repr``."""
        parameters = self.parameters()
        names = [name for name in ("epsilon", "sigma", "radius") if name in parameters]
        return "".join(f" {name}={parameters[name]:.4g}," for name in names)

    def weakness(self, rms_norm: float) -> list[str]:
        """Return sentences on an ε that bounds little for vectors of this norm, with the figure that shows it."""
        return []

    def direction(self, X: Embeddings) -> Embeddings:
        """Return textcrafter's v(e) for the rows of ``X``; raise InvalidInputError for any other mechanism."""
        raise InvalidInputError(
            f"Mechanism {self.name!r} has no reference direction; only textcrafter's perturbations do.", param="method"
        )

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return the distance of each pair of rows, Euclidean by default; ``down`` is the (m, n) matrix of T."""
        # float64: near rows differ only in the last digits of float32.
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        return np.asarray(np.linalg.norm(differences, axis=1))

    def exact_behind(self, down: Matrix | None) -> bool:
        """Return whether `advantage` at `distances` is exact after the map ``down``, or an upper bound."""
        return down is None or len(down) == self.dimension

    def advantage(self, distances: Vector) -> Vector:
        """Return the largest advantage of any attacker at these distances; by default 1 for different inputs."""
        return np.where(np.asarray(distances) > 0, 1.0, 0.0)

    @abstractmethod
    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return the guarantee of y = T(x + z), with T given by its (m, n) matrix ``down``."""

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        return {}

    def parameters(self) -> dict[str, float]:
        """Return the scalar parameters that a protector file stores."""
        return {}

    @classmethod
    @abstractmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        """Return the mechanism of a protector file; the ValueError names an invalid part."""


def release_error(X: Embeddings, owner: str) -> ReleaseError:
    """Return the error for a release that is not finite; raise `InvalidInputError` if ``X`` itself is not."""
    check_embeddings(X, owner=owner, param="X")
    return ReleaseError(
        f"{owner}: the noise left the range of {X.dtype}, or the vectors are so long that rounding removes it, "
        "so nothing was released. Use less noise, float64, or vectors of ordinary length."
    )
