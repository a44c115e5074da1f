"""Gaussian noise against 60 digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from harness.errors import raises
from vecveil.privacy.accounting.advantage import gaussian_total_variation
from vecveil.privacy.accounting.privacy_loss import GaussianPrivacyLoss, analytic_gaussian_sigma


def reference(mu: float, epsilon: float) -> mpmath.mpf:
    """Return δ(ε) by the published formula with 60 digits."""
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.01, 0.3, 1.9, 2.1, 5.0, 30.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-3, 0.1, 1.0, 10.0, 300.0, 1e4])
def test_delta_agrees_with_sixty_digits(mu: float, epsilon: float) -> None:
    expected = reference(mu, epsilon)
    value = GaussianPrivacyLoss(1.0, mu).delta(epsilon=epsilon)
    if expected < 1e-300:
        assert value < 1e-299
        return
    assert abs(value / expected - 1) < 1e-12
    if 1e-12 < expected < 0.999:
        assert abs(GaussianPrivacyLoss(1.0, 1.1 * mu).delta(epsilon=epsilon) / expected - 1) > 1e-5


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-5, 0.5])
def test_analytic_sigma_is_valid_and_the_smallest(epsilon: float, delta: float) -> None:
    sigma = analytic_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=2.0)
    assert reference(2 / sigma, epsilon) <= delta
    assert reference(2 / (sigma * (1 - 1e-9)), epsilon) > delta
    loss = GaussianPrivacyLoss(sigma, 2.0)
    assert loss.epsilon(delta=delta) == pytest.approx(epsilon, rel=1e-6)


def test_trade_off_and_total_variation() -> None:
    loss = GaussianPrivacyLoss(2.0, 3.0)
    alpha = np.linspace(0, 1, 11)
    expected = stats.norm.cdf(stats.norm.isf(alpha) - 1.5)
    np.testing.assert_allclose(loss.trade_off(alpha), expected, atol=1e-14)
    assert loss.total_variation == pytest.approx(2 * stats.norm.cdf(0.75) - 1, rel=1e-14)
    assert loss.delta(epsilon=0.0) == pytest.approx(loss.total_variation, rel=1e-13)
    np.testing.assert_allclose(
        gaussian_total_variation(np.array([0.0, 3.0, 1e300]), sigma=2.0), [0.0, loss.total_variation, 1.0]
    )
    # δ(ε) = sup over α of 1 − e^ε α − β(α), attained at α = Φ(−ε/μ − μ/2)
    for eps in (-1.0, 0.0, 2.0):
        best = stats.norm.cdf(-eps / 1.5 - 0.75)
        attained = 1 - math.exp(eps) * best - loss.trade_off(best)
        assert loss.delta(epsilon=eps) == pytest.approx(attained, rel=1e-10)


def test_extremes() -> None:
    loss = GaussianPrivacyLoss(1.0, 1.0)
    assert loss.worst_case == loss.epsilon(delta=0.0) == math.inf
    assert loss.to_record()["worst_case"] is None
    assert loss.gaussian_mu == 1.0
    same = GaussianPrivacyLoss(1.0, 0.0)
    assert same.delta(epsilon=0.0) == same.worst_case == same.epsilon(delta=0.0) == 0.0
    assert same.trade_off(0.3) == pytest.approx(0.7)
    for mu in 10.0 ** np.arange(-300, 150, 50):
        delta = GaussianPrivacyLoss(1.0, float(mu)).delta(epsilon=np.array([0.0, 1e-3, 1.0, 1e6, 1e300]))
        assert ((delta >= 0) & (delta <= 1)).all()


def test_bad_parameters_are_refused() -> None:
    with raises("E-INPUT-RANGE", "sigma"):
        GaussianPrivacyLoss(0.0, 1.0)
    with raises("E-INPUT", "distance"):
        GaussianPrivacyLoss(1e-200, 1.0)
    for name, arguments in {
        "epsilon": {"epsilon": 0.0, "delta": 0.1, "sensitivity": 1.0},
        "delta": {"epsilon": 1.0, "delta": 1.0, "sensitivity": 1.0},
        "sensitivity": {"epsilon": 1.0, "delta": 0.1, "sensitivity": -1.0},
    }.items():
        with raises("E-INPUT", name):
            analytic_gaussian_sigma(**arguments)
    with raises("E-INPUT", "distances"):
        gaussian_total_variation(-1.0, sigma=1.0)
