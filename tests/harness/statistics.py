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


def radius_p(Z: Array, Sigma: Array, epsilon: float, *, bins: int = 20) -> float:
    """Test the law of the norm: chi-square over equally likely bins of Gamma(n, 1)."""
    N, n = Z.shape
    radii = epsilon * np.linalg.norm(whitened(Z, Sigma), axis=1)
    return _binned_p(stats.gamma(n).cdf(radii), bins)


def mean_direction_p(Z: Array, Sigma: Array) -> float:
    """Test that no direction is preferred (Rayleigh): nN‖mean‖² is chi-square(n)."""
    U = _directions(Z, Sigma)
    N, n = U.shape
    return float(stats.chi2(n).sf(n * N * (U.mean(axis=0) ** 2).sum()))


def axis_p(Z: Array, Sigma: Array) -> float:
    """Test that no axis is preferred (Bingham): N n(n+2)/2 · (tr S² − 1/n) is chi-square."""
    U = _directions(Z, Sigma)
    N, n = U.shape
    S = U.T @ U / N
    statistic = N * n * (n + 2) / 2 * ((S * S).sum() - 1 / n)
    return float(stats.chi2((n - 1) * (n + 2) / 2).sf(statistic))


def cosine_p(Z: Array, Sigma: Array, axis: int = 0, *, bins: int = 20) -> float:
    """Test the law of one coordinate of the direction: its square is Beta(1/2, (n−1)/2)."""
    U = _directions(Z, Sigma)
    n = U.shape[1]
    return _binned_p(stats.beta(0.5, (n - 1) / 2).cdf(U[:, axis] ** 2), bins)


LAWS = {
    "scale": scale_p,
    "radius": radius_p,
    "mean direction": lambda Z, Sigma, epsilon: mean_direction_p(Z, Sigma),
    "axes": lambda Z, Sigma, epsilon: axis_p(Z, Sigma),
    "cosine": lambda Z, Sigma, epsilon: cosine_p(Z, Sigma),
}


def p_values(Z: Array, Sigma: Array, epsilon: float) -> dict[str, float]:
    """Return the p-value of every test."""
    return {name: law(Z, Sigma, epsilon) for name, law in LAWS.items()}


def _directions(Z: Array, Sigma: Array) -> Array:
    W = whitened(Z, Sigma)
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def _binned_p(uniform: Array, bins: int) -> float:
    counts = np.bincount(np.minimum((uniform * bins).astype(int), bins - 1), minlength=bins)
    return float(stats.chisquare(counts).pvalue)
