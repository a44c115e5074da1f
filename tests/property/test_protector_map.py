"""Laws of shapes, maps and erasure that hold for all data (hypothesis draws the data's seed)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vecveil
from harness.token_data import TokenData, token_data
from vecveil.privacy.sensitivity import (
    ConceptDirections,
    Moments,
    NoiseShape,
    concept_directions,
    optimal_shape,
    subspace_map,
)

seeds = st.integers(0, 10**6)
quick = settings(max_examples=25, deadline=None)


def directions_of(data: TokenData, *, labels: bool = True) -> tuple[ConceptDirections, Moments]:
    moments = Moments.of(
        data.positive, data.negative, token_labels=data.labels if labels else None, background=data.background
    )
    return concept_directions(moments), moments


@quick
@given(seeds, st.integers(1, 11), st.booleans())
def test_erasure_is_an_oblique_projection(seed: int, k: int, labels: bool) -> None:
    found, moments = directions_of(token_data(60, 12, seed=seed, dtype=float), labels=labels)
    P, V = found.erasure(k), found.vectors[:, :k]
    W = moments.K @ V
    np.testing.assert_allclose(P @ P, P, atol=1e-8)
    np.testing.assert_allclose(P @ W, 0, atol=1e-8)
    np.testing.assert_allclose(V.T @ P, 0, atol=1e-6)
    assert np.linalg.matrix_rank(P, tol=1e-6) == 12 - k
    # The general formula, without the K-orthonormality of V.
    general = np.eye(12) - W @ np.linalg.solve(V.T @ W, V.T)
    np.testing.assert_allclose(P, general, atol=1e-8)


@quick
@given(seeds, st.integers(1, 8), st.floats(0, 1.2))
def test_differences_in_the_kernel_are_invisible(seed: int, k: int, p: float) -> None:
    found, moments = directions_of(token_data(60, 12, seed=seed, dtype=float))
    T = subspace_map(found, erased=k, kept=min(6, 12 - k), flattening=p)
    W = moments.K @ found.vectors[:, :k]
    np.testing.assert_allclose(T.apply(W.T), 0, atol=1e-7 * np.abs(W).max())
    kernel = np.linalg.svd(T.matrix)[2][T.rank :]
    np.testing.assert_allclose(T.apply(kernel), 0, atol=1e-8)
    assert T.rank == min(6, 12 - k)


@quick
@given(seeds, st.integers(1, 8), st.floats(0, 1.2))
def test_reduced_and_full_releases_have_the_same_inner_products(seed: int, k: int, p: float) -> None:
    data = token_data(60, 12, seed=seed, dtype=float)
    found, moments = directions_of(data)
    T = subspace_map(found, erased=k, kept=min(4, 12 - k), flattening=p)
    full, reduced = T.apply(data.positive), T.apply(data.positive, reduced=True)
    np.testing.assert_allclose(full @ full.T, reduced @ reduced.T, atol=1e-9)
    # The map keeps the mean square length of what K describes.
    assert np.trace(T.matrix @ moments.K @ T.matrix.T) == pytest.approx(np.trace(moments.K))


@quick
@given(seeds)
def test_labels_alone_are_uncorrelated_after_erasing_their_rank(seed: int) -> None:
    data = token_data(80, 12, tokens=4, seed=seed, dtype=float)
    protector = vecveil.fit_pairs(*data.arguments(), rank=4, kept=8, flattening=0.4, pairs=False, epsilon=50.0)
    Y = protector.protect(data.positive, noise=False)
    L = data.labels - data.labels.mean(axis=0)
    np.testing.assert_allclose((Y - Y.mean(axis=0)).T @ L / len(Y), 0, atol=1e-4)  # on the grid of the map
    assert protector.report["residual_after_erasure"] == pytest.approx(0, abs=1e-8)
    # Control: with one direction fewer something of the labels is left.
    less = vecveil.fit_pairs(*data.arguments(), rank=3, kept=9, flattening=0.4, pairs=False, epsilon=50.0)
    Y = less.protect(data.positive, noise=False)
    assert np.abs((Y - Y.mean(axis=0)).T @ L / len(Y)).max() > 1e-4
    assert less.report["residual_after_erasure"] > 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_oblique_erasure_leaves_a_linear_probe_at_chance_and_orthogonal_does_not(seed: int) -> None:
    """The probe is fitted and read on the erased sample itself, where erasure is exact."""
    data = token_data(400, 24, tokens=4, seed=seed, dtype=float)
    only_labels = Moments.of(data.positive, data.negative, token_labels=data.labels)
    found = concept_directions(
        Moments(
            K=only_labels.K,
            M=only_labels.M,
            C=np.zeros_like(only_labels.C),
            B=only_labels.B,
            mean=only_labels.mean,
            rms_norm=only_labels.rms_norm,
        )
    )
    oblique = found.erasure(4)
    Q = np.linalg.qr(found.vectors[:, :4])[0]
    orthogonal = np.eye(24) - Q @ Q.T

    def gain(P: np.ndarray, column: int) -> float:
        X, y = data.positive @ P.T, data.labels[:, column]
        X, y = X - X.mean(axis=0), y - y.mean()
        scores = X @ np.linalg.lstsq(X, y, rcond=1e-9)[0]
        return float(scores.std() / y.std())  # the multiple correlation of a linear probe

    for column in range(4):
        assert gain(oblique, column) < 1e-6
        assert gain(orthogonal, column) > 0.2  # control


@quick
@given(seeds, st.integers(2, 8))
def test_optimal_shape_beats_every_other_at_equal_distortion(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((2, n, n + 2))
    C, M = A @ A.T, B @ B.T
    best = optimal_shape(C, M)

    def distance(Sigma: np.ndarray) -> float:
        Sigma = Sigma / np.trace(Sigma @ M)  # equal distortion
        return float(np.trace(C @ np.linalg.inv(Sigma)))

    least = distance(best)
    for _ in range(20):
        E = rng.standard_normal((n, n))
        assert distance(E @ E.T + 1e-6 * np.eye(n)) >= least * (1 - 1e-9)
        near = best + 0.01 * np.trace(best) / n * (E + E.T) / np.linalg.norm(E)
        if np.linalg.eigvalsh(near)[0] > 0:
            assert distance(near) >= least * (1 - 1e-9)


@quick
@given(seeds, st.integers(1, 9), st.floats(1e-6, 1.0))
def test_shapes_have_trace_n_and_their_root_squared_is_sigma(seed: int, n: int, floor: float) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, max(1, n // 2)))
    for shape in (NoiseShape.from_matrix(A @ A.T, floor=floor), NoiseShape.from_diagonal(np.abs(A[:, 0]), floor=floor)):
        Sigma = shape.covariance()
        assert np.trace(Sigma) == pytest.approx(n)
        assert shape.smallest_eigenvalue > 0
        root = np.diag(shape.root) if shape.root.ndim == 1 else shape.root
        np.testing.assert_allclose(root @ root, Sigma, atol=1e-9)
        V = rng.standard_normal((5, n))
        expected = np.sqrt(np.einsum("ij,ij->i", V, np.linalg.solve(Sigma, V.T).T))
        np.testing.assert_allclose(shape.norm(V), expected, rtol=1e-5)
        # Lemma 1 of SPARSE: ‖v‖/√n ≤ ‖v‖_Σ ≤ ‖v‖/√λ_min.
        lengths = np.linalg.norm(V, axis=1)
        assert (expected >= lengths / np.sqrt(n) * (1 - 1e-6)).all()
        assert (expected <= lengths / np.sqrt(shape.smallest_eigenvalue) * (1 + 1e-6)).all()


@quick
@given(seeds)
def test_rank_after_the_labels_are_spent_comes_from_nowhere(seed: int) -> None:
    """Labels that always occur together have one direction between them, not two."""
    data = token_data(60, 8, tokens=2, seed=seed, dtype=float)
    twice = np.repeat(data.labels[:, :1], 3, axis=1)
    B = Moments.of(data.positive, data.negative, token_labels=twice).B
    assert B is not None
    eigenvalues = np.linalg.eigvalsh(B)
    assert eigenvalues[-2] < 1e-6 * eigenvalues[-1]
