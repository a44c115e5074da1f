"""Every elliptical noise has its law in every dimension, of every kind, split or not, compiled or not.

Null: Laplace noise has density ∝ exp(−ε‖z‖_Σ), Gaussian noise is N(0, σ²Σ), with Σ of any kind.
False failure: 1e-6 for the module, shared over all its tests.
Power: each case has nN ≥ 20,000 numbers, so a scale that is 7 % off lies 13 (Laplace) or 14 (Gaussian) standard
deviations away; `LIMIT` is 6.8.
Control: noise times 0.93 is rejected in every case; the other family's noise, and normals in place of their
splits' sum, are rejected too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import vecveil
from harness.statistics import threshold
from harness.token_data import token_data
from statistical.white_noise import direction_p, gaussian_p, laplace_p
from vecveil.privacy.accounting import analytic_gaussian_sigma
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, ProjectedLaplace
from vecveil.privacy.randomness import kernel
from vecveil.privacy.sensitivity import NoiseShape

DIMENSIONS = (1, 2, 3, 8, 384, 768, 1024, 3072)
KINDS = ("isotropic", "diagonal", "low rank", "full")
FAMILIES = ("laplace", "gaussian")
CASES = [
    (n, kind, family)
    for n in DIMENSIONS
    for kind in KINDS
    for family in FAMILIES
    if n > 1 or kind == "isotropic"
    if not (kind == "full" and n > 1000)
]
LEVEL = threshold(6 * (len(CASES) + 100))
EPSILON, SIGMA = 37.0, 0.7


def rows_of(n: int) -> int:
    return {1: 40_000, 2: 20_000, 3: 20_000, 8: 20_000, 384: 1500, 768: 600, 1024: 400, 3072: 150}[n]


def shape_of(n: int, kind: str) -> NoiseShape:
    rng = np.random.default_rng(n)
    if kind == "isotropic":
        return NoiseShape.isotropic(n)
    if kind == "diagonal":
        return NoiseShape.from_diagonal(np.geomspace(1, 50, n), floor=1e-3)
    if kind == "low rank":
        rank = max(1, min(5, n - 1))
        basis = np.linalg.qr(rng.standard_normal((n, rank)))[0]
        return NoiseShape.from_low_rank(basis, np.arange(rank) + 1.0, floor=0.05)
    A = rng.standard_normal((n, n)) * np.geomspace(1, 5, n)
    return NoiseShape.from_matrix(A.T @ A, floor=0.05)


def mechanism(n: int, kind: str, family: str, splits: int = 1) -> Any:
    shape = shape_of(n, kind)
    if family == "gaussian":
        return Gaussian(shape, SIGMA, splits)
    if kind == "isotropic":
        return Laplace(n, EPSILON, splits)
    return Mahalanobis(shape, EPSILON, splits)


def whitened(Z: np.ndarray, shape: NoiseShape) -> np.ndarray:
    """Return the rows times a root of Σ⁻¹, computed apart from the package's own roots."""
    if shape.diagonal is not None:
        return np.asarray(Z / np.sqrt(shape.diagonal))
    if shape.basis is not None and shape.floor is not None:
        along = Z @ shape.basis
        rest = (Z - along @ shape.basis.T) / np.sqrt(shape.floor)
        return rest + (along / np.sqrt(shape.floor + shape.weights)) @ shape.basis.T
    values, vectors = np.linalg.eigh(shape.covariance())
    return np.asarray(Z @ (vectors / np.sqrt(values)))


def noise(one: Any, dtype: str = "f8", rng: Any = 0, rows: int | None = None) -> np.ndarray:
    X = np.zeros((rows or rows_of(one.dimension), one.dimension), dtype=dtype)
    return whitened(one.protect(X, rng=rng).astype(np.float64), one.shape)


def p_values(W: np.ndarray, family: str, scale: float | None = None) -> dict[str, float]:
    if family == "gaussian":
        return gaussian_p(W / (scale or SIGMA))
    return laplace_p(W * (scale or EPSILON))


def assert_law(W: np.ndarray, family: str) -> None:
    for name, p in p_values(W, family).items():
        assert p > LEVEL, (name, p)
    assert p_values(0.93 * W, family)["scale"] < LEVEL  # control


@pytest.mark.parametrize(("n", "kind", "family"), CASES)
def test_noise_has_the_stated_law(n: int, kind: str, family: str) -> None:
    assert_law(noise(mechanism(n, kind, family), "f4" if n % 3 else "f8"), family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("splits", [2, 4])
@pytest.mark.parametrize("n", [3, 384])
def test_split_noise_has_the_same_law(n: int, kind: str, family: str, splits: int) -> None:
    assert_law(noise(mechanism(n, kind, family, splits)), family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_noise_without_the_compiled_kernel_has_the_same_law(
    kind: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = noise(mechanism(8, kind, family), rows=500)
    monkeypatch.setattr(kernel, "_compiled", None)
    assert not kernel.compiled()
    np.testing.assert_array_equal(noise(mechanism(8, kind, family), rows=500), compiled)
    assert_law(noise(mechanism(8, kind, family)), family)
    assert_law(noise(mechanism(384, kind, family)), family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_fresh_noise_has_the_same_law(kind: str, family: str) -> None:
    for n in (2, 384):
        assert_law(noise(mechanism(n, kind, family), rng=None), family)


KEPT = [(2, 1), (8, 3), (8, 8), (384, 192), (768, 96)]


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("n", "k"), KEPT)
def test_noise_of_the_kept_dimensions_has_their_law_and_is_nowhere_else(n: int, k: int, splits: int) -> None:
    """Controls: Laplace noise in all n dimensions, at the same ε and at the same power, is rejected behind Qᵀ."""
    Q = np.linalg.qr(np.random.default_rng(n).standard_normal((n, k)))[0]
    rows = max(rows_of(n), 20_000 // k)
    for dtype, rng in (("f4", 0), ("f8", None)):
        one = ProjectedLaplace(Q, EPSILON, splits)
        Z = one.protect(np.zeros((rows, n), dtype=dtype), rng=rng).astype(np.float64)
        assert_law(Z @ Q, "laplace")
        assert np.abs(Z - Z @ Q @ Q.T).max() <= 4 * one.step
    if k < n:
        X = np.zeros((rows, n))
        assert laplace_p(Laplace(n, EPSILON).protect(X, rng=0) @ Q * EPSILON)["scale"] < LEVEL
    if k <= 3 < n:
        equal = EPSILON * float(np.sqrt((n + 1) / (k + 1)))
        assert min(laplace_p(Laplace(n, equal).protect(X, rng=0) @ Q * EPSILON).values()) < LEVEL


@pytest.mark.parametrize(("n", "k"), KEPT)
def test_equal_power_behind_a_projection_takes_noise_everywhere_a_larger_epsilon(n: int, k: int) -> None:
    """Of equal covariance behind Qᵀ; the ratio of the two ε is √((k + 1)/(n + 1)), about √(k/n)."""
    Q = np.linalg.qr(np.random.default_rng(n).standard_normal((n, k)))[0]
    kept = ProjectedLaplace(Q, EPSILON)
    everywhere = Laplace(n, EPSILON * float(np.sqrt((n + 1) / (k + 1))))
    covariances = [Q.T @ one.noise_covariance() @ Q for one in (kept, everywhere)]
    np.testing.assert_allclose(*covariances, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_control_the_other_family_is_rejected(n: int) -> None:
    """Of the same mean square norm: the lengths differ at small n."""
    gaussian = noise(Gaussian(NoiseShape.isotropic(n), np.sqrt(n + 1) / EPSILON))
    assert min(p_values(gaussian, "laplace").values()) < LEVEL
    laplace = noise(Laplace(n, np.sqrt(n + 1) / SIGMA))
    assert min(p_values(laplace, "gaussian").values()) < LEVEL


@pytest.mark.parametrize("kind", ["diagonal", "low rank", "full"])
@pytest.mark.parametrize("n", [8, 384])
def test_control_noise_of_another_shape_is_rejected(n: int, kind: str) -> None:
    Z = Gaussian(NoiseShape.isotropic(n), SIGMA).protect(np.zeros((rows_of(n), n)), rng=0)
    W = whitened(Z, shape_of(n, kind))
    assert min(direction_p(W).values()) < LEVEL


def test_control_a_split_that_is_not_divided_or_used_twice_is_rejected() -> None:
    W = noise(mechanism(8, "isotropic", "gaussian"))
    assert p_values(W + W[::-1], "gaussian")["scale"] < LEVEL  # a sum of two over nothing
    assert p_values(2 * W / np.sqrt(2), "gaussian")["scale"] < LEVEL  # one variate twice, over √2


LDP = [(0.1, 1e-5), (1.0, 1e-6), (5.0, 1e-3), (30.0, 1e-6), (100.0, 1e-9)]


@pytest.mark.parametrize(("epsilon", "delta"), LDP)
def test_local_dp_has_the_analytic_sigma_and_draws_it(epsilon: float, delta: float) -> None:
    """Never less than the exact σ; more by the rounding of unit norms alone."""
    one, exact = LdpGaussian(64, epsilon, delta), analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=2.0)
    assert exact <= one.sigma == pytest.approx(exact, rel=2e-5)
    W = noise(one, rows=3000)
    assert min(gaussian_p(W / one.sigma).values()) > LEVEL
    assert gaussian_p(0.97 * W / one.sigma)["scale"] < LEVEL  # control: nN = 192,000
    classical = 2 * np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    if epsilon > 1:  # the textbook formula holds for ε ≤ 1 alone
        assert gaussian_p(W / classical)["scale"] < LEVEL


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_call_and_coordinates_of_a_row_are_independent(kind: str) -> None:
    """Null: no correlation between neighbouring rows, or of squares. Control: a repeated row correlates."""
    W = noise(mechanism(8, kind, "gaussian"), rows=20_000)
    limit = -special.ndtri(LEVEL / 2 / 64) / np.sqrt(10_000)
    for A in (W, W * W):
        first, second = A[::2], A[1::2]
        found = np.corrcoef(first.T, second.T)[:8, 8:]
        assert np.abs(found).max() < limit * (1.0 if A is W else 1.5)  # χ² has heavier tails
        assert np.abs(np.corrcoef(first.T, first.T)[:8, 8:]).max() > limit * 1.5  # control


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
    assert np.abs(0.81 * squares.mean(axis=0) / np.einsum("ij,ik,kj->j", U, S, U) - 1).min() > 0.1  # control
