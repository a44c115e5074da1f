"""Parameters of mechanisms: refused, declared, saved; the laws are tested in statistical/."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.policies import crafter
from vecveil.privacy.mechanisms import (
    MECHANISMS,
    Gaussian,
    Laplace,
    LdpGaussian,
    Mahalanobis,
    ProjectedLaplace,
    Purkayastha,
    Shuffle,
    TruncatedLaplace,
    epsilon_of_rms_norm,
    random_permutation,
    rms_norm_of_epsilon,
)
from vecveil.privacy.mechanisms.purkayastha import angle_moments
from vecveil.privacy.sensitivity import NoiseShape

N = 6
EYE = NoiseShape.isotropic(N)
BAD = [0, 0.0, -1.0, float("nan"), float("inf"), -float("inf"), True, "1", None, 1j, [1.0]]


@pytest.mark.parametrize("value", BAD)
def test_scales_out_of_range_are_refused_by_name(value: Any) -> None:
    for make, name in (
        (lambda: Gaussian(EYE, value), "sigma"),
        (lambda: LdpGaussian(N, value, 1e-6), "epsilon"),
        (lambda: Purkayastha(N, value), "epsilon"),
        (lambda: Laplace(N, value), "epsilon"),
        (lambda: Mahalanobis(EYE, value), "epsilon"),
        (lambda: TruncatedLaplace(np.ones(N), value), "epsilon"),
    ):
        with raises("E-INPUT", name):
            make()
    with raises("E-INPUT", "delta"):
        LdpGaussian(N, 1.0, value)


@pytest.mark.parametrize("value", [1.0, 2.5, 1, 10])
def test_a_delta_of_one_or_more_is_refused(value: float) -> None:
    with raises("E-INPUT-RANGE", "delta"):
        LdpGaussian(N, 1.0, value)


@pytest.mark.parametrize("value", [0, -1, 17, 2.0, True, "2", None])
def test_numbers_of_splits_are_refused_by_name(value: Any) -> None:
    for make in (Gaussian, Mahalanobis):
        with raises("E-INPUT", "splits"):
            make(EYE, 1.0, value)


@pytest.mark.parametrize("value", [1, 0, -3, 2.0, "8", None])
def test_the_sphere_needs_two_dimensions(value: Any) -> None:
    with raises("E-INPUT", "n"):
        Purkayastha(value, 3.0)


@pytest.mark.parametrize("n", [1, 2, 384])
def test_laplace_noise_declares_its_covariance(n: int) -> None:
    for epsilon in (0.1, 7.0, 1e4):
        rms = rms_norm_of_epsilon(epsilon, n)
        assert epsilon_of_rms_norm(rms, n) == pytest.approx(epsilon)
        np.testing.assert_allclose(Laplace(n, epsilon).noise_covariance(), rms**2 / n * np.eye(n))
    shape = NoiseShape.from_diagonal(np.arange(N), floor=0.1)
    np.testing.assert_allclose(Mahalanobis(shape, 3.0).noise_covariance(), (N + 1) / 9 * shape.covariance())


def test_the_public_method_cannot_be_weakened() -> None:
    assert Laplace.protect.__final__  # type: ignore[attr-defined]
    assert Laplace.protect is Mahalanobis.protect


@pytest.mark.parametrize("sigma", [1e-3, 0.5, 20.0])
def test_gaussian_noise_declares_its_deviation(sigma: float) -> None:
    shape = NoiseShape.from_diagonal(np.arange(N), floor=0.5)
    one = Gaussian(shape, sigma)
    np.testing.assert_allclose(one.noise_covariance(), sigma**2 * shape.covariance())
    assert np.trace(one.noise_covariance()) == pytest.approx(N * sigma**2)
    first, second = np.random.default_rng(0).standard_normal((2, 5, N))
    d = one.distances(first, second)
    expected = np.sqrt((((first - second) ** 2) / shape.covariance().diagonal()).sum(axis=1))
    np.testing.assert_allclose(d, expected)
    assert one.advantage(np.array([0.0, 2 * sigma, 1e9]))[[0, 2]].tolist() == [0, 1]
    assert one.advantage(np.array([2 * sigma]))[0] == pytest.approx(0.6826894921370859)


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 1e4])
def test_the_sphere_counts_angles(epsilon: float) -> None:
    one = Purkayastha(N, epsilon)
    x, y = np.eye(N)[:2]
    pairs = [(x, x, 0), (x, y, np.pi / 2), (x, -x, np.pi), (x, x + 1e-9 * y, 1e-9), (3 * x, 7 * y, np.pi / 2)]
    for first, second, angle in pairs:
        found = one.distances(first[None], second[None])[0]
        assert found == pytest.approx(angle, rel=1e-6, abs=1e-12)
    grown = one.advantage(np.array([0.0, 0.1, 1.0, np.pi]))
    assert grown[0] == pytest.approx(0, abs=1e-12)
    assert (np.diff(grown) >= 0).all()
    assert grown[-1] <= 1
    np.testing.assert_allclose(one.noise_covariance(), angle_moments(N, epsilon)[1] / (N - 1) * np.eye(N))
    worst, best = one.guarantee().epsilon_euclidean_worst, one.guarantee().epsilon_euclidean_best
    assert (worst, best) == (None, None)  # short vectors near each other can be an angle of π apart


def test_a_permutation_is_one_and_hides_no_distance() -> None:
    one = Shuffle(random_permutation(40))
    X = np.random.default_rng(0).standard_normal((20, 40))
    Y = one.protect(X)
    np.testing.assert_array_equal(np.sort(Y, axis=1), np.sort(X, axis=1))
    np.testing.assert_allclose(Y @ Y.T, X @ X.T)
    np.testing.assert_array_equal(Y, one.without_noise(X))
    np.testing.assert_array_equal(Y[:, np.argsort(one.permutation)], X)
    assert not one.noise_covariance().any()
    assert one.advantage(np.array([0.0, 1e-9])).tolist() == [0, 1]
    drawn = {tuple(random_permutation(40)) for _ in range(20)}
    assert len(drawn) == 20
    assert str(list(one.permutation)) not in repr(one)


MADE = {
    "laplace": Laplace(N, 3.0, 2),
    "mahalanobis": Mahalanobis(NoiseShape.from_diagonal(np.arange(N), floor=0.5), 3.0),
    "projected-laplace": ProjectedLaplace(np.eye(N)[:, ::2], 3.0, 2),
    "gaussian": Gaussian(NoiseShape.from_matrix(np.diag(np.arange(N) + 1.0)), 0.5, 3),
    "ldp-gaussian": LdpGaussian(N, 20.0, 1e-6),
    "purkayastha": Purkayastha(N, 30.0),
    "shuffle": Shuffle(random_permutation(N)),
    "textcrafter": crafter(N),
    "truncated-laplace": TruncatedLaplace(np.array([0, 0.5, 1, 0, 0.25, 1]), 30.0, 2),
}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e-320, "x", None])
@pytest.mark.parametrize("name", [n for n in MECHANISMS if n != "shuffle"])
def test_saved_scales_out_of_range_make_no_mechanism(name: str, value: Any) -> None:
    one = MADE[name]
    scale = {"gaussian": "sigma", "textcrafter": "radius"}.get(name, "epsilon")
    parameters = {**one.parameters(), scale: value}
    with pytest.raises((ValueError, TypeError, ArithmeticError)):  # what loading turns into one error
        MECHANISMS[name].from_saved(parameters, one.to_arrays(), N)


@pytest.mark.parametrize(
    "mask", [np.zeros(N), np.ones(N - 1), np.full(N, 2.0), np.full(N, -1.0), np.full(N, np.nan), np.ones((N, 1))]
)
def test_masks_that_keep_nothing_or_stretch_are_refused(mask: np.ndarray) -> None:
    with pytest.raises(ValueError):
        TruncatedLaplace.from_saved(MADE["truncated-laplace"].parameters(), {"mask": mask}, N)


@pytest.mark.parametrize(
    "permutation", [np.zeros(N), np.arange(N) + 1.0, np.arange(N - 1.0), np.arange(N) + 0.5, np.full(N, np.nan)]
)
def test_saved_orders_that_are_no_permutation_are_refused(permutation: np.ndarray) -> None:
    with pytest.raises(ValueError, match="permutation"):
        Shuffle.from_saved({}, {"permutation": permutation}, N)
