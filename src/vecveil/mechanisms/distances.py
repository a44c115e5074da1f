"""How far apart two inputs are in a mechanism's own metric, behind a map."""

from __future__ import annotations

import numpy as np

from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Matrix, Vector

__all__ = ["angles", "certain_advantage", "euclidean_distances", "quotient_distances"]


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
