"""Noise shapes: construction, floors, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.privacy.sensitivity import NoiseShape


def test_floor_keeps_unprotected_dimensions_from_being_bare() -> None:
    mask = np.array([1.0, 0.0, 0.0, 1.0])
    shape = NoiseShape.from_diagonal(mask, floor=1e-6)
    assert shape.covariance().trace() == pytest.approx(4)
    assert shape.smallest_eigenvalue == pytest.approx(1e-6 * 4 / (2 + 4e-6))
    assert NoiseShape.from_diagonal(mask, floor=1.0).smallest_eigenvalue > 0.6


def test_full_floor_raises_small_eigenvalues_only() -> None:
    matrix = np.diag([10.0, 1.0, 1e-9, -1e-9])
    eigenvalues = np.linalg.eigvalsh(NoiseShape.from_matrix(matrix, floor=0.1).covariance())
    np.testing.assert_allclose(eigenvalues / eigenvalues[-1], [0.0275, 0.0275, 0.1, 1], rtol=1e-6)


def test_isotropic() -> None:
    assert NoiseShape.isotropic(3).is_isotropic
    assert NoiseShape.from_diagonal(np.full(7, 0.3)).is_isotropic
    assert not NoiseShape.from_diagonal(np.array([1, 2.0])).is_isotropic
    assert not NoiseShape.from_matrix(np.eye(3)).is_isotropic  # held as a full matrix
    # Σ = 2 I is not the identity: its noise is longer.
    assert not NoiseShape(diagonal=np.full(3, 2.0)).is_isotropic


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stretch_keeps_the_dtype(dtype: Any) -> None:
    X = np.random.default_rng(0).standard_normal((5, 3)).astype(dtype)
    for shape in (
        NoiseShape.from_diagonal(np.arange(3), floor=0.1),
        NoiseShape.from_matrix(np.diag([1.0, 2, 3]) + 0.1),
    ):
        Y = shape.stretch(X)
        assert Y.dtype == dtype
        root = np.diag(shape.root) if shape.root.ndim == 1 else shape.root
        np.testing.assert_allclose(Y, X @ root, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ([-1.0, 2], "E-INPUT"),
        ([], "E-INPUT"),
        ([[1.0]], "E-INPUT"),
        ([np.nan], "E-INPUT-FINITE"),
        (["a"], "E-INPUT-TYPE"),
        (None, "E-INPUT-TYPE"),
    ],
)
def test_bad_diagonals(values: Any, code: str) -> None:
    with raises(code, "sensitivity"):
        NoiseShape.from_diagonal(values)


@pytest.mark.parametrize(
    ("matrix", "code"),
    [
        (np.zeros((2, 2)), "E-INPUT"),
        (-np.eye(2), "E-INPUT"),
        (np.ones(3), "E-INPUT-SHAPE"),
        (np.ones((2, 3)), "E-INPUT-SHAPE"),
        (np.full((2, 2), np.inf), "E-INPUT-FINITE"),
        (np.zeros((0, 0)), "E-INPUT-SHAPE"),
    ],
)
def test_bad_matrices(matrix: Any, code: str) -> None:
    with raises(code, "matrix"):
        NoiseShape.from_matrix(matrix)


@pytest.mark.parametrize("floor", [0, -1, 1.1, float("nan")])
def test_bad_floors(floor: float) -> None:
    with raises("E-INPUT-RANGE", "floor"):
        NoiseShape.from_matrix(np.eye(2), floor=floor)


def test_bad_dimension() -> None:
    with raises("E-INPUT-RANGE", "dimension"):
        NoiseShape.isotropic(0)
