"""What an attacker knows of the protection: a release oracle, what the method declares, or neither.

An attacker sees released vectors, never the method. With a release oracle it may protect its own
training vectors as often as it likes: its training vectors are then clean ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from vecveil.attacks.evidence import Evidence
from vecveil.errors import InvalidInputError
from vecveil.types import Embeddings, Matrix, Release
from vecveil.validation import check_embeddings

__all__ = ["Knowledge"]


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
            raise InvalidInputError.of("Attack", "release",
                                       f"a function that returns shape {(len(X), self.dimension)}",
                                       f"shape {released.shape}",
                                       "Training and test vectors must be released alike.")  # fmt: skip
        return released

    def check(self, train: Evidence, *, owner: str) -> None:
        """Refuse training vectors or a covariance that do not fit the released vectors.

        Raises:
            InvalidInputError: without an oracle the training vectors have another dimension than the
                released ones, or the covariance has another shape.
        """
        if self.release is None and train.dimension != self.dimension:
            raise InvalidInputError.of(owner, "train", f"of the released dimension {self.dimension}",
                                       f"dimension {train.dimension}",
                                       "Without a release oracle the attack learns from released vectors.")  # fmt: skip
        S = self.noise_covariance
        if S is not None:
            size = (self.dimension, self.dimension)
            if np.shape(S) != size or not np.isfinite(S).all():
                raise InvalidInputError.of(
                    owner, "noise_covariance", f"finite, of shape {size}", f"shape {np.shape(S)}"
                )
            values = np.linalg.eigvalsh((np.asarray(S) + np.asarray(S).T) / 2)
            skew = float(np.abs(np.asarray(S) - np.asarray(S).T).max(initial=0.0))
            size_of = float(np.abs(values).max(initial=0.0))
            if skew > 1e-6 * size_of or values.min(initial=0.0) < -1e-6 * size_of:
                raise InvalidInputError.of(owner, "noise_covariance",
                                           "symmetric, with eigenvalues of at least 0", "another matrix")  # fmt: skip

    def digest(self, X: Embeddings) -> str:
        """Return a hash of what is declared, and of what the oracle does to two rows of ``X``.

        An oracle that does not heed its generator (a secret one, for example) is known by its presence alone.
        """
        found = hashlib.sha256(str((self.dimension, self.adaptive)).encode())
        if self.noise_covariance is not None:
            found.update(np.ascontiguousarray(self.noise_covariance, dtype=np.float64).tobytes())
        if self.adaptive:
            one, other = (self.draw(X[:2], np.random.default_rng(0)) for _ in range(2))
            if np.array_equal(one, other):
                found.update(np.ascontiguousarray(one).tobytes())
        return found.hexdigest()[:32]
