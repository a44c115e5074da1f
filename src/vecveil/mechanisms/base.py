"""What every mechanism shares: one public method that checks, draws, and checks again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

import numpy as np

from vecveil.accounting import Guarantee
from vecveil.checks import check_embeddings
from vecveil.errors import ReleaseError
from vecveil.randomness import resolve_generator
from vecveil.types import Embeddings, Matrix, RandomSource

__all__ = ["Mechanism"]

BLOCK_ROWS = 8192
"""Rows that are noised at once, so that extra memory does not grow with N."""


class Mechanism(ABC):
    """Adds noise to embeddings. A mechanism whose noise law changes gets a new ``name``."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Return n."""

    @final
    def protect(self, X: Embeddings, *, rng: RandomSource = None) -> Embeddings:
        """Return ``X`` (N, n) with noise, in the same dtype.

        Args:
            X: (N, n) float32 or float64, finite.
            rng: None for the cryptographic generator; a seed or generator for repeatable, insecure
                noise.

        Raises:
            InvalidInputError: wrong type, shape or a NaN.
            IncompatibleError: another dimension.
            ReleaseError: the noise overflowed the dtype; nothing is returned.
        """
        owner = f"{type(self).__name__}.protect"
        X = check_embeddings(X, owner=owner, param="X", dimension=self.dimension)
        generator = resolve_generator(rng, owner=owner)
        released = np.empty_like(X)
        for start in range(0, len(X), BLOCK_ROWS):
            block = X[start : start + BLOCK_ROWS]
            with np.errstate(over="ignore", invalid="ignore"):
                noisy = self._protect(block, generator)
            whole = noisy.shape == block.shape and noisy.dtype == block.dtype
            if not whole or not np.isfinite(noisy).all():
                raise ReleaseError(
                    f"{owner}: the noise left the range of {X.dtype}, so nothing was released. "
                    "Use a larger epsilon or float64 vectors."
                )
            released[start : start + BLOCK_ROWS] = noisy
        return released

    @abstractmethod
    def _protect(self, X: Embeddings, rng: np.random.Generator) -> Embeddings:
        """Return the noised rows, same shape and dtype."""

    @abstractmethod
    def noise_covariance(self) -> Matrix:
        """Return the covariance of the added noise, (n, n): declared to attackers."""

    @abstractmethod
    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        """Return what is promised of y = T(x + z), T given by its (m, n) matrix ``down``."""

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""

    @abstractmethod
    def parameters(self) -> dict[str, float]:
        """Return the scalar parameters that a protector file stores."""
