"""What holds for every input of a mechanism: exactly, or up to its grid, under the same words.

The laws themselves are tested in `statistical/`; with the same seed two releases have the same words, so that what
relates their noise holds draw by draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.privacy.mechanisms import Gaussian, Laplace, LdpGaussian, Mahalanobis, Mechanism, Purkayastha
from vecveil.privacy.sensitivity import NoiseShape

few = settings(deadline=None, max_examples=40)

dimensions = st.integers(1, 40)
epsilons = st.floats(-6, 9).map(lambda power: 10.0**power)
seeds = st.integers(0, 2**32)
FAMILIES = ("laplace", "diagonal", "full", "low rank", "gaussian", "gaussian full", "split")
families = st.sampled_from(FAMILIES)


def mechanism(family: str, n: int, epsilon: float) -> Any:
    rng = np.random.default_rng(n)
    A = rng.standard_normal((n + 3, n))
    if family == "laplace":
        return Laplace(n, epsilon)
    if family == "split":
        return Laplace(n, epsilon, splits=2)
    if family == "gaussian":
        return Gaussian(NoiseShape.isotropic(n), 1 / epsilon)
    if family == "diagonal":
        return Mahalanobis(NoiseShape.from_diagonal(np.arange(n), floor=0.5), epsilon)
    if family == "low rank":
        U = np.linalg.qr(A.T)[0][:, :1]
        return Mahalanobis(NoiseShape.from_low_rank(U, np.ones(1), floor=0.5), epsilon)
    full = NoiseShape.from_matrix(A.T @ A, floor=0.1)
    return Gaussian(full, 1 / epsilon) if family == "gaussian full" else Mahalanobis(full, epsilon)


def vectors(n: int, size: float, rows: int = 4, dtype: Any = np.float64) -> np.ndarray:
    """Return rows of that norm."""
    X = np.random.default_rng(n).standard_normal((rows, n))
    return (X * (size / np.linalg.norm(X, axis=1, keepdims=True))).astype(dtype)


def off_grid(Y: np.ndarray, one: Mechanism) -> float:
    return float(np.abs(Y / one.step - np.rint(Y / one.step)).max())


@few
@given(families, dimensions, epsilons, seeds, st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e6, 1e30]))
def test_noise_is_added_whatever_the_vector_is(family: str, n: int, epsilon: float, seed: int, size: float) -> None:
    """y(x) is x + (y(0) before its rounding), rounded: within a step and the rounding of doubles."""
    one, X = mechanism(family, n, epsilon), vectors(n, size)
    assume(size < 2**50 * one.step)  # longer vectors are refused
    Y, Z = one.protect(X, rng=seed), one.protect(0 * X, rng=seed)
    rounding = 4 * np.finfo(float).eps * (np.abs(X) + np.abs(Z))
    assert (np.abs(Y - (X + Z)) <= 1.01 * one.step + rounding).all()
    assert off_grid(Y, one) == off_grid(Z, one) == 0
    on_grid = np.rint(X / one.step) * one.step
    if np.abs(X).max() < 2**50 * one.step and np.abs(Z).max() < 2**50 * one.step:
        # x on the grid moves y by exactly as many steps (a tie may go to either side)
        moved = one.protect(on_grid, rng=seed) - Z - on_grid
        assert (np.abs(moved) <= one.step).all()
        assert (moved == 0).mean() > 0.5


@few
@given(families, dimensions, epsilons, seeds, st.sampled_from([0.0, 1.0, 1e10]))
def test_float32_releases_are_those_of_float64_rounded(
    family: str, n: int, epsilon: float, seed: int, size: float
) -> None:
    one, X = mechanism(family, n, epsilon), vectors(n, size, dtype=np.float32)
    assume(size < 2**38 * one.step)  # float32 has no place for the noise beside longer vectors
    single, double = one.protect(X, rng=seed), one.protect(X.astype(np.float64), rng=seed)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, double.astype(np.float32))


@few
@given(st.integers(2, 40), epsilons, seeds, st.sampled_from([1e-30, 1.0, 1e30]))
def test_float32_points_of_the_sphere_are_those_of_float64_rounded(
    n: int, epsilon: float, seed: int, size: float
) -> None:
    one, X = Purkayastha(n, epsilon), vectors(n, size, dtype=np.float32)
    single, double = one.protect(X, rng=seed), one.protect(X.astype(np.float64), rng=seed)
    np.testing.assert_array_equal(single, double.astype(np.float32))
    assert np.abs(np.linalg.norm(double, axis=1) - 1).max() <= one.step * np.sqrt(n) + 1e-12


@few
@given(st.integers(2, 40), epsilons, seeds)
def test_turned_vectors_are_turned_releases_where_noise_is_not_turned(n: int, epsilon: float, seed: int) -> None:
    """Isotropic noise does not see x: y(Qx) − Qx is y(x) − x up to the grid, for every rotation Q."""
    one, X = Laplace(n, epsilon), vectors(n, 1.0)
    Q = np.linalg.qr(np.random.default_rng(seed % 1000).standard_normal((n, n)))[0]
    first, second = one.protect(X, rng=seed) - X, one.protect(X @ Q, rng=seed) - X @ Q
    assert (np.abs(first - second) <= 1.01 * one.step + 1e-15 * np.abs(first) + 1e-15).all()


@few
@given(st.integers(2, 40), epsilons, seeds)
def test_the_angle_of_a_sphere_release_does_not_depend_on_the_vector(n: int, epsilon: float, seed: int) -> None:
    one = Purkayastha(n, epsilon)
    found = []
    for X in (vectors(n, 1.0), vectors(n, 1.0)[::-1], np.tile(np.eye(n)[0], (4, 1))):
        Y = one.protect(np.ascontiguousarray(X), rng=seed)
        apart, together = (np.linalg.norm(Y + sign * X, axis=1) for sign in (-1, 1))
        found.append(2 * np.arctan2(apart, together))
    assert np.ptp(np.array(found), axis=0).max() <= 4 * one.step * np.sqrt(n) + 1e-12


@few
@given(families, dimensions, epsilons, seeds, st.integers(0, 9))
def test_rows_do_not_depend_on_the_rows_behind_them(family: str, n: int, epsilon: float, seed: int, rows: int) -> None:
    """Row i has the words of row i, whatever follows (a matrix product may round differently: one step)."""
    one, X = mechanism(family, n, epsilon), vectors(n, 1.0, rows=10)
    all_rows, some = one.protect(X, rng=seed), one.protect(X[:rows], rng=seed)
    assert (np.abs(all_rows[:rows] - some) <= one.step).all()
    if family in ("laplace", "diagonal", "gaussian", "split"):
        np.testing.assert_array_equal(all_rows[:rows], some)


@few
@given(st.integers(1, 40), st.floats(-3, 6).map(lambda p: 10.0**p), st.floats(-12, -1), seeds)
def test_local_dp_takes_the_unit_ball_alone(n: int, epsilon: float, log_delta: float, seed: int) -> None:
    one = LdpGaussian(n, epsilon, 10.0**log_delta)
    Y, Z = one.protect(vectors(n, 1.0), rng=seed), one.protect(np.zeros((4, n)), rng=seed)
    assert (np.abs(Y - vectors(n, 1.0) - Z) <= 1.01 * one.step + 1e-15 * (1 + np.abs(Z))).all()
    assert np.isfinite(one.protect(vectors(n, 1.0, dtype=np.float32), rng=seed)).all()
    for size in (1.001, 2.0, 1e150):
        with raises("E-INPUT", "X"):
            one.protect(vectors(n, size))


@few
@given(families, dimensions, st.sampled_from([1e30, 3e38]), st.sampled_from([1e-6, 1e-30]))
def test_what_leaves_float32_is_refused_and_what_does_not_is_finite(
    family: str, n: int, size: float, epsilon: float
) -> None:
    X = np.full((3, n), size, dtype=np.float32)
    one = mechanism(family, n, epsilon)
    if size < 2**38 * one.step:
        assert np.isfinite(one.protect(X, rng=0)).all()
    elif size > 2**41 * one.step:  # beside such vectors float32 has no place for the noise
        with raises("E-RELEASE"):
            one.protect(X, rng=0)
    with raises("E-RELEASE"):
        mechanism(family, n, 1e-41).protect(X, rng=0)
    assert np.isfinite(mechanism(family, n, 1e-41).protect(X.astype(np.float64), rng=0)).all()
