"""The gate's closed forms against samples, finite differences and hand-computed values."""

import math

import numpy as np
import pytest
from scipy.special import expit, logit

from vecveil.sensitivity.hard_concrete import (
    GAMMA,
    XI,
    active_probability,
    gate_samples,
    inference_mask,
    l0_penalty,
    l0_penalty_gradient,
    one_probability,
    zero_probability,
)

FALSE_FAILURE = 1e-6
DRAWS = 200_000
GRID = [(-3.0, 2 / 3), (-0.7, 2 / 3), (0.0, 2 / 3), (0.4, 0.3), (1.5, 1.0), (2.5, 2 / 3)]


def gates(log_alpha: float, beta: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    uniform = rng.uniform(np.finfo(float).tiny, 1.0, size=(DRAWS, 1))
    return gate_samples(np.array([log_alpha]), np.array([beta]), uniform)[:, 0]


def dkw_threshold(tests: int) -> float:
    """The distance from its law that a sample exceeds but once in a million runs of the tests."""
    return math.sqrt(math.log(2 * tests / FALSE_FAILURE) / (2 * DRAWS))


def distance(sample: np.ndarray, log_alpha: float, beta: float) -> float:
    at = np.linspace(0.0, 0.999, 300)
    exact = expit(beta * logit((at - GAMMA) / (XI - GAMMA)) - log_alpha)  # P(m <= t), t < 1
    empirical = np.searchsorted(np.sort(sample), at, side="right") / sample.size
    return float(np.abs(empirical - exact).max())


@pytest.mark.parametrize(("log_alpha", "beta"), GRID)
def test_gates_follow_the_closed_distribution(log_alpha: float, beta: float) -> None:
    """Null: the law of Eq. 1. False failure: <= 1e-6 over the grid (Dvoretzky-Kiefer-Wolfowitz).

    Power: 200,000 draws reject a shift of .1 in log α, the control below.
    """
    sample = gates(log_alpha, beta)
    assert sample.min() >= 0
    assert sample.max() <= 1
    assert distance(sample, log_alpha, beta) <= dkw_threshold(len(GRID))


def test_a_shifted_gate_is_rejected() -> None:
    assert distance(gates(0.1, 2 / 3), 0.0, 2 / 3) > dkw_threshold(len(GRID))


@pytest.mark.parametrize(("log_alpha", "beta"), GRID)
def test_probabilities_match_samples(log_alpha: float, beta: float) -> None:
    """Null: the three formulas. False failure: <= 1e-6 over all of them (Hoeffding, Bonferroni)."""
    sample = gates(log_alpha, beta, seed=1)
    threshold = math.sqrt(math.log(2 * 3 * len(GRID) / FALSE_FAILURE) / (2 * DRAWS))
    location, temperature = np.array([log_alpha]), np.array([beta])
    assert abs((sample == 0).mean() - zero_probability(location, temperature)[0]) <= threshold
    assert abs((sample > 0).mean() - active_probability(location, temperature)[0]) <= threshold
    assert abs((sample == 1).mean() - one_probability(location, temperature)[0]) <= threshold


def test_zero_and_active_probabilities_add_up() -> None:
    location, beta = np.linspace(-8, 8, 33), np.full(33, 0.4)
    np.testing.assert_allclose(
        zero_probability(location, beta) + active_probability(location, beta), 1, rtol=1e-12
    )


def test_inference_mask_by_hand() -> None:
    bound = math.log(11)  # sigmoid(log α) = 11/12, where the stretched gate reaches 1
    mask = inference_mask(
        np.array([0.0, bound - 0.01, bound + 0.01, -bound + 0.01, -bound - 0.01, 1.0])
    )
    np.testing.assert_allclose(mask[0], 0.5)
    assert 0.99 < mask[1] < 1
    assert mask[2] == 1
    assert 0 < mask[3] < 0.01
    assert mask[4] == 0
    np.testing.assert_allclose(mask[5], 1.2 / (1 + math.exp(-1)) - 0.1)


def test_penalty_rewards_closed_gates() -> None:
    """The sign that enforces sparsity: opening gates costs, and the gradient points that way."""
    beta = np.full(5, 2 / 3)
    closed, opened = np.full(5, -3.0), np.full(5, 3.0)
    assert 0 < l0_penalty(closed, beta) < l0_penalty(opened, beta) < 1
    by_location, by_log_beta = l0_penalty_gradient(np.linspace(-3, 3, 5), beta)
    assert (by_location > 0).all()
    assert (by_log_beta > 0).all()


def test_penalty_gradient_matches_finite_differences() -> None:
    rng = np.random.default_rng(0)
    location, log_beta, step = rng.normal(size=6), rng.normal(size=6) * 0.3, 1e-6
    exact = l0_penalty_gradient(location, np.exp(log_beta))
    for i in range(6):
        e = np.eye(6)[i] * step
        beta = np.exp(log_beta)
        by_location = l0_penalty(location + e, beta) - l0_penalty(location - e, beta)
        by_beta = l0_penalty(location, beta * np.exp(e)) - l0_penalty(location, beta * np.exp(-e))
        numeric = np.array([by_location, by_beta]) / (2 * step)
        np.testing.assert_allclose([exact[0][i], exact[1][i]], numeric, rtol=1e-5)
