"""Scales and parameters of the elliptical Laplace mechanism; its law is tested in statistical/."""

from __future__ import annotations

import numpy as np
import pytest

from vecveil.privacy.mechanisms import Laplace, Mahalanobis, epsilon_of_rms_norm, rms_norm_of_epsilon
from vecveil.privacy.sensitivity import NoiseShape


@pytest.mark.parametrize("n", [1, 2, 384])
def test_root_mean_square_norm_and_epsilon_are_inverse(n: int) -> None:
    for epsilon in (0.1, 7.0, 1e4):
        rms = rms_norm_of_epsilon(epsilon, n)
        assert epsilon_of_rms_norm(rms, n) == pytest.approx(epsilon)
        S = Laplace(n, epsilon).noise_covariance()
        assert np.sqrt(np.trace(S)) == pytest.approx(rms)


def test_the_shape_does_not_change_the_root_mean_square_norm() -> None:
    shape = NoiseShape.from_diagonal(np.arange(6), floor=0.1)
    assert np.trace(Mahalanobis(shape, 3.0).noise_covariance()) == pytest.approx(
        np.trace(Laplace(6, 3.0).noise_covariance())
    )


def test_full_identity_and_isotropic_shapes_give_the_same_noise() -> None:
    X = np.zeros((20, 5))
    full = Mahalanobis(NoiseShape.from_matrix(np.eye(5)), 3.0).protect(X, rng=0)
    np.testing.assert_allclose(full, Laplace(5, 3.0).protect(X, rng=0), atol=1e-12)


def test_the_public_method_cannot_be_weakened() -> None:
    assert Laplace.protect.__final__  # type: ignore[attr-defined]
    assert Laplace.protect is Mahalanobis.protect
