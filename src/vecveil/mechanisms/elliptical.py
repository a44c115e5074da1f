"""Elliptical noise: Laplace or Gaussian noise stretched by a shape Σ.

- Laplace: density ∝ exp(−ε‖z‖_Σ), Z = Y Σ^{1/2} N/‖N‖ with Y ~ Gamma(n, 1/ε) (SPARSE, Algorithm 1).
- Gaussian: Z = σ Σ^{1/2} N.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from vecveil.mechanisms.base import BLOCK_VALUES, Arrays, Mechanism, add_given, add_noise, standard_normals
from vecveil.randomness import WordStream, kernel
from vecveil.randomness.elementary import Words, row_dots
from vecveil.randomness.stream import GAMMA_BLOCKS
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count


class EllipticalMechanism(Mechanism):
    """x + Z, Z = R Σ^{1/2} N with a radius R that a subclass chooses.

    Attributes:
        shape: Σ, trace n.
        splits: independent variates per normal; see `vecveil.mechanisms.base.standard_normals`.
    """

    shape: NoiseShape
    splits: int

    def __post_init__(self) -> None:
        check_count(self.splits, owner=type(self).__name__, param="splits", maximum=16)

    @property
    @abstractmethod
    def _laplace_epsilon(self) -> float | None:
        """ε of Laplace noise; None for Gaussian noise."""

    @property
    @abstractmethod
    def _deviation(self) -> float:
        """Standard deviation of the noise per coordinate for Σ = I."""

    @cached_property
    def dimension(self) -> int:
        return self.shape.dimension

    @cached_property
    def least_deviation(self) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(self._deviation * np.sqrt(self.shape.smallest_eigenvalue))

    def _release(self, X: Embeddings, stream: WordStream, out: Embeddings) -> bool:
        shape, epsilon, step, n = self.shape, self._laplace_epsilon, self.step, self.dimension
        at = (n + 1) // 2 * self.splits  # first counter block after the normals

        def factors(part: WordStream, words: Words) -> Vector:
            if epsilon is None:
                # Gaussian noise has one factor σ; the Laplace radius is Gamma(n, 1/ε) per row.
                return np.full(part.rows, self._deviation)
            return part.gammas(float(n), at, words, at) / epsilon

        # The kernel draws, scales and adds in one pass; other shapes need a matrix product between.
        if shape.is_diagonal and self.splits == 1:
            kind = kernel.NoiseKind.ADD if epsilon is None else kernel.NoiseKind.ADD_DIRECTION
            root = None if shape.is_isotropic else np.ascontiguousarray(shape.root)
            more = 0 if epsilon is None else GAMMA_BLOCKS
            return add_noise(kind, X, stream, factors, root, step, out, more_blocks=more)
        finite = True
        rows = max(1, BLOCK_VALUES // n)
        for start in range(0, len(X), rows):
            stop = min(start + rows, len(X))
            part = stream.part(start, stop)
            noise = standard_normals(part, n, splits=self.splits)
            if epsilon is None:
                scalars = np.full(part.rows, self._deviation)
            else:
                # Divide by ‖N‖ before Σ^{1/2} stretches: Algorithm 1 draws the direction on the sphere.
                scalars = part.gammas(float(n), at) / epsilon / np.sqrt(row_dots(noise, noise))
            stretched = noise if shape.is_isotropic else shape.correlate(noise)
            finite &= add_given(X[start:stop], stretched, scalars, step, out[start:stop])
        return finite

    def distances(self, first: Embeddings, second: Embeddings, *, down: Matrix | None = None) -> Vector:
        """Return ‖x − x'‖_Σ of each pair of rows, or the norm of T(x − x') in (TΣTᵀ)⁺ after a map T.

        ``down`` is T as (m, n) of full row rank; a square T is invertible and changes no distance.
        """
        # float64: near rows differ only in the last digits of float32.
        differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
        if down is None or len(down) == self.dimension:
            return self.shape.norm(differences)
        # Post-processing by T hides its kernel: the quotient distance is the norm in (TΣTᵀ)⁺.
        values, vectors = np.linalg.eigh(down @ self.shape.covariance() @ down.T)
        return np.asarray(np.linalg.norm(differences @ down.T @ (vectors / np.sqrt(values)), axis=1))

    def to_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {} if self.shape.is_isotropic else self.shape.to_arrays()


def saved_shape(arrays: Arrays, dimension: int) -> NoiseShape:
    """Return the shape of a protector file: the identity if the file has no shape arrays."""
    if any(name.startswith("shape.") for name in arrays):
        return NoiseShape.from_arrays(arrays, dimension)
    return NoiseShape.isotropic(dimension)


def rms_norm_of_epsilon(epsilon: float, dimension: int) -> float:
    """Return sqrt(E‖Z‖²) = sqrt(n(n+1))/ε of Laplace noise, the same for every Σ of trace n."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(dimension * (dimension + 1.0)) / epsilon)


def epsilon_of_rms_norm(rms_norm: float, dimension: int) -> float:
    """Return the ε at which the noise has root mean square norm ``rms_norm``."""
    return float(np.sqrt(dimension * (dimension + 1.0)) / rms_norm)
