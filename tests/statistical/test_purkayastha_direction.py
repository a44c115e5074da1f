"""Purkayastha releases are points of the sphere, and their tangent directions are uniform.

Null: y = cos θ·x + sin θ·u with u uniform on the unit sphere of x's orthogonal complement, independent of θ.
False failure: 1e-6 for the module, shared over all its tests.
Power: N rows show a mean direction of length 8/√N; the contingency table shows a dependence of 0.1.
Control: noise that is not made orthogonal to x, directions that prefer an axis, and directions that depend on the
angle are rejected by the same tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.errors import raises
from harness.statistics import threshold
from statistical.white_noise import direction_p
from vecveil.privacy.mechanisms import Purkayastha

CASES = [
    (2, 1.0),
    (2, 300.0),
    (3, 0.1),
    (3, 30.0),
    (8, 5.0),
    (64, 1e-3),
    (64, 64.0),
    (384, 400.0),
    (768, 600.0),
    (768, 620.0),
    (768, 621.0),
    (1024, 1e6),
    (3072, 3e3),
]
LEVEL = threshold(5 * len(CASES) + 40)


def rows_of(n: int) -> int:
    return 20_000 if n < 100 else 2000 if n < 1000 else 1000


def centre(n: int) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal(n)
    return x / np.linalg.norm(x)


def released(n: int, epsilon: float, dtype: Any = np.float64, seed: Any = 0) -> np.ndarray:
    X = np.tile(centre(n).astype(dtype), (rows_of(n), 1))
    return Purkayastha(n, epsilon).protect(X, rng=seed)


def split(Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the angles to the centre, and the directions in a basis of its complement."""
    n = Y.shape[1]
    x = centre(n)
    theta = 2 * np.arcsin(np.minimum(np.linalg.norm(Y - x, axis=1) / 2, 1.0))
    v = x + np.sign(x[0]) * np.eye(n)[0]  # the reflection that takes x to an axis (Householder)
    U = (Y - np.outer(Y @ v, 2 * v / (v @ v)))[:, 1:]
    return theta, U / np.linalg.norm(U, axis=1, keepdims=True)


def dependence_p(theta: np.ndarray, U: np.ndarray) -> float:
    """Test that angle and one coordinate of the direction are independent, in a table of fifths."""
    first = np.argsort(np.argsort(theta)) * 5 // len(theta)
    second = (np.argsort(np.argsort(U[:, 0])) * 5 // len(theta)) if U.shape[1] > 1 else U[:, 0] > 0
    table = np.zeros((5, 5 if U.shape[1] > 1 else 2))
    np.add.at(table, (first, second.astype(int)), 1)
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize(("n", "epsilon"), CASES)
def test_directions_are_uniform_and_independent_of_the_angle(n: int, epsilon: float) -> None:
    theta, U = split(released(n, epsilon))
    for name, p in direction_p(U).items():
        assert p > LEVEL, name
    assert dependence_p(theta, U) > LEVEL


@pytest.mark.parametrize("n", [3, 8, 64])
def test_control_directions_that_prefer_an_axis_are_rejected(n: int) -> None:
    theta, U = split(released(n, float(n)))
    bent = U * np.r_[1.3, np.ones(n - 2)]
    assert min(direction_p(bent).values()) < LEVEL
    pushed = U + np.r_[0.1, np.zeros(n - 2)]
    assert direction_p(pushed)["mean"] < LEVEL
    tied = np.where((theta > np.median(theta))[:, None], U, -np.abs(U))
    assert dependence_p(theta, tied) < LEVEL


@pytest.mark.parametrize("n", [3, 8, 384])
def test_control_noise_that_is_not_made_tangent_leaves_the_sphere(n: int) -> None:
    """(x + z)/‖x + z‖ is on the sphere too, but N/‖N‖ in place of a tangent is not orthogonal to x."""
    rng, x, N = np.random.default_rng(0), centre(n), rows_of(n)
    V = rng.standard_normal((N, n))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    theta = split(released(n, float(n)))[0][:, None]
    Y = np.cos(theta) * x + np.sin(theta) * V
    one = Purkayastha(n, float(n))
    assert np.abs(np.linalg.norm(Y, axis=1) - 1).max() > 100 * one.step * np.sqrt(n)


@pytest.mark.parametrize(("n", "epsilon"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_releases_lie_on_the_sphere_up_to_the_grid(n: int, epsilon: float, dtype: Any) -> None:
    Y = released(n, epsilon, dtype).astype(np.float64)
    one = Purkayastha(n, epsilon)
    rounding = 0 if dtype == np.float64 else 2.0**-24
    off = np.abs(np.linalg.norm(Y, axis=1) - 1).max()
    assert off <= one.step / 2 * np.sqrt(n) + rounding + 1e-13
    np.testing.assert_array_equal(Y / one.step, np.rint(Y / one.step))


@pytest.mark.parametrize("n", [2, 3, 8, 384])
def test_the_norm_of_a_row_does_not_count(n: int) -> None:
    one, X = Purkayastha(n, float(n)), np.tile(centre(n), (50, 1))
    expected = one.protect(X, rng=3)
    for power in (-100, -1, 1, 40, 100):  # a power of two changes no bit of the direction
        np.testing.assert_array_equal(one.protect(X * 2.0**power, rng=3), expected)
    for factor in (1e-30, 0.3, 7.7, 1e30):
        np.testing.assert_allclose(one.protect(X * factor, rng=3), expected, atol=1.01 * one.step)
    small = one.protect((X * 1e-30).astype(np.float32), rng=3)
    np.testing.assert_allclose(small, expected, atol=one.step + 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_without_a_direction_are_refused_whole(dtype: Any) -> None:
    X = np.ones((5, 8), dtype=dtype)
    X[3] = 0
    with raises("E-INPUT", "X"):
        Purkayastha(8, 3.0).protect(X)
    X[3] = -0.0
    with raises("E-INPUT", "X"):
        Purkayastha(8, 3.0).protect(X)
    assert Purkayastha(8, 3.0).protect(X[:0]).shape == (0, 8)


def test_two_rows_of_a_call_share_neither_angle_nor_direction() -> None:
    """Null: rows are independent. Control: the same rows twice correlate fully."""
    theta, U = split(released(8, 8.0))
    limit = -stats.norm.ppf(LEVEL / 2) / np.sqrt(len(theta) / 2)
    for values in (theta, U[:, 0], U[:, 3]):
        first, second = values[::2], values[1::2]
        assert abs(np.corrcoef(first, second)[0, 1]) < limit
        assert abs(np.corrcoef(first, first)[0, 1]) > limit
