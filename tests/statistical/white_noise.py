"""P-values of whitened noise (N, n): the law of its length, and that its directions are uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats


def binned_p(shares: np.ndarray, bins: int = 20) -> float:
    """Test that numbers are uniform on [0, 1]."""
    counts = np.bincount(np.minimum((bins * shares).astype(int), bins - 1), minlength=bins)
    return float(stats.chisquare(counts).pvalue)


def both_tails(law: Any, value: float) -> float:
    return min(1.0, 2 * float(min(law.cdf(value), law.sf(value))))


def direction_p(W: np.ndarray) -> dict[str, float]:
    """Test that the rows' directions are uniform: Rayleigh's, Bingham's, the law of two coordinates."""
    N, n = W.shape
    if n == 1:
        return {"sides": float(stats.binomtest(int((W > 0).sum()), N, 0.5).pvalue)}
    U = W / np.linalg.norm(W, axis=1, keepdims=True)
    gram = (U.T @ U if n < N else U @ U.T) / N
    bingham = N * n * (n + 2) / 2 * ((gram * gram).sum() - 1 / n)
    found = {
        "mean": float(stats.chi2(n).sf(N * n * (U.mean(axis=0) ** 2).sum())),
        "axes": float(stats.chi2((n - 1) * (n + 2) / 2).sf(bingham)),
    }
    for k in (0, n - 1):  # the square of a coordinate is Beta(1/2, (n - 1)/2)
        found[f"coordinate {k}"] = binned_p(stats.beta(0.5, (n - 1) / 2).cdf(U[:, k] ** 2))
    return found


def gaussian_p(W: np.ndarray) -> dict[str, float]:
    """Test that W is standard normal: ‖w‖² is chi-square(n), their sum chi-square(nN)."""
    N, n = W.shape
    squares = (W * W).sum(axis=1)
    return {
        "scale": both_tails(stats.chi2(n * N), float(squares.sum())),
        "length": binned_p(stats.chi2(n).cdf(squares)),
        **direction_p(W),
    }


def laplace_p(W: np.ndarray) -> dict[str, float]:
    """Test that W has density ∝ exp(−‖w‖): ‖w‖ is Gamma(n), twice their sum chi-square(2nN)."""
    N, n = W.shape
    norms = np.linalg.norm(W, axis=1)
    return {
        "scale": both_tails(stats.chi2(2 * n * N), 2 * float(norms.sum())),
        "length": binned_p(stats.gamma(n).cdf(norms)),
        **direction_p(W),
    }
