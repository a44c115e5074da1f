"""Dimension shuffling: one secret permutation of the coordinates. Obfuscation, not protection."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from vecveil.privacy.accounting import Guarantee, obfuscation_guarantee
from vecveil.privacy.mechanisms.base import Arrays, Mechanism
from vecveil.privacy.randomness import WordStream
from vecveil.types import Embeddings, Matrix
from vecveil.validation import check_count


def random_permutation(dimension: int) -> npt.NDArray[np.intp]:
    """Return a permutation (n,) drawn with the operating system's generator."""
    n = check_count(dimension, owner="random_permutation", param="dimension")
    order = list(range(n))
    # The permutation is the secret: a seeded generator would reveal it.
    secrets.SystemRandom().shuffle(order)
    return np.array(order, dtype=np.intp)


@dataclass(frozen=True, eq=False, repr=False)
class Shuffle(Mechanism):
    """Permutes the coordinates in the same way for every vector (a baseline of TextCrafter).

    Guarantee:
        None. Norms and inner products do not change, so attacks on distances work on shuffled vectors, and a few known
        clean vectors reveal the permutation.

    Attributes:
        permutation: (n,); coordinate i of a release is coordinate permutation[i] of the vector.
    """

    permutation: npt.NDArray[np.intp]

    name: ClassVar[str] = "shuffle"
    is_random: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"Shuffle(n={self.dimension})"

    @property
    def dimension(self) -> int:
        return len(self.permutation)

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        np.take(X, self.permutation, axis=1, out=out)
        return bool(np.isfinite(out).all())

    def without_noise(self, X: Embeddings) -> Embeddings:
        """Return the shuffled rows: queries must be shuffled like the store."""
        return np.ascontiguousarray(X[:, self.permutation])

    def noise_covariance(self) -> Matrix:
        return np.zeros((self.dimension, self.dimension))

    def guarantee(self, *, down: Matrix | None = None, fitted_on: str = "") -> Guarantee:
        return obfuscation_guarantee(
            dimension=self.dimension,
            what="a secret permutation of the coordinates",
            broken_by="Norms and inner products are unchanged, and one known pair of a clean and a released vector "
            "with n different values gives the permutation.",
        )

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the permutation, which makes the file itself the secret."""
        return {"permutation": self.permutation.astype(np.float64)}

    @classmethod
    def from_saved(cls, parameters: Mapping[str, Any], arrays: Arrays, dimension: int) -> Self:
        stored = arrays["permutation"]
        if stored.shape != (dimension,) or not np.array_equal(np.sort(stored), np.arange(dimension)):
            raise ValueError("permutation")
        return cls(stored.astype(np.intp))
