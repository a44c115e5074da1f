"""The exact loss of elliptical Laplace noise against closed forms, mpmath and other quadratures."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import optimize, special

from harness.errors import raises
from vecveil.privacy.accounting.advantage import laplace_total_variation
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss

DIMENSIONS = (1, 2, 3, 8, 384, 768, 1024, 3072, 4096)


def survival(n: int, r: mpmath.mpf, loss: mpmath.mpf, above: bool) -> mpmath.mpf:
    """Return P(L > loss), or P(L < loss), over the noise's radius; the cosine's law is a Beta."""

    def cap(c: mpmath.mpf) -> mpmath.mpf:
        if abs(c) >= 1:
            return mpmath.mpf((c < 0) == above)
        ends = ((1 + c) / 2, 1) if above else (0, (1 + c) / 2)
        half = mpmath.mpf(n - 1) / 2
        return mpmath.betainc(half, half, *ends, regularized=True)

    def integrand(y: mpmath.mpf) -> mpmath.mpf:
        log_density = (n - 1) * mpmath.log(y) - y - mpmath.loggamma(n)
        return mpmath.exp(log_density) * cap(loss / r - (r * r - loss * loss) / (2 * y * r))

    start, width = (r - loss) / 2, mpmath.sqrt(n)
    breaks = [start + k for k in (1, 5, 20)] + [n + k * width for k in (-5, -2, 0, 2, 5, 10, 20)]
    edges = sorted({start, *(b for b in breaks if b > start), n + 40 * width + 60})
    certain = mpmath.gammainc(n, 0, start, regularized=True) if above else 0
    return certain + mpmath.quad(integrand, edges)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "r", "epsilon", "digits"),
    [(2, 1, 0.5, 30), (3, 2, 1.0, 30), (8, 3, 0.0, 30), (8, 3, 2.9, 30), (384, 10, 5.0, 50)],
)
def test_delta_agrees_with_mpmath_to_twelve_digits(n: int, r: float, epsilon: float, digits: int) -> None:
    """By the definition P(L > ε) − e^ε Q(L > ε), with enough digits for what cancels."""
    with mpmath.workdps(digits):
        reach, e = mpmath.mpf(r), mpmath.mpf(epsilon)
        below = survival(n, reach, -e, above=False)
        expected = survival(n, reach, e, above=True) - mpmath.exp(e) * below
        value = LaplacePrivacyLoss(n, 1.0, float(r)).delta(epsilon=epsilon)
        assert abs(value / expected - 1) < 1e-12
        # control: another dimension, or a tenth more noise, is far off
        for wrong in (LaplacePrivacyLoss(n + 1, 1.0, r), LaplacePrivacyLoss(n, 1.1, r)):
            assert abs(wrong.delta(epsilon=epsilon) / expected - 1) > 1e-3


def test_the_figure_of_the_documentation() -> None:
    """To 25 digits by mpmath, from the law of the radius as well as from the density of the loss."""
    loss = LaplacePrivacyLoss(n=384, epsilon=100.0, distance=0.1)
    assert loss.total_variation == pytest.approx(0.2015166777165843313414172, rel=1e-12)
    assert loss.epsilon(delta=1e-6) == pytest.approx(2.27349254191, abs=1e-9)
    assert loss.worst_case == pytest.approx(10.0)


def test_one_dimension_in_closed_form() -> None:
    """n = 1: δ(ε) = 1 − e^((ε − r)/2), the well-known profile of Laplace noise (r = ερ)."""
    for r in (1e-6, 0.1, 1.0, 5.0, 60.0):
        loss = LaplacePrivacyLoss(1, 2.0, r / 2)
        eps = np.linspace(0, r, 21)
        np.testing.assert_allclose(loss.delta(epsilon=eps), -np.expm1((eps - r) / 2), rtol=1e-12)
    # β(α): e^(−r)/(4α) between two straight lines
    r, alpha = 2.0, np.array([0.0, 0.01, 0.05, 0.1, 0.3, 0.45, 0.6, 0.9, 1.0])
    expected = np.select(
        [alpha < math.exp(-r) / 2, alpha > 0.5],
        [1 - math.exp(r) * alpha, math.exp(-r) * (1 - alpha)],
        math.exp(-r) / np.maximum(4 * alpha, 1e-9),
    )
    np.testing.assert_allclose(LaplacePrivacyLoss(1, 1.0, r).trade_off(alpha), expected, atol=1e-12)


@pytest.mark.parametrize("n", DIMENSIONS)
def test_total_variation_agrees_with_the_other_derivation(n: int) -> None:
    for mu in (1e-6, 0.1, 1.0, 2.5, 8.0):
        rho = mu / math.sqrt(n)
        value = LaplacePrivacyLoss(n, float(n), rho).total_variation
        other = laplace_total_variation(rho, dimension=n, epsilon=float(n))[0]
        assert value == pytest.approx(other, abs=1e-12), mu
        wrong = laplace_total_variation(1.1 * rho, dimension=n, epsilon=float(n))[0]
        assert value != pytest.approx(wrong, abs=1e-12), mu


@pytest.mark.slow
@pytest.mark.parametrize("n", DIMENSIONS)
def test_no_overflow_and_no_nan_over_nine_decades(n: int) -> None:
    # The loss depends on n and on the product of epsilon and distance alone: each product once.
    products = [(1e-3, 0.0), (1e-3, 1e-320), (1e-3, 1e-9), (1.0, 1e-9), (1e3, 1e-9), (1e6, 1e300), (1e-3, 1e300)]
    products += [(epsilon, 0.1) for epsilon in 10.0 ** np.arange(-3, 7)]
    products += [(epsilon, 1e10) for epsilon in (1e-3, 1.0, 1e3, 1e6)]
    for epsilon, distance in products:
        loss = LaplacePrivacyLoss(n, float(epsilon), distance)
        r = loss.worst_case
        eps = np.sort([-3.0, -1e-9, 0.0, 1e-9, r / 2, r * (1 - 1e-12), r])
        delta = loss.delta(epsilon=eps)
        assert ((delta >= 0) & (delta <= 1)).all()
        # what is left of the digits when a loss is 1e300 times larger than those that matter
        assert (np.diff(delta) <= (1e-12 if r < 1e6 else 1e-9)).all()
        assert loss.delta(epsilon=r) == 0.0
        if distance in (0.0, 0.1, 1e300):
            assert 0 <= loss.gaussian_mu < math.inf
        assert loss.total_variation <= math.tanh(r / 2) * (1 + 1e-9) + 1e-280


@pytest.mark.parametrize("n", [1, 2, 384])
@pytest.mark.parametrize("r", [1e-290, 10.0, 1e9])
def test_epsilon_inverts_delta_down_to_the_smallest(n: int, r: float) -> None:
    loss = LaplacePrivacyLoss(n, 1.0, r)
    assert loss.epsilon(delta=0.0) == r
    assert loss.epsilon(delta=1.0) == loss.epsilon(delta=min(1.0, 1.01 * loss.total_variation)) == 0.0
    for target in (1e-300, 1e-30, 1e-6, 0.3):
        eps = loss.epsilon(delta=target)
        assert loss.delta(epsilon=eps) <= target * (1 + 1e-9)
        if 0 < eps < r * (1 - 1e-6):
            assert loss.delta(epsilon=eps * (1 - 1e-6)) > target


@pytest.mark.parametrize(("n", "r"), [(1, 3.0), (2, 5.0), (8, 4.0), (384, 200.0)])
def test_delta_is_the_convex_conjugate_of_the_trade_off(n: int, r: float) -> None:
    """δ(ε) = sup over α of 1 − e^ε α − β(α) (Dong et al. 2022, Proposition 2.12)."""
    loss = LaplacePrivacyLoss(n, 1.0, r)
    alpha = np.concatenate([np.geomspace(1e-30, 0.5, 20), np.linspace(0.5, 1, 5)])
    beta = loss.trade_off(alpha)
    assert (np.diff(beta) <= 1e-12).all()
    np.testing.assert_allclose(loss.trade_off(beta), alpha, rtol=1e-6, atol=1e-9)  # symmetric
    for eps in (0.0, 0.3, 0.6, 0.4 * r):
        delta = loss.delta(epsilon=eps)
        if eps < 50:
            assert (1 - math.exp(eps) * alpha - beta <= delta + 1e-11).all()
        # the supremum is attained where −β' = e^ε: α = Q(L > ε) = −e^(−ε) δ'(ε)
        h = 1e-4 * min(r - eps, 1.0)
        slope = (loss.delta(epsilon=eps + h) - loss.delta(epsilon=eps - h)) / (2 * h)
        best = -math.exp(-eps) * slope
        attained = 1 - math.exp(eps) * best - loss.trade_off(best)
        assert attained == pytest.approx(delta, abs=1e-7)


def test_negative_epsilon_by_symmetry() -> None:
    loss = LaplacePrivacyLoss(8, 1.0, 3.0)

    def below(alpha: float) -> float:
        return float(math.exp(-0.7) * alpha + loss.trade_off(alpha) - 1)

    lowest = optimize.minimize_scalar(below, bounds=(0.2, 0.8), method="bounded").fun
    assert loss.delta(epsilon=-0.7) == pytest.approx(-lowest, abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 384])
@pytest.mark.parametrize("r", [0.1, 20.0, 300.0])
def test_gaussian_mu_is_valid_and_the_smallest(n: int, r: float) -> None:
    """At every ε the Gaussian pair is told apart at least as well; with 0.1 % less μ it is not."""
    from vecveil.privacy.accounting.privacy_loss import log_gaussian_delta

    loss = LaplacePrivacyLoss(n, 1.0, r)
    eps = np.concatenate([[0.0], np.geomspace(1e-6, 0.999, 100) * r])
    exact = loss._log_delta(eps)

    def gaussian(mu: float) -> np.ndarray:
        return log_gaussian_delta(eps, np.full(eps.shape, mu))

    assert (exact <= gaussian(loss.gaussian_mu) + 1e-11).all()
    # where the total variation is 1 to rounding, log δ near 0 has no digits left to see it by
    below = loss._log_below(np.zeros(1))[0]
    assert loss.gaussian_mu == pytest.approx(-2 * special.ndtri_exp(below), rel=1e-6)
    if loss.total_variation < 0.99:
        assert (exact > gaussian(loss.gaussian_mu * 0.999)).any()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1.0, 1.0), "n"),
        ((2, 0.0, 1.0), "epsilon"),
        ((2, 1.0, -1.0), "distance"),
        ((2, 1e200, 1e200), "distance"),
        ((2, 1.0, math.nan), "distance"),
    ],
)
def test_bad_parameters_are_refused(arguments: tuple[int, float, float], name: str) -> None:
    with raises("E-INPUT", name):
        LaplacePrivacyLoss(*arguments)


def test_bad_questions_are_refused() -> None:
    loss = LaplacePrivacyLoss(2, 1.0, 1.0)
    with raises("E-INPUT", "alpha"):
        loss.trade_off(1.5)
    with raises("E-INPUT", "epsilon"):
        loss.delta(epsilon=math.nan)
    with raises("E-INPUT-RANGE", "delta"):
        loss.epsilon(delta=-0.1)
