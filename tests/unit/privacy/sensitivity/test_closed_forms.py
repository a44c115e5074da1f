"""Closed-form shapes: that each minimises what it says, and what combining them guarantees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import raises
from harness.token_data import token_data
from vecveil.privacy.sensitivity import (
    Moments,
    NoiseShape,
    combine_shapes,
    concept_covariance_shape,
    diagonal_concept_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.privacy.sensitivity.closed_forms import optimal_shape, regularised

N_DIM = 8
DATA = token_data(300, N_DIM, dtype=float)
MOMENTS = Moments.of(*DATA.arguments()[:2], token_labels=DATA.labels, background=DATA.background)
SMALL = 1e-9


def cost(shape: NoiseShape, C: Any, M: Any) -> float:
    """Return tr(C Σ⁻¹) at the distortion tr(Σ M) = 1: what the optimal shapes minimise."""
    Sigma = shape.covariance()
    return float(np.trace(C @ np.linalg.inv(Sigma)) * np.trace(Sigma @ M))


def test_no_diagonal_costs_less_than_the_diagonal_shape() -> None:
    best = cost(diagonal_concept_shape(MOMENTS, floor=SMALL), MOMENTS.C, MOMENTS.M)
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = NoiseShape.from_diagonal(np.exp(rng.standard_normal(N_DIM)))
        assert cost(other, MOMENTS.C, MOMENTS.M) > best
    assert cost(NoiseShape.isotropic(N_DIM), MOMENTS.C, MOMENTS.M) > best


def test_no_shape_costs_less_for_the_labels_than_the_label_shape() -> None:
    M = regularised(MOMENTS.M)
    assert MOMENTS.B is not None
    best = cost(label_shape(MOMENTS, floor=1e-6), MOMENTS.B, M)
    assert best < cost(concept_covariance_shape(MOMENTS, floor=1e-6), MOMENTS.B, M)
    assert best < cost(NoiseShape.isotropic(N_DIM), MOMENTS.B, M)
    # With M = I it is B^{1/2}.
    root = optimal_shape(MOMENTS.B, np.eye(N_DIM))
    np.testing.assert_allclose(root @ root, MOMENTS.B, atol=1e-8)


def test_dead_dimensions_get_the_floor() -> None:
    def dead(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.where(np.arange(N_DIM) == 3, 0.0, X)

    moments = Moments.of(dead(DATA.positive), dead(DATA.negative), background=dead(DATA.background))
    for shape in (diagonal_concept_shape(moments), concept_covariance_shape(moments)):
        assert np.isfinite(shape.covariance()).all()
        assert np.argmin(np.diag(shape.covariance())) == 3
    assert diagonal_concept_shape(moments, floor=0.01).smallest_eigenvalue == pytest.approx(0.01 / 1.01)


def test_the_floor_of_the_low_rank_shape() -> None:
    assert low_rank_concept_shape(MOMENTS, 7, floor=0.5).smallest_eigenvalue == pytest.approx(0.5)
    alike = low_rank_concept_shape(MOMENTS, 3, floor=1.0)
    np.testing.assert_allclose(alike.covariance(), np.eye(N_DIM), atol=1e-12)
    with raises("E-INPUT", "floor"):
        low_rank_concept_shape(MOMENTS, 3, floor=1.5)


def test_what_has_no_shape() -> None:
    nothing = Moments.of(DATA.positive, DATA.positive)
    with raises("E-INPUT", "moments"):
        diagonal_concept_shape(nothing)
    with raises("E-INPUT", "moments"):
        low_rank_concept_shape(nothing, 2)
    with raises("E-INPUT", "moments"):
        label_shape(nothing)
    same = Moments.of(np.ones((9, 2)), np.zeros((9, 2)), token_labels=np.eye(9, dtype=int))
    with raises("E-INPUT", "moments"):
        label_shape(same)
    for rank in (0, N_DIM + 1):
        with raises("E-INPUT-RANGE", "rank"):
            low_rank_concept_shape(MOMENTS, rank)


def random_shape(kind: str, n: int, rng: np.random.Generator) -> NoiseShape:
    A = rng.standard_normal((n, n))
    if kind == "diagonal":
        return NoiseShape.from_diagonal(rng.random(n), floor=0.01)
    if kind == "full":
        return NoiseShape.from_matrix(A @ A.T)
    U = np.linalg.qr(A)[0][:, : max(1, n // 2)]
    return NoiseShape.from_low_rank(U, rng.random(U.shape[1]) + 0.01, floor=0.05)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.lists(
        st.tuples(st.sampled_from(["diagonal", "full", "low rank"]), st.floats(0.01, 100)), min_size=1, max_size=4
    ),
    st.integers(0, 2**31),
)
def test_each_concept_keeps_its_bound(n: int, parts: list[tuple[str, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [random_shape(kind, n, rng) for kind, _ in parts]
    weights = np.array([weight for _, weight in parts])
    combined = combine_shapes(shapes, list(weights))
    assert np.trace(combined.covariance()) == pytest.approx(n)
    v = rng.standard_normal((6, n))
    for shape, weight in zip(shapes, weights / weights.sum(), strict=True):
        assert (combined.norm(v) <= shape.norm(v) / np.sqrt(weight) * (1 + 1e-8)).all()


def test_the_bound_is_tight_where_no_other_concept_has_noise() -> None:
    one, other = (NoiseShape.from_diagonal(d, floor=1e-12) for d in (np.eye(2)[0], np.eye(2)[1]))
    both = combine_shapes([one, other], [1, 3])
    v = np.array([[1.0, 0.0]])
    assert both.norm(v)[0] == pytest.approx(one.norm(v)[0] / np.sqrt(0.25))
    # Control: without the factor the bound is false.
    assert both.norm(v)[0] > one.norm(v)[0]


def test_kinds_of_combined_shapes() -> None:
    rng = np.random.default_rng(0)
    diagonal, full, ranked = (random_shape(kind, 4, rng) for kind in ("diagonal", "full", "low"))
    assert combine_shapes([diagonal, NoiseShape.isotropic(4)]).is_diagonal
    assert combine_shapes([NoiseShape.isotropic(4)] * 3).is_isotropic
    mixed = combine_shapes([diagonal, full, ranked])
    assert not mixed.is_diagonal
    np.testing.assert_allclose(
        mixed.covariance(), (diagonal.covariance() + full.covariance() + ranked.covariance()) / 3, atol=1e-12
    )


@pytest.mark.parametrize(
    ("shapes", "weights", "param"),
    [
        ([], None, "shapes"),
        ([2, 3], None, "shapes"),
        ([2, 2], [1], "weights"),
        ([2, 2], [1, 0], "weights"),
        ([2, 2], [1, -1], "weights"),
        ([2, 2], [1, np.nan], "weights"),
        ([2, 2], ["a", "b"], "weights"),
    ],
)
def test_what_cannot_be_combined(shapes: list[int], weights: Any, param: str) -> None:
    with raises("E-INPUT", param):
        combine_shapes([NoiseShape.isotropic(n) for n in shapes], weights)
