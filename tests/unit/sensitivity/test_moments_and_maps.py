"""Second moments, concept covariance and the subspace map on small cases that are known exactly."""

from __future__ import annotations

import numpy as np
import pytest

from harness.token_data import token_data
from vecveil.errors import InvalidInputError
from vecveil.sensitivity import Moments, concept_covariance_shape, concept_directions, subspace_map
from vecveil.sensitivity.moments import RIDGE, between_label_covariance, covariance

DATA = token_data(120, 10, dtype=float)


def test_moments_by_their_definitions() -> None:
    P, N, L, B = DATA.arguments()
    moments = Moments.of(P, N, token_labels=L, background=B)
    plain = (np.cov(P.T, bias=True) + np.cov(B.T, bias=True)) / 2
    np.testing.assert_allclose(moments.K, plain + RIDGE * np.trace(plain) / 10 * np.eye(10))
    np.testing.assert_allclose(moments.M, (P.T @ P / len(P) + B.T @ B / len(B)) / 2)
    np.testing.assert_allclose(moments.C, (P - N).T @ (P - N) / len(P))
    np.testing.assert_allclose(moments.mean, (P.mean(axis=0) + B.mean(axis=0)) / 2)
    assert moments.rms_norm == pytest.approx(1.0)  # unit vectors
    # Without ordinary texts, the negatives stand in.
    np.testing.assert_allclose(
        Moments.of(P, N).mean, (P.mean(axis=0) + N.mean(axis=0)) / 2
    )
    assert Moments.of(P, N).B is None
    assert Moments.of(P, N, token_labels=L[:, :0]).B is None


def test_between_label_covariance_is_the_covariance_of_the_best_linear_guess() -> None:
    X, L = DATA.positive, DATA.labels.astype(float)
    Lc = L - L.mean(axis=0)
    fitted = Lc @ np.linalg.lstsq(Lc, X - X.mean(axis=0), rcond=None)[0]
    np.testing.assert_allclose(between_label_covariance(X, L), covariance(fitted), atol=1e-5)


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
    with pytest.raises(InvalidInputError, match="no direction to erase"):
        concept_directions(Moments.of(DATA.positive, DATA.positive))


def test_the_concept_shape_points_its_noise_at_the_concept() -> None:
    rng = np.random.default_rng(0)
    base = rng.standard_normal((500, 6))
    moved = base.copy()
    moved[:, 2] += rng.standard_normal(500)
    shape = concept_covariance_shape(Moments.of(moved, base), floor=1e-2).covariance()
    assert np.argmax(np.diag(shape)) == 2
    assert shape[2, 2] > 5.0


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
    ("options", "match"),
    [({"erased": 10}, "`erased`"), ({"erased": -1}, "`erased`"), ({"erased": 2, "kept": 9}, "kept"),
     ({"erased": 2, "kept": 0}, "`kept`"), ({"erased": 2, "flattening": -1}, "`flattening`")],
)  # fmt: skip
def test_maps_out_of_range(options: dict[str, float], match: str) -> None:
    found = concept_directions(Moments.of(DATA.positive, DATA.negative))
    with pytest.raises(InvalidInputError, match=match):
        subspace_map(found, **options)  # type: ignore[arg-type]
