"""The exact loss of the Purkayastha mechanism against its definition and a second derivation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from harness.errors import raises
from vecveil.privacy.accounting.advantage import purkayastha_total_variation
from vecveil.privacy.accounting.two_centre import PurkayasthaPrivacyLoss


def by_definition(n: int, epsilon: float, angle: float, threshold: float) -> float:
    """Return E (1 − e^(ε' − L))₊ over the angle from x and the direction around it, n ≥ 3."""

    def law(theta: float) -> float:
        return float(np.exp(-epsilon * theta) * np.sin(theta) ** (n - 2))

    def inner(theta: float) -> float:
        def integrand(phi: float) -> float:
            across = np.sin(theta) * np.sin(angle) * np.cos(phi)
            other = np.arccos(np.clip(np.cos(theta) * np.cos(angle) + across, -1, 1))
            excess = max(0.0, 1 - np.exp(threshold - epsilon * (other - theta)))
            return float(excess * np.sin(phi) ** (n - 3))

        return integrate.quad(integrand, 0, np.pi, epsabs=1e-18, epsrel=1e-8, limit=200, points=[0.5, 1, 1.5, 2, 2.5])[
            0
        ]

    points = list(np.linspace(0.1, 3.0, 6))
    above = integrate.quad(lambda t: law(t) * inner(t), 0, np.pi, epsabs=1e-18, epsrel=1e-9, limit=200, points=points)[
        0
    ]
    around = integrate.quad(lambda p: np.sin(p) ** (n - 3), 0, np.pi, epsabs=1e-18)[0]
    return float(above / (integrate.quad(law, 0, np.pi, epsabs=1e-18)[0] * around))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "epsilon", "angle", "threshold"), [(3, 2.0, 1.0, 0.5), (5, 3.0, math.pi, 1.0), (16, 10.0, 1.0, 2.0)]
)
def test_delta_agrees_with_the_definition(n: int, epsilon: float, angle: float, threshold: float) -> None:
    expected = by_definition(n, epsilon, angle, threshold)
    value = PurkayasthaPrivacyLoss(n, epsilon, angle).delta(epsilon=threshold)
    assert value == pytest.approx(expected, abs=1e-8)
    for wrong in (PurkayasthaPrivacyLoss(n + 1, epsilon, angle), PurkayasthaPrivacyLoss(n, 1.1 * epsilon, angle)):
        assert abs(wrong.delta(epsilon=threshold) - expected) > 1e-3


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 50.0])
@pytest.mark.parametrize("angle", [0.01, 1.0, 3.0, math.pi])
def test_the_circle_by_plain_integration(epsilon: float, angle: float) -> None:
    phi = np.linspace(-np.pi, np.pi, 400_001)
    density = np.exp(-epsilon * np.abs(phi))
    density /= density.sum()
    away = np.abs(phi - angle)
    loss = epsilon * (np.minimum(away, 2 * np.pi - away) - np.abs(phi))
    exact = PurkayasthaPrivacyLoss(2, epsilon, angle)
    for threshold in (0.0, 0.3 * epsilon * angle):
        expected = (density * np.maximum(0, -np.expm1(threshold - loss))).sum()
        assert exact.delta(epsilon=threshold) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 384, 4096])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0, 1e6])
def test_total_variation_agrees_with_the_half_sphere(n: int, epsilon: float) -> None:
    """Two derivations: the density of the loss, and the law of the angle on the nearer half."""
    angles = np.array([1e-9, 1e-3, 0.1, 1.0, 3.0, math.pi])
    half_sphere = purkayastha_total_variation(angles, n=n, epsilon=epsilon)
    density = [PurkayasthaPrivacyLoss(n, epsilon, a).total_variation for a in angles]
    np.testing.assert_allclose(half_sphere, density, atol=1e-11, rtol=1e-9)


@pytest.mark.parametrize(("n", "epsilon"), [(2, 1.0), (3, 10.0), (384, 100.0), (384, 1e6)])
def test_many_angles_are_interpolated_within_the_stated_error(n: int, epsilon: float) -> None:
    angles = np.exp(np.random.default_rng(n).uniform(np.log(1e-3), np.log(math.pi), 20_000))
    angles[0] = 0.0
    values = purkayastha_total_variation(angles, n=n, epsilon=epsilon)
    some = slice(0, 20_000, 200)
    exact = purkayastha_total_variation(angles[some], n=n, epsilon=epsilon)
    np.testing.assert_allclose(values[some], exact, atol=1e-8)
    assert values[0] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 8, 384, 3072])
def test_no_overflow_and_no_nan_over_nine_decades(n: int) -> None:
    for epsilon in 10.0 ** np.array([-3, 0, 2, 4, 6]):
        for angle in (0.0, 1e-320, 1e-9, 0.1, 2.0, math.pi):
            loss = PurkayasthaPrivacyLoss(n, float(epsilon), angle)
            r = loss.worst_case
            eps = np.sort([-3.0, -1e-9, 0.0, 1e-9, r / 2, r * (1 - 1e-12), r])
            delta = loss.delta(epsilon=eps)
            assert ((delta >= 0) & (delta <= 1)).all()
            assert (np.diff(delta) <= 1e-11).all()
            assert loss.delta(epsilon=r) == 0.0
            if angle in (0.1, math.pi):
                assert 0 <= loss.gaussian_mu < math.inf


@pytest.mark.slow
@pytest.mark.parametrize(("n", "epsilon", "angle"), [(2, 2.0, 1.0), (3, 5.0, 2.0), (384, 300.0, 0.1)])
def test_inverse_trade_off_and_mu(n: int, epsilon: float, angle: float) -> None:
    from vecveil.privacy.accounting.privacy_loss import GaussianPrivacyLoss

    loss = PurkayasthaPrivacyLoss(n, epsilon, angle)
    for target in (1e-200, 1e-6, 0.05):
        assert loss.delta(epsilon=loss.epsilon(delta=target)) == pytest.approx(target, rel=1e-6)
    alpha = np.array([0.0, 1e-9, 0.01, 0.2, 0.7, 1.0])
    beta = loss.trade_off(alpha)
    np.testing.assert_allclose(loss.trade_off(beta), alpha, atol=1e-9)
    grid = np.linspace(0, loss.worst_case, 30)
    delta = loss.delta(epsilon=grid)
    assert (1 - np.exp(grid)[:, None] * alpha - beta <= delta[:, None] + 1e-11).all()
    gaussian = GaussianPrivacyLoss(1.0, loss.gaussian_mu).delta(epsilon=grid)
    assert (delta <= gaussian * (1 + 1e-10)).all()
    assert loss.to_record()["angle"] == angle


def test_bad_parameters_are_refused() -> None:
    for arguments, name in (((1, 1.0, 1.0), "n"), ((2, -1.0, 1.0), "epsilon"), ((2, 1.0, 3.2), "angle")):
        with raises("E-INPUT", name):
            PurkayasthaPrivacyLoss(*arguments)
    with raises("E-INPUT", "angles"):
        purkayastha_total_variation([4.0], n=3, epsilon=1.0)  # type: ignore[arg-type]
