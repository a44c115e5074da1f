"""The noise of the elliptical Laplace mechanism has the law that its guarantee is about.

Null: z has density ∝ exp(−ε‖z‖_Σ). False failure: 1e-6 for the module, shared over all its tests.
Power: a scale that is 10 % off is rejected in every case but for less than 1e-6 (each case has
nN ≥ 10,000, so the shift is ten standard deviations). Control: noise times 0.9, and noise with the
axes of Σ swapped, are rejected by the same tests.
"""

from __future__ import annotations

import numpy as np
import pytest

import vecveil
from harness.statistics import LAWS, p_values, radius_p, scale_p, threshold, whitened
from harness.token_data import token_data
from vecveil.mechanisms import Laplace, Mahalanobis
from vecveil.sensitivity import NoiseShape

DIMENSIONS = (2, 8, 384)
KINDS = ("isotropic", "diagonal", "full")
CASES = [(n, kind, dtype) for n in DIMENSIONS for kind in KINDS for dtype in ("f4", "f8")]
LEVEL = threshold(len(CASES) * len(LAWS) + 20)


def mechanism(n: int, kind: str, epsilon: float = 37.0) -> Mahalanobis:
    rng = np.random.default_rng(n)
    if kind == "isotropic":
        return Laplace(n, epsilon)
    if kind == "diagonal":
        return Mahalanobis(NoiseShape.from_diagonal(np.geomspace(1, 50, n), floor=1e-3), epsilon)
    A = rng.standard_normal((n, n)) * np.geomspace(1, 5, n)
    return Mahalanobis(NoiseShape.from_matrix(A.T @ A, floor=0.05), epsilon)


def draws(one: Mahalanobis, dtype: str, rows: int, rng: object = 0) -> np.ndarray:
    return one.protect(np.zeros((rows, one.dimension), dtype=dtype), rng=rng)  # type: ignore[arg-type]


def rows_of(n: int) -> int:
    return 3000 if n > 100 else 20_000


@pytest.mark.parametrize(("n", "kind", "dtype"), CASES)
def test_noise_has_the_stated_law(n: int, kind: str, dtype: str) -> None:
    one = mechanism(n, kind)
    Z = draws(one, dtype, rows_of(n))
    for name, p in p_values(Z, one.shape.covariance(), one.epsilon).items():
        assert p > LEVEL, name


@pytest.mark.parametrize(("n", "kind", "dtype"), CASES)
def test_control_noise_of_nine_tenths_is_rejected(n: int, kind: str, dtype: str) -> None:
    one = mechanism(n, kind)
    Z = 0.9 * draws(one, dtype, rows_of(n))
    assert scale_p(Z, one.shape.covariance(), one.epsilon) < LEVEL
    assert radius_p(Z, one.shape.covariance(), one.epsilon) < LEVEL


@pytest.mark.parametrize("kind", ["diagonal", "full"])
@pytest.mark.parametrize("n", DIMENSIONS)
def test_control_swapped_axes_are_rejected(n: int, kind: str) -> None:
    one = mechanism(n, kind)
    Sigma = one.shape.covariance()
    swapped = Sigma[::-1, ::-1]
    p = p_values(draws(one, "f8", rows_of(n)), swapped, one.epsilon)
    assert min(p.values()) < LEVEL


@pytest.mark.parametrize("n", DIMENSIONS)
def test_control_isotropic_noise_is_not_mahalanobis(n: int) -> None:
    Z = draws(Laplace(n, 37.0), "f8", rows_of(n))
    assert min(p_values(Z, mechanism(n, "full").shape.covariance(), 37.0).values()) < LEVEL


def test_control_gaussian_noise_of_the_same_covariance_is_rejected() -> None:
    # At n = 2 the radius of Gaussian noise is far from Gamma(2).
    Z = np.random.default_rng(0).standard_normal((20_000, 2)) * np.sqrt(3) / 37.0
    assert radius_p(Z, np.eye(2), 37.0) < LEVEL


@pytest.mark.parametrize(("n", "kind"), [(n, kind) for n in DIMENSIONS for kind in KINDS])
def test_declared_covariance_is_the_covariance(n: int, kind: str) -> None:
    """noise_covariance() is (n+1)/ε²·Σ: whitened by it, the norm is Gamma(n, 1)/√(n+1)."""
    one = mechanism(n, kind)
    S = one.noise_covariance()
    np.testing.assert_allclose(S, (n + 1) / one.epsilon**2 * one.shape.covariance())
    Z = draws(one, "f8", rows_of(n), rng=1)
    assert scale_p(Z, S, float(np.sqrt(n + 1))) > LEVEL
    assert scale_p(Z, 1.2 * S, float(np.sqrt(n + 1))) < LEVEL  # control
    # The mean square norm, without whitening: E‖z‖² = trace S.
    squared = (Z.astype(float) ** 2).sum(axis=1)
    error = abs(squared.mean() - np.trace(S)) / (squared.std() / np.sqrt(len(Z)))
    assert error < 7


def test_the_default_generator_has_the_law_too() -> None:
    one = mechanism(8, "full")
    Z = draws(one, "f4", 20_000, rng=None)
    assert min(p_values(Z, one.shape.covariance(), one.epsilon).values()) > LEVEL


def test_blocks_are_independent() -> None:
    """Null: rows of different blocks are independent. Control: a repeated block is found."""
    one = Laplace(4, 10.0)
    Z = draws(one, "f8", 2 * 8192)
    first, second = (whitened(part, np.eye(4)) for part in (Z[:8192], Z[8192:]))
    limit = 6 / np.sqrt(8192)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < limit
    assert abs(np.corrcoef(first[:, 0], first[:, 0])[0, 1]) > limit  # control


@pytest.mark.parametrize("output", ["full", "reduced"])
def test_released_noise_of_a_protector_has_the_declared_covariance(output: str) -> None:
    """Projections of the released noise on random directions have the declared variance."""
    protector = vecveil.fit_pairs(
        *token_data(200, 16).arguments(), rank=3, kept=8, flattening=0.3, pairs=True,
        epsilon=20.0, output=output,  # type: ignore[arg-type]
    )  # fmt: skip
    Z = protector.protect(np.zeros((40_000, 16)), 3)
    S = protector.released_noise_covariance()
    U = np.random.default_rng(0).standard_normal((S.shape[0], 10))
    squares = (Z @ U) ** 2
    error = (squares.mean(axis=0) - np.einsum("ij,ik,kj->j", U, S, U)) / (
        squares.std(axis=0) / np.sqrt(len(Z))
    )
    assert np.abs(error).max() < 6.5
    assert np.abs(0.81 * squares.mean(axis=0) / np.einsum("ij,ik,kj->j", U, S, U) - 1).min() > 0.1
