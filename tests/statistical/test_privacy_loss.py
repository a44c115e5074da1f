"""The exact privacy losses against draws from the mechanisms' own definitions.

Null: δ(ε) is the probability of {U < 1 − e^(ε − L)}, U uniform and L the loss of a drawn output, so
the number of such draws is binomial, exactly; and P(L > ε) is that of another binomial count.
False failure: the level of each test is 1e-6 over the number of all tests (Bonferroni).
Power: 400,000 draws see a relative error of 5 % in a probability of 0.2 with certainty (24 standard
deviations).
Control: a loss of another dimension, or with ε a tenth larger, is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.statistics import threshold
from vecveil.privacy.accounting.privacy_loss import GaussianPrivacyLoss, PrivacyLoss, compose
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss, PurkayasthaPrivacyLoss

ROWS = 400_000
DIMENSIONS = [2, 8, 384, 3072]
LEVEL = threshold(60)  # more than the tests of this module


def coordinate(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return one coordinate of uniform directions in n dimensions."""
    if n == 1:
        return rng.choice([-1.0, 1.0], ROWS)
    first, others = rng.standard_normal(ROWS), rng.chisquare(n - 1, ROWS)
    return first / np.sqrt(first**2 + others)


def laplace_losses(rng: np.random.Generator, n: int, epsilon: float, rho: float) -> np.ndarray:
    y, c = rng.standard_gamma(n, ROWS) / epsilon, coordinate(rng, n)
    return epsilon * (rho * rho + 2 * y * rho * c) / (np.sqrt(y * y + 2 * y * rho * c + rho**2) + y)


def purkayastha_losses(rng: np.random.Generator, n: int, epsilon: float, psi: float) -> np.ndarray:
    """Draw the angle by its inverse distribution on a fine grid, which errs by far less than is seen."""
    grid = np.linspace(0, np.pi, 2_000_001)[1:-1]
    log_law = (n - 2) * np.log(np.sin(grid)) - epsilon * grid
    cdf = np.cumsum(np.exp(log_law - log_law.max()))
    theta = np.interp(rng.random(ROWS) * cdf[-1], cdf, grid)
    across = np.sin(theta) * np.sin(psi) * coordinate(rng, n - 1)
    return epsilon * (np.arccos(np.clip(np.cos(theta) * np.cos(psi) + across, -1, 1)) - theta)


def smallest_p(losses: np.ndarray, expected: PrivacyLoss, rng: np.random.Generator) -> float:
    """Return the smaller p-value of the two counts, at ε = 0 and at a third of the largest loss seen."""
    uniform = rng.random(losses.size)
    values = []
    for eps in (0.0, float(losses.max()) / 3):
        hits = int((uniform < -np.expm1(eps - losses)).sum())
        values.append(stats.binomtest(hits, losses.size, expected.delta(epsilon=eps)).pvalue)
    return float(min(values))


KINDS = [(laplace_losses, LaplacePrivacyLoss), (purkayastha_losses, PurkayasthaPrivacyLoss)]


@pytest.mark.parametrize(("draw", "kind"), KINDS, ids=["laplace", "purkayastha"])
@pytest.mark.parametrize("n", DIMENSIONS)
def test_a_loss_against_draws(draw: Callable[..., np.ndarray], kind: Callable[..., Any], n: int) -> None:
    epsilon, distance = float(n), 1.0 / math.sqrt(n)
    rng = np.random.default_rng(n)
    losses = draw(rng, n, epsilon, distance)
    assert smallest_p(losses, kind(n, epsilon, distance), rng) > LEVEL
    for wrong in (kind(n + 1 if n < 8 else n * 5 // 4, epsilon, distance), kind(n, 1.1 * epsilon, distance)):
        assert smallest_p(losses, wrong, rng) < LEVEL


def test_gaussian_loss_against_draws() -> None:
    rng = np.random.default_rng(1)
    losses = 0.8**2 / 2 + 0.8 * rng.standard_normal(ROWS)
    assert smallest_p(losses, GaussianPrivacyLoss(1.0, 0.8), rng) > LEVEL
    assert smallest_p(losses, GaussianPrivacyLoss(1.0, 0.88), rng) < LEVEL


@pytest.mark.parametrize(("draw", "kind"), KINDS, ids=["laplace", "purkayastha"])
def test_three_releases_stay_within_the_composed_bound(
    draw: Callable[..., np.ndarray], kind: Callable[..., Any]
) -> None:
    """One-sided: more hits than the bound allows would refute it. Control: two releases' bound is refuted."""
    n, epsilon, distance = 8, 8.0, 0.3
    rng = np.random.default_rng(3)
    losses = sum(draw(rng, n, epsilon, distance) for _ in range(3))
    uniform = rng.random(ROWS)
    for eps in (0.0, 1.0, 2.0):
        hits = int((uniform < -np.expm1(eps - losses)).sum())
        bound = compose([kind(n, epsilon, distance)], times=3).delta(epsilon=eps)
        less = compose([kind(n, epsilon, distance)], times=2).delta(epsilon=eps)
        assert stats.binomtest(hits, ROWS, bound, alternative="greater").pvalue > LEVEL
        assert stats.binomtest(hits, ROWS, less, alternative="greater").pvalue < LEVEL
