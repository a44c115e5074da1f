"""Noise shapes: the symmetric positive definite matrix Σ that stretches noise, diagonal or full.

Every shape is scaled so that trace(Σ) = n, so that Σ = I is exactly isotropic noise and shapes can
be compared at the same noise norm (methods: SPARSE §4.2, "trace(Σ) = trace(I)").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.checks import check_count, check_positive
from vecveil.errors import InvalidInputError, message
from vecveil.types import Embeddings, Matrix, Vector

__all__ = ["NoiseShape"]

_SMALLEST_FLOOR = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class NoiseShape:
    """Σ with trace n, held as its diagonal (n,) or as a full matrix (n, n).

    Build one with `isotropic`, `from_diagonal` or `from_matrix`; the constructor trusts its input.

    Attributes:
        diagonal: the diagonal of Σ, or None for a full matrix.
        matrix: Σ, or None for a diagonal shape.
    """

    diagonal: Vector | None = None
    matrix: Matrix | None = None

    def __repr__(self) -> str:
        kind = "full" if self.diagonal is None else "isotropic" if self.is_isotropic else "diagonal"
        return f"NoiseShape({kind}, n={self.dimension})"

    @classmethod
    def isotropic(cls, dimension: int) -> NoiseShape:
        """Return Σ = I: the same noise in every direction."""
        n = check_count(dimension, owner="NoiseShape.isotropic", param="dimension", minimum=1)
        return cls(diagonal=np.ones(n))

    @classmethod
    def from_diagonal(cls, sensitivity: Vector, *, floor: float = 1e-6) -> NoiseShape:
        """Return Σ = diag(sensitivity + floor), scaled to trace n (SPARSE, Algorithm 1).

        Args:
            sensitivity: (n,) non-negative weights, for example a learnt mask.
            floor: added to every weight. It is a privacy parameter: against Euclidean neighbours
                the guarantee is ε/√λ_min(Σ), so a small floor leaves the low-weight dimensions
                almost bare.
        """
        owner = "NoiseShape.from_diagonal"
        floor = check_positive(floor, owner=owner, param="floor")
        values = _numbers(sensitivity, owner=owner, param="sensitivity")
        if values.ndim != 1 or values.size == 0 or (values < 0).any():
            wanted = "a finite, non-negative array of shape (n,)"
            got = f"shape {values.shape}" + (" with negative values" if values.ndim == 1 else "")
            raise InvalidInputError(message(owner, "sensitivity", wanted, got))
        values = values + floor
        return cls(diagonal=values * (values.size / values.sum()))

    @classmethod
    def from_matrix(cls, matrix: Matrix, *, floor: float = 1e-2) -> NoiseShape:
        """Return ``matrix`` as a shape: symmetrised, eigenvalues floored, scaled to trace n.

        Args:
            matrix: (n, n) symmetric, positive semi-definite up to rounding.
            floor: eigenvalues below this share of the mean eigenvalue are raised to it, in (0, 1].
        """
        owner = "NoiseShape.from_matrix"
        floor = check_positive(floor, owner=owner, param="floor")
        values = _numbers(matrix, owner=owner, param="matrix")
        if values.ndim != 2 or values.size == 0 or values.shape[0] != values.shape[1]:
            got = f"shape {values.shape}"
            raise InvalidInputError(message(owner, "matrix", "a finite (n, n) array", got))
        if floor > 1:
            raise InvalidInputError(message(owner, "floor", "in (0, 1]", floor))
        eigenvalues, vectors = np.linalg.eigh((values + values.T) / 2)
        if eigenvalues[-1] <= 0:
            raise InvalidInputError(
                message(owner, "matrix", "positive semi-definite and not zero",
                        f"largest eigenvalue {eigenvalues[-1]:.3g}")
            )  # fmt: skip
        eigenvalues = np.maximum(eigenvalues, floor * eigenvalues.clip(min=0).mean())
        eigenvalues *= eigenvalues.size / eigenvalues.sum()
        return cls(matrix=(vectors * eigenvalues) @ vectors.T)

    @property
    def dimension(self) -> int:
        """Return n."""
        array = self.diagonal if self.diagonal is not None else self.matrix
        assert array is not None  # guaranteed by the constructors
        return int(array.shape[0])

    @property
    def is_isotropic(self) -> bool:
        """Return whether Σ is the identity."""
        d = self.diagonal
        return d is not None and bool(np.all(d == d[0])) and abs(float(d[0]) - 1) < 1e-9

    @cached_property
    def _spectrum(self) -> tuple[Vector, Matrix | None]:
        """Eigenvalues, and the eigenvectors of a full matrix."""
        if self.diagonal is not None:
            return self.diagonal, None
        assert self.matrix is not None
        eigenvalues, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(eigenvalues, _SMALLEST_FLOOR), vectors

    @property
    def smallest_eigenvalue(self) -> float:
        """Return λ_min(Σ): where the noise is least."""
        return float(self._spectrum[0].min())

    @property
    def largest_eigenvalue(self) -> float:
        """Return λ_max(Σ): where the noise is greatest."""
        return float(self._spectrum[0].max())

    @cached_property
    def root(self) -> Vector | Matrix:
        """Σ^{1/2}: (n,) for a diagonal shape, the symmetric root (n, n) for a full one."""
        eigenvalues, vectors = self._spectrum
        root: Vector | Matrix = np.sqrt(eigenvalues)
        return root if vectors is None else np.asarray((vectors * root) @ vectors.T)

    @cached_property
    def root32(self) -> Vector | Matrix:
        """Σ^{1/2} in float32, for float32 releases."""
        return self.root.astype(np.float32)

    def stretch(self, directions: Embeddings) -> Embeddings:
        """Return ``directions`` (N, n) times Σ^{1/2}, in their own dtype."""
        root = self.root32 if directions.dtype == np.float32 else self.root
        return np.asarray(directions * root if root.ndim == 1 else directions @ root)

    def covariance(self) -> Matrix:
        """Return Σ as an (n, n) float64 array."""
        if self.diagonal is not None:
            return np.diag(self.diagonal)
        return np.array(self.matrix, dtype=np.float64)

    def norm(self, differences: Embeddings) -> Vector:
        """Return the Mahalanobis norm ‖v‖_Σ = sqrt(vᵀ Σ⁻¹ v) of each row v, (N, n)."""
        eigenvalues, vectors = self._spectrum
        rotated = np.asarray(differences, dtype=np.float64)
        rotated = rotated if vectors is None else rotated @ vectors
        norms: Vector = np.sqrt((rotated**2 / eigenvalues).sum(axis=1))
        return norms

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that a protector file stores."""
        if self.diagonal is not None:
            return {"shape.diagonal": self.diagonal}
        assert self.matrix is not None
        return {"shape.matrix": self.matrix}


def _numbers(value: Any, *, owner: str, param: str) -> npt.NDArray[np.float64]:
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        got = type(value).__name__
        raise InvalidInputError(message(owner, param, "an array of numbers", got)) from None
    if not np.isfinite(values).all():
        raise InvalidInputError(message(owner, param, "finite", "NaN or infinity in it"))
    return values
