"""The concept covariance as a full noise shape, in closed form."""

from __future__ import annotations

import numpy as np

from vecveil.sensitivity.moments import RIDGE, Moments
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Matrix

__all__ = ["concept_covariance_shape", "matrix_root", "optimal_shape", "regularised"]


def matrix_root(matrix: Matrix, power: float = 0.5) -> Matrix:
    """Return a real power of a symmetric positive (semi-)definite matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    if power < 0:
        eigenvalues = np.maximum(eigenvalues, 1e-12 * eigenvalues[-1])
    result: Matrix = (vectors * eigenvalues**power) @ vectors.T
    return result


def optimal_shape(C: Matrix, M: Matrix) -> Matrix:
    """Return the Σ that minimises tr(C Σ⁻¹) at fixed tr(Σ M).

    Σ ∝ M^{-1/2}(M^{1/2} C M^{1/2})^{1/2} M^{-1/2}; with M = I this is C^{1/2}. M must be positive
    definite.
    """
    root = matrix_root(M)
    inverse = matrix_root(M, -0.5)
    shape: Matrix = inverse @ matrix_root(root @ C @ root) @ inverse
    return shape


def concept_covariance_shape(moments: Moments, *, floor: float = 1e-2) -> NoiseShape:
    """Return the noise shape that hides the pairs' differences best at a given distortion.

    Args:
        floor: eigenvalues below this share of the mean are raised to it; smaller values concentrate
            the noise on the concept's directions and weaken the worst-case guarantee, which is
            ε/√λ_min.
    """
    return NoiseShape.from_matrix(optimal_shape(moments.C, regularised(moments.M)), floor=floor)


def regularised(M: Matrix) -> Matrix:
    """Return M + 1e-3·tr(M)/n·I, which is positive definite where M has dead dimensions."""
    n = M.shape[0]
    matrix: Matrix = M + RIDGE * np.trace(M) / n * np.eye(n)
    return matrix
