"""Noise of the kept dimensions: what is orthogonal to them changes no bit, nor does the order of summation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.privacy.mechanisms import ProjectedLaplace
from vecveil.privacy.randomness import kernel
from vecveil.privacy.sensitivity.shapes import LinearMap

few = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32)


def mechanism(n: int, k: int, epsilon: float, seed: int = 0) -> ProjectedLaplace:
    down = np.random.default_rng([seed, n]).standard_normal((k, n)) * np.geomspace(1, 1e-3, k)[:, None]
    return ProjectedLaplace(LinearMap(down, np.eye(n, k)).row_space, epsilon)


def rows(n: int, seed: int, dtype: Any = np.float64) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((6, n))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)


@few
@given(st.integers(2, 24), st.floats(0, 4).map(lambda p: 10.0**p), seeds)
def test_differences_orthogonal_to_the_basis_change_no_bit(n: int, epsilon: float, seed: int) -> None:
    """With coordinates as the basis the difference is orthogonal exactly; one within the basis shows."""
    one = ProjectedLaplace(np.eye(n)[:, : n // 2], epsilon)
    X = rows(n, seed)
    other = X.copy()
    other[:, n // 2 :] = np.random.default_rng(seed + 1).standard_normal(other[:, n // 2 :].shape)
    np.testing.assert_array_equal(one.protect(X, rng=seed), one.protect(other, rng=seed))
    other[:, 0] += 1.0
    assert (one.protect(X, rng=seed) != one.protect(other, rng=seed)).any(axis=1).all()


@few
@given(st.integers(2, 60), st.integers(1, 60), st.floats(1, 4).map(lambda p: 10.0**p), seeds)
def test_the_order_of_coordinates_and_rows_changes_no_bit(n: int, k: int, epsilon: float, seed: int) -> None:
    """Another order of summation, as another BLAS or batch has, gives the same release."""
    one = mechanism(n, min(k, n), epsilon, seed)
    order = np.random.default_rng(seed).permutation(n)
    turned = ProjectedLaplace(one.basis[order], epsilon)
    for dtype in (np.float32, np.float64):
        X = rows(n, seed, dtype)
        Y = one.protect(X, rng=seed)
        np.testing.assert_array_equal(turned.protect(X[:, order], rng=seed), Y[:, order])
        np.testing.assert_array_equal(one.protect(X[:2], rng=seed), Y[:2])
    narrow = rows(n, seed, np.float32)
    wide = one.protect(narrow.astype(np.float64), rng=1)
    np.testing.assert_array_equal(one.protect(narrow, rng=1), wide.astype(np.float32))


def test_the_compiled_kernel_and_numpy_release_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    one, X = mechanism(40, 17, 300.0), rows(40, 1)
    expected = one.protect(X, rng=1)
    monkeypatch.setattr(kernel, "_compiled", None)
    np.testing.assert_array_equal(one.protect(X, rng=1), expected)


@few
@given(st.integers(2, 40), seeds)
def test_the_basis_spans_the_rows_of_the_map(n: int, seed: int) -> None:
    one = mechanism(n, n // 2, 10.0, seed)
    down = np.random.default_rng([seed, n]).standard_normal((n // 2, n))
    assert np.abs(down - down @ one.basis @ one.basis.T).max() < 1e-4
    again = type(one).from_saved(one.parameters(), one.to_arrays(), n)
    assert again.guarantee() == one.guarantee()
    bound = one.guarantee()
    assert bound.hidden_directions == n - n // 2
    assert bound.epsilon_euclidean_worst == pytest.approx(one.epsilon, rel=1e-4)


@pytest.mark.parametrize(("n", "k"), [(384, 380), (768, 767), (384, 384)])
def test_a_basis_with_axes_of_dead_dimensions_is_orthonormal(n: int, k: int) -> None:
    """An entry of such an axis may come out above 1 by rounding."""
    turned = np.linalg.qr(np.random.default_rng(n).standard_normal((n - 8, n - 8)))[0]
    down = np.eye(n)
    down[: n - 8, : n - 8] = turned
    down[-1, -1] += 2.0**-50
    basis = LinearMap(down[-k:], np.eye(n, k)).row_space
    assert np.abs(basis.T @ basis - np.eye(k)).max() < 9e-7
    ProjectedLaplace(basis, 3.0)
    ProjectedLaplace(LinearMap(np.roll(down, 5, axis=0)[-k:] * 3.7, np.eye(n, k)).row_space, 3.0)


@pytest.mark.parametrize("n", [384, 1533])
def test_rounding_that_adds_up_is_orthonormal_still(n: int) -> None:
    # Every entry of the column rounds the same way: the largest error that 22 bits allow, nearly.
    assert ProjectedLaplace(LinearMap(np.ones((1, n)), np.eye(n, 1)).row_space, 3.0).dimension == n
    with raises("E-INPUT", "basis"):
        ProjectedLaplace(np.ones((n, 1)) / np.sqrt(n) * (1 + 1e-5), 3.0)


@pytest.mark.parametrize("basis", [np.ones((4, 2)), np.eye(3)[:, :0], np.eye(4)[:2], np.eye(4) * 2, np.zeros(4)])
def test_a_basis_that_is_not_orthonormal_is_refused(basis: np.ndarray) -> None:
    with raises("E-INPUT", "basis"):
        ProjectedLaplace(basis, 3.0)
    with pytest.raises((ValueError, IndexError)):
        ProjectedLaplace.from_saved({"epsilon": 3.0, "splits": 1}, {"kept.basis": basis}, 5)
