"""A truncated release has the Laplace law of its k kept dimensions, and nothing of the others.

Null: on the k dimensions with m > 0, y − x ⊙ m has density ∝ exp(−ε‖z‖₂) in k dimensions.
False failure: 1e-6 for the module, shared over all its tests.
Power: noise of n dimensions, cut to k, moves the mean normal score of the noise's length by far more than the 0.12
that 2 · 10,000 lengths show as 17 standard deviations.
Control: that noise, and the law of another k, are rejected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.mechanism_audit import DeclaredPair, MechanismAudit, audit_mechanism, declared_laplace
from harness.statistics import threshold
from vecveil.privacy.accounting import laplace_total_variation
from vecveil.privacy.mechanisms import Laplace, TruncatedLaplace

CASES = [(8, 2), (8, 7), (64, 16)]
CONFIDENCE = 1 - threshold(20)


def made(n: int, k: int) -> TruncatedLaplace:
    mask = np.zeros(n)
    mask[np.random.default_rng(n).permutation(n)[:k]] = np.linspace(0.3, 1.0, k)
    return TruncatedLaplace(mask, 7.0 * k**0.5)


def pair(n: int) -> tuple[np.ndarray, np.ndarray]:
    x, to = np.random.default_rng(n).standard_normal((2, n))
    return x / np.linalg.norm(x), x / np.linalg.norm(x) + 0.3 * to / np.linalg.norm(to)


def audit(one: TruncatedLaplace, release: Any, declared: DeclaredPair, n: int) -> MechanismAudit:
    x, y = pair(n)

    def kept(X: np.ndarray, rng: Any) -> np.ndarray:
        first = np.allclose(X[0], (x * one.mask)[one.kept])
        return np.ascontiguousarray(release(np.tile(x if first else y, (len(X), 1)), rng)[:, one.kept])

    return audit_mechanism(kept, declared, samples=10_000, confidence=CONFIDENCE)


@pytest.mark.parametrize(("n", "k"), CASES)
def test_the_kept_dimensions_have_laplace_noise_of_k_dimensions(n: int, k: int) -> None:
    one = made(n, k)
    ends = [(v * one.mask)[one.kept] for v in pair(n)]
    declared = declared_laplace(*ends, epsilon=one.epsilon)
    found = audit(one, lambda X, rng: one.protect(X, rng=rng), declared, n)
    assert not found.failed
    assert found.lower_bound.epsilon < declared.worst_case
    distance = one.distances(pair(n)[0][None], pair(n)[1][None])
    assert float(one.advantage(distance)[0]) == pytest.approx(declared.total_variation, rel=1e-3)


@pytest.mark.parametrize(("n", "k"), CASES)
def test_control_noise_of_n_dimensions_is_rejected(n: int, k: int) -> None:
    one, wide = made(n, k), Laplace(n, 7.0 * k**0.5)
    declared = declared_laplace(*[(v * one.mask)[one.kept] for v in pair(n)], epsilon=one.epsilon)
    release = lambda X, rng: wide.protect(X * one.mask, rng=rng)  # noqa: E731
    assert "noise" in audit(one, release, declared, n).failed


@pytest.mark.parametrize(("n", "k"), CASES)
def test_masking_is_1_lipschitz_so_epsilon_holds_in_the_input_metric(n: int, k: int) -> None:
    one = made(n, k)
    X, Y = np.random.default_rng(1).standard_normal((2, 200, n))
    own, euclidean = one.distances(X, Y), np.linalg.norm(X - Y, axis=1)
    assert (own <= euclidean).all()
    assert (one.advantage(own) <= laplace_total_variation(euclidean, dimension=k, epsilon=one.epsilon) + 1e-12).all()
    guarantee = one.guarantee()
    assert guarantee.epsilon_euclidean_worst == one.epsilon
    assert guarantee.hidden_directions == n - k
    assert guarantee.noise_norm == k / one.epsilon


@pytest.mark.parametrize(("n", "k"), CASES)
def test_differences_in_dropped_dimensions_change_no_bit(n: int, k: int) -> None:
    one, X = made(n, k), np.random.default_rng(2).standard_normal((50, n))
    other = X + 1e3 * (one.mask == 0)
    Y = one.protect(X, rng=3)
    np.testing.assert_array_equal(one.protect(other, rng=3), Y)
    assert not Y[:, one.mask == 0].any()
    moved = X + 1e-3 * (one.mask > 0)
    assert (one.protect(moved, rng=3)[:, one.kept] != Y[:, one.kept]).any()  # control


def test_declared_covariance_is_the_covariance() -> None:
    one = made(64, 16)
    Z = one.protect(np.zeros((40_000, 64)), rng=4)
    S = one.noise_covariance()
    squares = Z[:, one.kept] ** 2
    error = (squares.mean(axis=0) - np.diag(S)[one.kept]) / (squares.std(axis=0) / np.sqrt(len(Z)))
    assert np.abs(error).max() < 6.5
    assert np.abs(0.81 * squares.mean(axis=0) / np.diag(S)[one.kept] - 1).min() > 0.1  # control
