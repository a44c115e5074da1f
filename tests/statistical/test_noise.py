"""The declared covariance of elliptical Laplace noise is that of its draws, in blocks and in a protector's release.

Null: z has density ∝ exp(−ε‖z‖_Σ). False failure: 1e-6 for the module, shared over all its tests.
Power: a scale that is 10 % off is rejected in every case but for less than 1e-6 (each case has
nN ≥ 10,000, so the shift is ten standard deviations). Control: at each test.
"""

from __future__ import annotations

import numpy as np
import pytest

import vecveil
from harness.statistics import scale_p, threshold, whitened
from harness.token_data import token_data
from vecveil.privacy.mechanisms import Laplace, Mahalanobis
from vecveil.privacy.sensitivity import NoiseShape

DIMENSIONS = (2, 8, 384)
KINDS = ("isotropic", "diagonal", "full")
LEVEL = threshold(20)


def mechanism(n: int, kind: str, epsilon: float = 37.0) -> Mahalanobis:
    rng = np.random.default_rng(n)
    if kind == "isotropic":
        return Laplace(n, epsilon)
    if kind == "diagonal":
        return Mahalanobis(NoiseShape.from_diagonal(np.geomspace(1, 50, n), floor=1e-3), epsilon)
    A = rng.standard_normal((n, n)) * np.geomspace(1, 5, n)
    return Mahalanobis(NoiseShape.from_matrix(A.T @ A, floor=0.05), epsilon)


def draws(one: Mahalanobis, rows: int, seed: int = 0) -> np.ndarray:
    return one.protect(np.zeros((rows, one.dimension)), rng=seed)


def rows_of(n: int) -> int:
    return 3000 if n > 100 else 20_000


@pytest.mark.parametrize(("n", "kind"), [(n, kind) for n in DIMENSIONS for kind in KINDS])
def test_declared_covariance_is_the_covariance(n: int, kind: str) -> None:
    """noise_covariance() is (n+1)/ε²·Σ: whitened by it, the norm is Gamma(n, 1)/√(n+1)."""
    one = mechanism(n, kind)
    S = one.noise_covariance()
    np.testing.assert_allclose(S, (n + 1) / one.epsilon**2 * one.shape.covariance())
    Z = draws(one, rows_of(n), seed=1)
    assert scale_p(Z, S, float(np.sqrt(n + 1))) > LEVEL
    assert scale_p(Z, 1.2 * S, float(np.sqrt(n + 1))) < LEVEL  # control
    # The mean square norm, without whitening: E‖z‖² = trace S.
    squared = (Z.astype(float) ** 2).sum(axis=1)
    error = abs(squared.mean() - np.trace(S)) / (squared.std() / np.sqrt(len(Z)))
    assert error < 7


def test_blocks_are_independent() -> None:
    """Null: rows of different blocks are independent. Control: a repeated block is found."""
    one = Laplace(4, 10.0)
    Z = draws(one, 2 * 8192)
    first, second = (whitened(part, np.eye(4)) for part in (Z[:8192], Z[8192:]))
    limit = 6 / np.sqrt(8192)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < limit
    assert abs(np.corrcoef(first[:, 0], first[:, 0])[0, 1]) > limit  # control


@pytest.mark.parametrize("output", ["full", "reduced"])
def test_released_noise_of_a_protector_has_the_declared_covariance(output: str) -> None:
    """Projections of the released noise on random directions have the declared variance."""
    protector = vecveil.fit_pairs(
        *token_data(200, 16).arguments(),
        rank=3,
        kept=8,
        flattening=0.3,
        pairs=True,
        epsilon=20.0,
        output=output,  # type: ignore[arg-type]
    )
    Z = protector.protect(np.zeros((40_000, 16)), 3)
    S = protector.released_noise_covariance()
    U = np.random.default_rng(0).standard_normal((S.shape[0], 10))
    squares = (Z @ U) ** 2
    error = (squares.mean(axis=0) - np.einsum("ij,ik,kj->j", U, S, U)) / (squares.std(axis=0) / np.sqrt(len(Z)))
    assert np.abs(error).max() < 6.5
    assert np.abs(0.81 * squares.mean(axis=0) / np.einsum("ij,ik,kj->j", U, S, U) - 1).min() > 0.1
