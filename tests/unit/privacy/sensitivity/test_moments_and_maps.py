"""Second moments, concept covariance and the subspace map on small cases that are known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from harness.errors import raises
from harness.token_data import token_data
from vecveil.privacy.sensitivity import Moments, concept_directions, subspace_map
from vecveil.privacy.sensitivity.concept_subspace import (
    RIDGE,
    between_label_covariance,
    covariance,
    matrix_root,
    shrinkage,
)

DATA = token_data(120, 10, dtype=float)


def test_moments_by_their_definitions() -> None:
    P, N, L, B = DATA.arguments()
    moments = Moments.of(P, N, token_labels=L, background=B)
    plain = (np.cov(P.T, bias=True) + np.cov(B.T, bias=True)) / 2
    parts = [(X, np.cov(X.T, bias=True)) for X in (P, B)]
    share = shrinkage(plain, parts)
    assert share > RIDGE
    np.testing.assert_allclose(moments.K, (1 - share) * plain + share * np.trace(plain) / 10 * np.eye(10))
    np.testing.assert_allclose(moments.M, (P.T @ P / len(P) + B.T @ B / len(B)) / 2)
    np.testing.assert_allclose(moments.C, (P - N).T @ (P - N) / len(P))
    np.testing.assert_allclose(moments.mean, (P.mean(axis=0) + B.mean(axis=0)) / 2)
    assert moments.rms_norm == pytest.approx(1.0)  # unit vectors
    # Without ordinary texts, the negatives stand in.
    np.testing.assert_allclose(Moments.of(P, N).mean, (P.mean(axis=0) + N.mean(axis=0)) / 2)
    assert Moments.of(P, N).B is None
    assert Moments.of(P, N, token_labels=L[:, :0]).B is None


def test_shrinkage_by_its_definition() -> None:
    """The mean squared distance of x xᵀ to K, over the squared distance of K to a multiple of I."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6)) * np.arange(1, 7) + 5
    rows, K = X - X.mean(axis=0), np.cov(X.T, bias=True)
    error = np.mean([((np.outer(x, x) - K) ** 2).sum() for x in rows]) / 40
    spread = ((K - np.trace(K) / 6 * np.eye(6)) ** 2).sum()
    assert shrinkage(K, [(X, K)]) == pytest.approx(error / spread)
    # Twice the same rows count as twice as many: halves of K, half the error.
    assert shrinkage(K, [(X, K), (X, K)]) == pytest.approx(error / spread / 2)
    assert shrinkage(np.eye(3), [(X[:, :3], np.eye(3))]) == 1.0


def test_a_map_from_few_texts_keeps_other_texts_alike() -> None:
    """An erasure fitted on few texts must not blow up texts that it has not seen."""
    few, many = token_data(60, 32, seed=1), token_data(1000, 32, seed=1).background
    found = concept_directions(Moments.of(few.positive, few.negative, token_labels=few.labels))
    released = subspace_map(found, erased=6).apply(many.astype(float))
    clean = many.astype(float)

    def spread(X: np.ndarray) -> float:
        return float(covariance(X).trace())

    assert spread(released) < 2 * spread(clean)


def test_between_label_covariance_is_the_sum_of_each_label_alone() -> None:
    X, L = DATA.positive, DATA.labels.astype(float)
    weights = np.linspace(0.1, 1, L.shape[1])
    wanted = np.zeros((10, 10))
    for weight, column in zip(weights, L.T, strict=True):
        with_it, without = X[column == 1].mean(axis=0), X[column == 0].mean(axis=0)
        # The best guess of the vector from the one label: its covariance.
        wanted += weight * column.mean() * (1 - column.mean()) * np.outer(with_it - without, with_it - without)
    np.testing.assert_allclose(between_label_covariance([(X, L)], weights), wanted, atol=1e-12)
    constant = np.concatenate([L, np.ones((len(L), 1)), np.zeros((len(L), 1))], axis=1)
    np.testing.assert_allclose(
        between_label_covariance([(X, sparse.csr_matrix(constant))]), between_label_covariance([(X, L)]), atol=1e-12
    )
    # Two parts that differ in their mean and in their share of a label: the difference counts for nothing.
    moved = [(X[:60], L[:60]), (X[60:] + 5, np.zeros_like(L[60:]))]
    alone = between_label_covariance([(X[:60], L[:60])])
    np.testing.assert_allclose(between_label_covariance(moved), alone * 60 / len(X), atol=1e-12)


def test_labels_without_a_meaning_have_no_direction() -> None:
    """Null: the error of random labels is the same in all directions of the metric of K.

    The eigenvalues are then those of a Wishart matrix, n = 20, of 2,000 degrees of freedom: their ratio is at most
    about ((1 + √(20/2000)) / (1 - √(20/2000)))² = 1.5, and exceeds 2 with a probability below 1e-6.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 20)) * np.arange(1, 21)
    B = between_label_covariance([(X, rng.random((1000, 2000)) < 0.1)])
    whiten = matrix_root(covariance(X), -0.5)
    values = np.linalg.eigvalsh(whiten @ B @ whiten)
    assert values[-1] / values[0] < 2


def test_directions_are_orthonormal_in_k_and_sorted() -> None:
    moments = Moments.of(DATA.positive, DATA.negative, token_labels=DATA.labels)
    found = concept_directions(moments)
    V = found.vectors
    np.testing.assert_allclose(V.T @ moments.K @ V, np.eye(10), atol=1e-8)
    assert (np.diff(found.strengths) <= 1e-12).all()
    assert found.strengths.sum() == pytest.approx(2.0)  # each part is scaled to trace 1
    assert found.residual(0) == pytest.approx(1.0)
    assert found.residual(10) == 0.0


def test_pairs_without_difference_have_no_direction() -> None:
    with raises("E-INPUT", "positive"):
        concept_directions(Moments.of(DATA.positive, DATA.positive))


def test_flattening_evens_out_the_spectrum() -> None:
    moments = Moments.of(DATA.positive, DATA.negative, background=DATA.background)
    found = concept_directions(moments)

    def spread(p: float) -> float:
        T = subspace_map(found, erased=2, kept=6, flattening=p).matrix
        eigenvalues = np.linalg.eigvalsh(T @ moments.K @ T.T)[-6:]
        return float(eigenvalues[-1] / eigenvalues[0])

    assert spread(0.0) > spread(0.5) > spread(1.0) == pytest.approx(1.0)


def test_nothing_erased_and_everything_kept_is_the_identity() -> None:
    found = concept_directions(Moments.of(DATA.positive, DATA.negative))
    np.testing.assert_allclose(subspace_map(found, erased=0).matrix, np.eye(10), atol=1e-8)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"erased": 10}, "erased"),
        ({"erased": -1}, "erased"),
        ({"erased": 2, "kept": 9}, "kept"),
        ({"erased": 2, "kept": 0}, "kept"),
        ({"erased": 2, "flattening": -1}, "flattening"),
    ],
)
def test_maps_out_of_range(options: dict[str, float], param: str) -> None:
    found = concept_directions(Moments.of(DATA.positive, DATA.negative))
    with raises("E-INPUT-RANGE", param):
        subspace_map(found, **options)  # type: ignore[arg-type]
