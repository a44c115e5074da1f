"""Definition 7: the largest difference per dimension, over pairs and over D+ × D-."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from vecveil.privacy.sensitivity import difference_sensitivity, difference_shape


def sets(rows: int, others: int, n: int, seed: int, dtype: Any = float) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    shift = 3 * rng.standard_normal(n)
    return ((rng.standard_normal((rows, n)) + shift).astype(dtype), rng.standard_normal((others, n)).astype(dtype))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**31))
def test_over_the_sets_is_the_quadratic_loop(rows: int, others: int, n: int, seed: int) -> None:
    P, N = sets(rows, others, n, seed)
    loop = np.abs(P[:, None] - N[None]).max(axis=(0, 1))
    np.testing.assert_allclose(difference_sensitivity(P, N, over="sets"), loop)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_over_pairs_by_hand(dtype: Any) -> None:
    P = np.array([[1, 2], [3, -4]], dtype=dtype)
    N = np.array([[0, 5], [2.5, -4]], dtype=dtype)
    found = difference_sensitivity(P, N)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [1, 3])
    np.testing.assert_array_equal(difference_sensitivity(P, N, over="sets"), [3, 9])


def test_the_shape_is_proportional_to_the_sensitivity() -> None:
    P, N = sets(40, 40, 6, 1, np.float32)
    weights = difference_sensitivity(P, N)
    shape = difference_shape(P, N, floor=0.1)
    np.testing.assert_allclose(shape.covariance().diagonal(), (weights / weights.mean() + 0.1) / 1.1)
    assert difference_shape(P, N, over="sets").is_diagonal


def test_what_has_no_difference() -> None:
    P, N = sets(5, 4, 3, 0)
    with raises("E-INPUT", "negative"):
        difference_sensitivity(P, N)
    with raises("E-INCOMPATIBLE", "negative"):
        difference_sensitivity(P, N[:, :2], over="sets")
    with raises("E-INPUT", "over"):
        difference_sensitivity(P, N, over="texts")  # type: ignore[arg-type]
    with raises("E-INPUT-FINITE", "positive"):
        difference_sensitivity(np.nan * P, P)
    with raises("E-INPUT", "negative"):
        difference_shape(P, P)
