"""Low rank + floor: the same Σ as the full matrix, in fewer operations; and shapes read from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.privacy.sensitivity import NoiseShape

Arrays = dict[str, np.ndarray[Any, Any]]


def low_rank(n: int = 7, r: int = 3, floor: float = 0.05, seed: int = 0) -> NoiseShape:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((n, r)))[0]
    return NoiseShape.from_low_rank(U, rng.random(r) + 0.1, floor=floor)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-4, 1.0), st.integers(0, 2**31))
def test_it_is_the_full_matrix_in_every_respect(n: int, r: int, floor: float, seed: int) -> None:
    shape = low_rank(n, min(n, r), floor, seed)
    Sigma = shape.covariance()
    full = NoiseShape(matrix=Sigma)
    X = np.random.default_rng(seed).standard_normal((4, n))
    assert np.trace(Sigma) == pytest.approx(n)
    eigenvalues = np.linalg.eigvalsh(Sigma)
    assert shape.smallest_eigenvalue == pytest.approx(eigenvalues[0])
    assert shape.smallest_eigenvalue >= floor * (1 - 1e-12)
    np.testing.assert_allclose(shape.root @ shape.root, Sigma, atol=1e-10)
    np.testing.assert_allclose(shape.stretch(X), X @ shape.root, atol=1e-10)
    np.testing.assert_allclose(shape.stretch(X), full.stretch(X), atol=1e-9)
    np.testing.assert_allclose(shape.norm(X), full.norm(X), rtol=1e-8)
    np.testing.assert_allclose(shape.norm(shape.stretch(X)), np.linalg.norm(X, axis=1))
    Y = shape.stretch(X.astype(np.float32))
    assert Y.dtype == np.float32
    np.testing.assert_allclose(Y, X @ shape.root, atol=1e-4)


def test_the_floor_is_the_smallest_eigenvalue_and_one_is_isotropic() -> None:
    assert low_rank(floor=0.2).smallest_eigenvalue == pytest.approx(0.2)
    np.testing.assert_allclose(low_rank(floor=1.0).covariance(), np.eye(7), atol=1e-12)
    assert not low_rank().is_diagonal
    assert not low_rank().is_isotropic
    assert NoiseShape.isotropic(3).is_diagonal
    assert NoiseShape.isotropic(3).root.shape == (3,)
    assert not NoiseShape.from_matrix(np.eye(3)).is_diagonal
    assert repr(low_rank()) == "NoiseShape(rank 3 + floor, n=7)"


def test_the_norm_outside_the_basis_does_not_cancel() -> None:
    """A long difference along U and a short one outside it: a difference of squares loses it."""
    shape = NoiseShape.from_low_rank(np.eye(3)[:, :1], np.ones(1), floor=1e-12)
    v = np.array([[1e6, 1e-4, 0.0]])
    assert shape.norm(v)[0] == pytest.approx(np.sqrt(1e12 / 3 + 1e-8 / 1e-12), rel=1e-6)


Q = np.eye(4)[:, :2]


@pytest.mark.parametrize(
    ("basis", "weights", "floor", "param"),
    [
        (2 * Q, [1, 1], 0.1, "basis"),
        (Q.T, [1, 1, 1, 1], 0.1, "basis"),
        (Q[:, 0], [1], 0.1, "basis"),
        (Q[:, :0], [], 0.1, "basis"),
        (np.nan * Q, [1, 1], 0.1, "basis"),
        (Q, [1, -1], 0.1, "weights"),
        (Q, [0, 0], 0.1, "weights"),
        (Q, [1], 0.1, "weights"),
        (Q, [1, np.inf], 0.1, "weights"),
        (Q, [1, 1], 0.0, "floor"),
        (Q, [1, 1], 1.1, "floor"),
        (Q, [1, 1], float("nan"), "floor"),
    ],
)
def test_bad_low_rank_shapes(basis: Any, weights: Any, floor: Any, param: str) -> None:
    with raises("E-INPUT", param):
        NoiseShape.from_low_rank(basis, np.array(weights), floor=floor)


def test_huge_weights_do_not_overflow() -> None:
    shape = NoiseShape.from_low_rank(Q, np.array([1e308, 1e308]), floor=0.5)
    assert np.trace(shape.covariance()) == pytest.approx(4)


SHAPES = {
    "diagonal": NoiseShape.from_diagonal(np.arange(5.0), floor=0.1),
    "full": NoiseShape.from_matrix(np.diag(np.arange(5.0)) + 0.1),
    "low rank": low_rank(5, 2),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_written_is_read(kind: str) -> None:
    shape = SHAPES[kind]
    arrays = shape.to_arrays() | {"map.down": np.eye(2)}  # other arrays of the file
    again = NoiseShape.from_arrays(arrays, 5)
    np.testing.assert_array_equal(again.covariance(), shape.covariance())
    assert repr(again) == repr(shape)


def changed(kind: str, name: str, change: Callable[[Any], Any]) -> Arrays:
    arrays = SHAPES[kind].to_arrays()
    return arrays | {name: change(arrays[name])}


ASYMMETRIC = np.eye(5)
ASYMMETRIC[0, 1] = 0.5


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({}, "shape"),
        (SHAPES["diagonal"].to_arrays() | SHAPES["full"].to_arrays(), "shape"),
        (changed("diagonal", "shape.diagonal", lambda a: a[:4]), "shape.diagonal"),
        (changed("diagonal", "shape.diagonal", lambda a: a - 1), "shape.diagonal"),
        (changed("diagonal", "shape.diagonal", lambda a: np.nan * a), "shape.diagonal"),
        (changed("diagonal", "shape.diagonal", lambda a: a.astype(np.float32)), "shape.diagonal"),
        (changed("diagonal", "shape.diagonal", lambda a: 2 * a), "trace"),
        (changed("full", "shape.matrix", lambda a: a[:4]), "shape.matrix"),
        (changed("full", "shape.matrix", lambda a: 1e9 * a), "shape.matrix"),
        (changed("full", "shape.matrix", lambda a: ASYMMETRIC), "shape.matrix"),
        (changed("full", "shape.matrix", lambda a: np.diag([-1.0, 2, 2, 1, 1])), "shape.matrix"),
        (changed("full", "shape.matrix", lambda a: np.inf * a), "shape.matrix"),
        (changed("full", "shape.matrix", lambda a: 1.1 * a), "trace"),
        (changed("low rank", "shape.basis", lambda a: a[:4]), "shape.basis"),
        (changed("low rank", "shape.basis", lambda a: a.ravel()), "shape.basis"),
        (changed("low rank", "shape.basis", lambda a: 2 * a), "shape.basis"),
        (changed("low rank", "shape.basis", lambda a: np.nan * a), "shape.basis"),
        (changed("low rank", "shape.weights", lambda a: a[:1]), "shape.weights"),
        (changed("low rank", "shape.weights", lambda a: -a), "shape.weights"),
        (changed("low rank", "shape.weights", lambda a: 2 * a), "trace"),
        (changed("low rank", "shape.floor", lambda a: a[0]), "shape.floor"),
        (changed("low rank", "shape.floor", lambda a: 0 * a), "shape.floor"),
        (changed("low rank", "shape.floor", lambda a: np.inf * a), "shape.floor"),
        ({"shape.basis": SHAPES["low rank"].to_arrays()["shape.basis"]}, "shape.weights"),
    ],
)
def test_arrays_that_make_no_shape(arrays: Arrays, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}$"):
        NoiseShape.from_arrays(arrays, 5)
