"""What an attacker has: labelled vectors, and what a method declares about itself.

An attacker sees released vectors, never the method. With a release oracle it may protect its own
training vectors as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.checks import check_embeddings
from vecveil.errors import InvalidInputError, message
from vecveil.metrics.intervals import group_index
from vecveil.metrics.token_inference import check_labels
from vecveil.types import Embeddings, Matrix, Release

__all__ = ["Knowledge", "LabelledVectors"]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledVectors:
    """Vectors, which tokens each text holds, and which texts belong together.

    Attributes:
        X: (N, n) float32 or float64, finite.
        L: (N, V) 0/1 token labels, kept as booleans.
        groups: (N,) group ids; None if every text stands alone.
        without: (N, n) vectors of the same texts with the concept removed, or None.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    without: Embeddings | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        X = check_embeddings(self.X, owner=owner, param="X", min_rows=1)
        L = check_labels(self.L, owner=owner, param="L")
        if len(L) != len(X):
            raise InvalidInputError(
                message(owner, "L", f"one row for each of the {len(X)} vectors", f"{len(L)} rows")
            )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "L", L)
        if self.groups is not None:
            group_index(self.groups, len(X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))
        if self.without is not None:
            rest = check_embeddings(
                self.without, owner=owner, param="without", dimension=X.shape[1]
            )
            if len(rest) != len(X):
                wanted = f"one row for each of the {len(X)} vectors"
                raise InvalidInputError(message(owner, "without", wanted, f"{len(rest)} rows"))
            object.__setattr__(self, "without", rest)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: npt.NDArray[np.intp]) -> LabelledVectors:
        """Return the given rows."""
        groups = None if self.groups is None else self.groups[rows]
        without = None if self.without is None else self.without[rows]
        return LabelledVectors(self.X[rows], self.L[rows], groups, without)


@dataclass(frozen=True, eq=False, repr=False)
class Knowledge:
    """What an attacker knows of the protection: perhaps an oracle, perhaps the noise's covariance.

    Attributes:
        dimension: Dimension m of the released vectors.
        release: Protects clean vectors afresh; None if the training vectors are released ones.
        noise_covariance: (m, m) declared covariance of the noise in the release, or None.
    """

    dimension: int
    release: Release | None = None
    noise_covariance: Matrix | None = None

    @property
    def adaptive(self) -> bool:
        """Whether fresh releases can be drawn."""
        return self.release is not None

    def draw(self, X: Embeddings, rng: np.random.Generator) -> Embeddings:
        """Return released vectors for ``X``: fresh from the oracle, or ``X`` itself without one."""
        if self.release is None:
            return X
        released = check_embeddings(self.release(X, rng), owner="Attack", param="release")
        if released.shape != (len(X), self.dimension):
            raise InvalidInputError(
                message(
                    "Attack",
                    "release",
                    f"a function that returns shape {(len(X), self.dimension)}",
                    f"shape {released.shape}",
                    "Training and test vectors must be released alike.",
                )
            )
        return released
