"""Tests of noise laws with a stated chance of false failure.

Each test returns its p-value under the null hypothesis that the noise has density ∝ exp(−ε‖z‖_Σ);
`threshold` gives the level below which it is rejected. Then the whitened norm times ε is Gamma(n,
1), whatever Σ is, and independent of the whitened direction, which is uniform on the sphere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[Any]

FALSE_FAILURE = 1e-6
"""Chance that a whole module of statistical tests fails although the software is right."""


def threshold(tests: int) -> float:
    """Return the level of one test of ``tests`` (Bonferroni)."""
    return FALSE_FAILURE / tests


def whitened(Z: Array, Sigma: Array) -> Array:
    """Return the rows of Z times Σ^{-1/2}, computed apart from the package."""
    eigenvalues, vectors = np.linalg.eigh(np.asarray(Sigma, dtype=np.float64))
    return np.asarray(Z, dtype=np.float64) @ (vectors / np.sqrt(eigenvalues)) @ vectors.T


def scale_p(Z: Array, Sigma: Array, epsilon: float) -> float:
    """Test the scale: twice the sum of all ε‖z‖_Σ is chi-square with 2nN degrees of freedom.

    Exact, two-sided. Its relative standard deviation is 1/√(nN): with nN = 10,000 a scale that is
    10 % off lies ten standard deviations away.
    """
    N, n = Z.shape
    total = 2 * epsilon * np.linalg.norm(whitened(Z, Sigma), axis=1).sum()
    law = stats.chi2(2 * n * N)
    return float(min(1.0, 2 * min(law.cdf(total), law.sf(total))))
