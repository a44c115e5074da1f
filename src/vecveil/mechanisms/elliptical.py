"""Noise that a shape stretches: the elliptical Laplace mechanism and the Gaussian one.

- Laplace: density ∝ exp(−ε‖z‖_Σ), Z = Y Σ^{1/2} N/‖N‖ with Y ~ Gamma(n, 1/ε) (SPARSE, Algorithm 1).
- Gaussian: Z = σ Σ^{1/2} N.
"""

from __future__ import annotations

import numpy as np

from vecveil.mechanisms.base import BLOCK_VALUES, add_given, add_noise, standard_normals
from vecveil.randomness import WordStream, kernel
from vecveil.randomness.elementary import Words, row_dots
from vecveil.randomness.stream import GAMMA_BLOCKS
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector

__all__ = [
    "angles",
    "certain_advantage",
    "epsilon_of_rms_norm",
    "euclidean_distances",
    "quotient_distances",
    "release_elliptical",
    "rms_norm_of_epsilon",
    "words_of_a_row",
]


def quotient_distances(
    first: Embeddings, second: Embeddings, shape: NoiseShape, down: Matrix | None
) -> Vector:
    """Return ‖x − x'‖_Σ of each pair of rows, or with a map T the norm of T(x − x') in (TΣTᵀ)⁺.

    Args:
        down: T as (m, n) of full row rank; a square one loses nothing, and is left out.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if down is None or len(down) == shape.dimension:
        return shape.norm(differences)
    values, vectors = np.linalg.eigh(down @ shape.covariance() @ down.T)
    distances: Vector = np.linalg.norm(differences @ down.T @ (vectors / np.sqrt(values)), axis=1)
    return distances


def angles(first: Embeddings, second: Embeddings) -> Vector:
    """Return the angle in radians between each pair of rows, accurate for small ones."""
    A, B = (np.asarray(X, dtype=np.float64) for X in (first, second))
    A = A / np.linalg.norm(A, axis=1, keepdims=True)
    B = B / np.linalg.norm(B, axis=1, keepdims=True)
    found: Vector = 2 * np.arctan2(np.linalg.norm(A - B, axis=1), np.linalg.norm(A + B, axis=1))
    return found


def euclidean_distances(first: Embeddings, second: Embeddings) -> Vector:
    """Return the Euclidean distance of each pair of rows, (N,)."""
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    norms: Vector = np.linalg.norm(differences, axis=1)
    return norms


def certain_advantage(distances: Vector) -> Vector:
    """Return 1 for every two inputs that differ: where a release tells any two of them apart."""
    return np.where(np.asarray(distances) > 0, 1.0, 0.0)


def rms_norm_of_epsilon(epsilon: float, dimension: int) -> float:
    """Return sqrt(E‖Z‖²) = sqrt(n(n+1))/ε of Laplace noise, the same for every Σ of trace n."""
    with np.errstate(over="ignore"):
        return float(np.sqrt(dimension * (dimension + 1.0)) / epsilon)


def epsilon_of_rms_norm(rms_norm: float, dimension: int) -> float:
    """Return the ε whose noise has the root mean square norm ``rms_norm``."""
    return float(np.sqrt(dimension * (dimension + 1.0)) / rms_norm)


def words_of_a_row(shape: NoiseShape, *, laplace: bool, splits: int) -> int:
    """Return how many blocks of words `release_elliptical` begins with for each row, where it takes them at once."""
    if not shape.is_diagonal or splits > 1:
        return 0
    return (shape.dimension + 1) // 2 + (GAMMA_BLOCKS if laplace else 0)


def release_elliptical(
    X: Embeddings,
    stream: WordStream,
    out: Embeddings,
    *,
    shape: NoiseShape,
    step: float,
    epsilon: float | None = None,
    sigma: float | None = None,
    splits: int = 1,
) -> bool:
    """Write x + Z to ``out``; return whether all is finite.

    Args:
        epsilon: for Laplace noise; else sigma for Gaussian noise.
    """
    n = shape.dimension
    at = (n + 1) // 2 * splits  # the blocks behind the normals

    def factors(part: WordStream, words: Words) -> Vector:
        if epsilon is None:
            return np.full(part.rows, sigma)
        return part.gammas(float(n), at, words, at) / epsilon

    if shape.is_diagonal and splits == 1:
        kind = kernel.Kind.ADD if epsilon is None else kernel.Kind.ADD_DIRECTION
        root = None if shape.is_isotropic else np.ascontiguousarray(shape.root)
        more = 0 if epsilon is None else GAMMA_BLOCKS
        return add_noise(kind, X, stream, factors, root, step, out, more_blocks=more)
    finite = True
    rows = max(1, BLOCK_VALUES // n)
    for start in range(0, len(X), rows):
        stop = min(start + rows, len(X))
        part = stream.part(start, stop)
        noise = standard_normals(part, n, splits=splits)
        if epsilon is None:
            scalars = np.full(part.rows, sigma)
        else:
            scalars = part.gammas(float(n), at) / epsilon / _norms(noise)
        stretched = noise if shape.is_isotropic else shape.correlate(noise)
        finite &= add_given(X[start:stop], stretched, scalars, step, out[start:stop])
    return finite


def _norms(X: Embeddings) -> Vector:
    norms: Vector = np.sqrt(row_dots(X, X))
    return norms
