"""Faults that reviews found, each held by a test: statements that were false, values that were lost."""

from __future__ import annotations

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.auditing.metrics import SimilarityTask
from vecveil.privacy.mechanisms import Before, Gaussian, Laplace, LdpGaussian, Purkayastha, Step
from vecveil.privacy.protector import Protector
from vecveil.privacy.sensitivity import NoiseShape

N = 16
DATA = token_data(200, N)


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5])
def test_clipping_does_not_shorten_angles(radius: float) -> None:
    """Opposite vectors of norm 0.1 are 0.2 apart, and π radians: the sphere's total is επ for every radius."""
    one = Protector("purkayastha", Purkayastha(N, 30.0), before=Before("clip", radius))
    assert f"{30 * np.pi:.3g}-local differential privacy" in str(one.guarantee)


@pytest.mark.parametrize("size", [1.5e-162, 1e-161, 3e-160])
def test_normalised_rows_never_exceed_norm_one(size: float) -> None:
    """The local guarantee is for ANY two inputs: squares of tiny doubles underflow, their norm comes out short."""
    X = np.full((1, N), size)
    X[0, 0] = 2e-162
    one = Protector("laplace", Laplace(N, 30.0), before=Before("normalise"))
    assert np.linalg.norm(one.protect(X, noise=False)) <= 1 + 1e-9


@pytest.mark.parametrize("kind", ["normalise", "clip"])
def test_long_rows_keep_their_direction(kind: str) -> None:
    """At norms above 1.3e154 squares overflow and the row becomes zeros."""
    before = Before("clip", 1.0) if kind == "clip" else Before("normalise")
    Y = Protector("laplace", Laplace(N, 30.0), before=before).protect(np.full((1, N), 1e200), noise=False)
    np.testing.assert_allclose(Y, np.full((1, N), 0.25))


def test_the_normalise_step_keeps_long_rows() -> None:
    with np.errstate(over="ignore"):
        Y = Step("normalise").apply(np.full((1, N), 1e200))
    np.testing.assert_allclose(Y, np.full((1, N), 0.25))


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_the_sphere_is_not_left_by_long_rows(size: float) -> None:
    Y = Purkayastha(N, 30.0).protect(np.full((5, N), size), rng=0)
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("size", [1e-170, 1e-200, 1e-300])
def test_short_rows_have_a_direction_too(size: float) -> None:
    Y = Purkayastha(N, 30.0).protect(np.full((5, N), size), rng=0)
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1), 1, atol=1e-3)


def test_local_dp_says_that_a_long_row_is_too_long() -> None:
    with raises("E-INPUT", "X"):
        LdpGaussian(N, 20.0, 1e-6).protect(np.full((1, N), 1e200))


@pytest.mark.parametrize(
    "options", [{"method": "laplace"}, {"method": "laplace", "wiener": "wiener,"}, {"method": "subspace"}]
)
def test_a_target_and_int8_without_a_range_go_together(options: dict[str, str]) -> None:
    """The search sees the placeholder range 1e300, which rounds every vector to zeros."""
    steps = options.pop("wiener", "") + "int8"
    one = vecveil.fit_pairs(*DATA.arguments(), **options, target_utility=0.75, postprocess=steps)  # type: ignore[arg-type]
    X = np.concatenate([DATA.positive, DATA.background])
    task = SimilarityTask.of(X, pairs=4000, seed=9)
    found = task.relative(lambda V, rng: one.protect(V, rng, noise=rng is not None), np.random.default_rng(9))
    assert found == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize("value", ["truncate:inf", "truncate:nan", "truncate:-inf"])
def test_numbers_that_are_none_are_refused_by_name(value: str) -> None:
    with raises("E-INPUT-RANGE", "truncate"):
        vecveil.fit_pairs(*DATA.arguments(), method="laplace", epsilon=30.0, postprocess=value)


BAD_MATRICES = {
    "another dimension": np.eye(3),
    "one axis": np.ones(N),
    "NaN": np.full((3, N), np.nan),
    "ragged list": [[1.0] * N, [1.0]],
    "text": np.full((3, N), "x"),
    "no rows": np.zeros((0, N)),
    "complex": np.ones((3, N), dtype=complex),
}


@pytest.mark.parametrize("kind", BAD_MATRICES)
def test_a_projection_that_does_not_fit_is_refused_by_name(kind: str) -> None:
    with raises("E-INPUT", "postprocess"):
        vecveil.fit_pairs(
            *DATA.arguments(),
            method="laplace",
            epsilon=30.0,
            postprocess=[Step("project", matrix=BAD_MATRICES[kind])],  # type: ignore[arg-type]
        )


def test_gaussian_noise_on_bounded_norms_says_what_it_totals_to() -> None:
    one = Protector("gaussian", Gaussian(NoiseShape.isotropic(N), 0.5), before=Before("clip", 1.0))
    assert "any two inputs" in str(one.guarantee)


def test_distances_behind_a_map_by_the_pseudo_inverse() -> None:
    """An oracle apart from the package: ‖Tv‖ in the pseudo-inverse of TΣTᵀ."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((N, N))
    for shape in (
        NoiseShape.isotropic(N),
        NoiseShape.from_diagonal(np.arange(N), floor=0.1),
        NoiseShape.from_matrix(A.T @ A, floor=0.1),
        NoiseShape.from_low_rank(np.linalg.qr(A)[0][:, :3], np.array([5.0, 2.0, 1.0]), floor=0.2),
    ):
        X, Y = rng.standard_normal((2, 20, N))
        for rows in (5, N):
            T = rng.standard_normal((rows, N))
            inverse = np.linalg.pinv(T @ shape.covariance() @ T.T)
            v = (X - Y) @ T.T
            expected = np.sqrt(np.einsum("ij,jk,ik->i", v, inverse, v))
            for one in (Gaussian(shape, 0.3),):
                np.testing.assert_allclose(one.distances(X, Y, down=T), expected, rtol=1e-6)


def test_target_cosine_is_measured_on_the_vectors_themselves() -> None:
    """Norms that differ, and a shape that does: the closed form for unit vectors would miss by far."""
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(0, 1, (len(DATA.positive), 1))).astype(np.float32)
    arrays = (DATA.positive * scale, DATA.negative * scale)
    for options in ({"method": "laplace"}, {"method": "covariance", "shape": "low-rank", "rank": 2}):
        one = vecveil.fit_pairs(*arrays, target_cosine=0.8, postprocess="none", **options)
        X = np.concatenate(arrays)
        Y = one.protect(X, 5)
        lengths = np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
        assert (X * Y).sum(axis=1) @ (1 / lengths) / len(X) == pytest.approx(0.8, abs=0.03)
