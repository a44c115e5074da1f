"""Composition bounds dominate what two releases really give away."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.errors import raises
from vecveil.privacy.accounting.privacy_loss import GaussianPrivacyLoss, compose
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss, PurkayasthaPrivacyLoss


def twofold(n: int, r: float, epsilon: np.ndarray, points: int = 2000) -> np.ndarray:
    """Return a lower bound on δ of two releases, nearly exact: the loss rounded down to a grid."""
    edges = np.linspace(-r, r, points + 1)
    loss = LaplacePrivacyLoss(n, 1.0, r)
    inner = loss._log_below(np.arctanh(edges[1:-1] / r))
    cdf = np.concatenate([[0.0], np.exp(inner), [1.0]])
    joint = np.convolve(np.diff(cdf), np.diff(cdf))
    sums = -2 * r + np.arange(joint.size) * (edges[1] - edges[0])
    return np.array([(joint * np.maximum(0, -np.expm1(e - sums))).sum() for e in epsilon])


@pytest.mark.parametrize(("n", "r"), [(2, 0.5), (8, 1.0), (8, 4.0), (384, 10.0)])
def test_the_bound_dominates_the_exact_composition_of_two(n: int, r: float) -> None:
    """Control: with a tenth less μ, or one release only, it does not."""
    eps = np.linspace(0, 1.9 * r, 30)
    exact = twofold(n, r, eps)
    single = LaplacePrivacyLoss(n, 1.0, r)
    bound = compose([single, single])
    values = bound.delta(epsilon=eps)
    assert (values >= exact - 1e-13).all()  # rounding of the grid's differences
    assert bound.total_variation < 1.25 * exact[0] + 0.01  # and is no useless bound
    assert single.total_variation < exact[0]
    less = GaussianPrivacyLoss(1.0, 0.9 * bound.gaussian_mu)
    assert (less.delta(epsilon=eps) < exact - 1e-6).any()


def test_gaussian_releases_compose_exactly() -> None:
    parts = [GaussianPrivacyLoss(1.0, 0.3), GaussianPrivacyLoss(2.0, 0.8)]
    joint, exact = compose(parts), GaussianPrivacyLoss(1.0, 0.5)
    assert joint.exact
    assert joint.gaussian_mu == pytest.approx(0.5)
    eps = np.linspace(-1, 3, 9)
    np.testing.assert_allclose(joint.delta(epsilon=eps), exact.delta(epsilon=eps), rtol=1e-9)
    assert joint.epsilon(delta=1e-6) == pytest.approx(exact.epsilon(delta=1e-6))
    assert joint.worst_case == math.inf


def test_epsilon_is_the_better_of_the_two_bounds() -> None:
    single = LaplacePrivacyLoss(384, 1.0, 10.0)
    two, many = compose([single], times=2), compose([single], times=100)
    assert not two.exact
    assert two.epsilon(delta=0.0) == two.worst_case == 20.0
    gaussian = GaussianPrivacyLoss(1.0, many.gaussian_mu)
    assert many.epsilon(delta=1e-6) == pytest.approx(gaussian.epsilon(delta=1e-6), rel=1e-3)
    assert many.epsilon(delta=1e-6) < many.worst_case / 10
    small = compose([LaplacePrivacyLoss(1, 1.0, 0.5)], times=2)
    assert small.epsilon(delta=1e-12) <= small.worst_case == 1.0
    assert small.delta(epsilon=1.0) == 0.0
    assert small.gaussian_mu <= math.sqrt(2) * LaplacePrivacyLoss(1, 1.0, 0.5).gaussian_mu


def test_trade_off_and_mixed_parts() -> None:
    parts = [LaplacePrivacyLoss(8, 2.0, 0.4), PurkayasthaPrivacyLoss(8, 3.0, 0.2)]
    joint = compose(parts)
    alpha = np.linspace(0, 1, 21)
    assert (joint.trade_off(alpha) <= parts[0].trade_off(alpha) + 1e-12).all()
    for eps in (0.0, 0.5, 1.3):
        assert (1 - math.exp(eps) * alpha - joint.trade_off(alpha) <= joint.delta(epsilon=eps) + 1e-12).all()
    again = compose([joint, joint])
    assert again.to_record()["releases"] == 4
    assert again.worst_case == pytest.approx(2 * joint.worst_case)
    assert repr(again) == "ComposedPrivacyLoss(releases=4)"


def test_nothing_and_other_things_are_refused() -> None:
    with raises("E-INPUT", "losses"):
        compose([])
    with raises("E-INPUT", "losses"):
        compose([1.0])  # type: ignore[list-item]
    with raises("E-INPUT-RANGE", "times"):
        compose([GaussianPrivacyLoss(1.0, 1.0)], times=0)
