"""The auditor passes mechanisms that do what they declare, and rejects planted bugs.

Null: the mechanism has the declared law. False failure: 1e-6 for the module, shared over its tests;
an audit has its share as 1 − confidence. Power: stated at each test. Control: every bug below is one;
and right mechanisms pass under their own declaration, so that a rejection is due to the bug.

What cannot be seen, and why. A relative error s of the scale shifts the mean normal score of the
noise's length by s√n, of which N releases of each input show √(2N) standard deviations: s must be
above (z + 5)/√(2nN), z = 5.8 the two-sided limit of this module. Gamma(n − 1) for Gamma(n) is s = 1/n,
so it needs N > n(z + 5)²/2 releases: 22,000 at n = 384. The advantage alone would need some millions:
it moves by 1/n of itself. Noise that is wrong in directions other than x − x′, but has the right
length, is not seen by one pair at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from harness.mechanism_audit import (
    DeclaredPair,
    MechanismAudit,
    audit_mechanism,
    declared_gaussian,
    declared_laplace,
    declared_purkayastha,
    epsilon_lower_bound,
)
from harness.statistics import threshold
from vecveil.privacy.mechanisms import Laplace, Mahalanobis
from vecveil.privacy.sensitivity import NoiseShape

TESTS = 40
LEVEL = threshold(TESTS)
CONFIDENCE = 1 - LEVEL
N_DIM = 32
SAMPLES = 20_000
Z = -special.ndtri(LEVEL / 5 / 4)  # the noise check's limit, in standard deviations


def pair(n: int = N_DIM, distance: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Two points of the unit sphere about ``distance`` apart."""
    rng = np.random.default_rng(n)
    x, step = rng.standard_normal((2, n))
    x /= np.linalg.norm(x)
    y = x + distance * step / np.linalg.norm(step)
    return x, y / np.linalg.norm(y)


def shape(n: int = N_DIM) -> NoiseShape:
    rng = np.random.default_rng(n)
    A = rng.standard_normal((n, n)) * np.geomspace(1, 4, n)
    return NoiseShape.from_matrix(A.T @ A, floor=0.05)


def elliptical(
    epsilon: float,
    *,
    gamma: float = N_DIM,
    stretch: np.ndarray | None = None,
    factor: float = 1.0,
    dtype: Any = np.float64,
) -> Callable[..., np.ndarray]:
    """Algorithm 1 written apart from the package, with room for bugs."""

    def release(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        U = rng.standard_normal(X.shape)
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        radii = rng.standard_gamma(gamma, size=len(X), dtype=dtype) * dtype(factor / epsilon)
        Z = U * radii[:, None].astype(np.float64)
        return X + (Z if stretch is None else Z @ stretch)

    return release


def gaussian(sigma: float) -> Callable[..., np.ndarray]:
    return lambda X, rng: X + sigma * rng.standard_normal(X.shape)


def purkayastha(epsilon: float, *, power: int = N_DIM - 2) -> Callable[..., np.ndarray]:
    """Angles by inversion on a grid, uniform tangents."""
    grid = (np.arange(1 << 16) + 0.5) * (np.pi / (1 << 16))
    log_density = -epsilon * grid + power * np.log(np.sin(grid))
    total = np.cumsum(np.exp(log_density - log_density.max()))

    def release(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        at, ends = np.r_[0.0, total / total[-1]], np.r_[0.0, grid + grid[0]]
        angles = np.interp(rng.random(len(X)), at, ends)[:, None]
        U = rng.standard_normal(X.shape)
        U -= (U * X).sum(axis=1, keepdims=True) * X
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        return np.asarray(np.cos(angles) * X + np.sin(angles) * U)

    return release


def run(release: Any, declared: DeclaredPair, **options: Any) -> MechanismAudit:
    return audit_mechanism(release, declared, **{"samples": SAMPLES, "confidence": CONFIDENCE, **options})


EPSILON = 40.0
X, Y = pair()
LAPLACE = declared_laplace(X, Y, epsilon=EPSILON)
SHAPE = shape()
MAHALANOBIS = declared_laplace(X, Y, epsilon=EPSILON, covariance=SHAPE.covariance())
WIDE = declared_gaussian(X, Y, sigma=0.15)
UNIT = declared_gaussian(10 * X, 10 * Y, sigma=1.5)
PURKAYASTHA = declared_purkayastha(X, Y, epsilon=EPSILON)

RIGHT = {
    "Laplace": (lambda X, rng: Laplace(N_DIM, EPSILON).protect(X, rng=rng), LAPLACE),
    "Mahalanobis": (lambda X, rng: Mahalanobis(SHAPE, EPSILON).protect(X, rng=rng), MAHALANOBIS),
    "elliptical": (elliptical(EPSILON, stretch=np.linalg.cholesky(SHAPE.covariance()).T), MAHALANOBIS),
    "Gaussian": (gaussian(0.15), WIDE),
    "wide Gaussian": (gaussian(1.5), UNIT),
    "Purkayastha": (purkayastha(EPSILON), PURKAYASTHA),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_mechanisms_pass(name: str) -> None:
    """Null as in the module. Power: the attack also proves most of the advantage that is there."""
    release, declared = RIGHT[name]
    audit = run(release, declared)
    assert not audit.failed
    assert audit.lower_bound.advantage > 0.8 * declared.total_variation - 0.05
    assert 0 < audit.lower_bound.epsilon < declared.worst_case


def test_right_float32_releases_pass() -> None:
    audit = run(RIGHT["Laplace"][0], declared_laplace(*map(np.float32, (X, Y)), epsilon=EPSILON))
    assert not audit.failed


BUGS: dict[str, tuple[Any, DeclaredPair, set[str]]] = {
    "sigma² for sigma below 1": (gaussian(0.15**2), WIDE, {"advantage", "privacy loss", "noise"}),
    "sigma² for sigma above 1": (gaussian(1.5**2), UNIT, {"privacy loss", "noise"}),
    "half the noise": (elliptical(EPSILON, factor=0.5), LAPLACE, {"advantage", "privacy loss", "noise"}),
    "twice the noise": (elliptical(EPSILON, factor=2.0), LAPLACE, {"privacy loss", "noise"}),
    "nine tenths of the noise": (elliptical(EPSILON, factor=0.9), LAPLACE, {"noise"}),
    "1/epsilon for epsilon": (elliptical(1 / EPSILON), LAPLACE, {"privacy loss", "noise"}),
    "Sigma for its square root": (elliptical(EPSILON, stretch=SHAPE.covariance()), MAHALANOBIS, {"noise"}),
    "no Sigma": (elliptical(EPSILON), MAHALANOBIS, {"noise"}),
    "Gamma(n − 1)": (elliptical(EPSILON, gamma=N_DIM - 1), LAPLACE, {"noise"}),
    "Gaussian noise of the same covariance": (gaussian(np.sqrt(N_DIM + 1) / EPSILON), LAPLACE, {"noise"}),
    "a radius in float32": (elliptical(EPSILON, dtype=np.float32), LAPLACE, {"ties"}),
    "noise on every other coordinate": (
        lambda X, rng: X + (np.arange(N_DIM) % 2) * (elliptical(EPSILON)(X, rng) - X),
        LAPLACE,
        {"noise"},
    ),
    "sine to the n − 1": (purkayastha(EPSILON, power=N_DIM - 1), PURKAYASTHA, {"noise"}),
    "twice the epsilon on the sphere": (purkayastha(2 * EPSILON), PURKAYASTHA, {"advantage", "privacy loss", "noise"}),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_rejected(name: str) -> None:
    """Power: the smallest is Gamma(n − 1), a shift of √(2N/n) = 35 deviations; the limit is below 7."""
    release, declared, expected = BUGS[name]
    audit = run(release, declared)
    assert audit.failed >= expected


def test_no_noise_in_the_direction_of_the_secret_is_beyond_the_worst_case() -> None:
    """Power: every pair is told apart, so that ε ≥ log(N/2 / log(…)) = 6 is proved against 2."""
    x, y = pair(distance=0.05)
    gap = (x - y) / np.linalg.norm(x - y)
    declared = declared_laplace(x, y, epsilon=EPSILON)

    def release(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = elliptical(EPSILON)(X, rng) - X
        return X + noise - np.outer(noise @ gap, gap)

    audit = run(release, declared)
    assert {"worst case", "advantage", "privacy loss"} <= audit.failed
    assert declared.worst_case < 2.1 < 5 < audit.lower_bound.epsilon


def test_noise_that_is_used_for_both_inputs_is_found() -> None:
    """Every length occurs twice; a continuous law allows a handful. Power: certain."""
    audit = run(lambda X, rng: elliptical(EPSILON)(X, np.random.default_rng(3)), LAPLACE)
    assert "ties" in audit.failed
    fresh = run(lambda X, rng: elliptical(EPSILON)(X, np.random.default_rng(rng.integers(2**60))), LAPLACE)
    assert not fresh.failed  # control: fresh seeds


def test_float32_coordinates_are_found_when_asked() -> None:
    def coarse(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return X + (elliptical(EPSILON)(X, rng) - X).astype(np.float32)

    origin = declared_laplace(np.zeros(N_DIM), Y, epsilon=EPSILON)
    assert "ties" in run(coarse, origin, samples=2000, low_order_bits=True).failed
    assert not run(coarse, origin, samples=2000).failed
    fine = run(elliptical(EPSILON), origin, samples=2000, low_order_bits=True)
    assert not fine.failed  # control


@pytest.mark.parametrize("n", [N_DIM, 384])
def test_the_smallest_scale_that_is_seen(n: int) -> None:
    """Power: a scale off by (Z + 5)/√(2nN) fails but for a chance of 3e-7; the control at 1 passes."""
    x, y = pair(n)
    epsilon = EPSILON * np.sqrt(n / N_DIM)
    declared = declared_laplace(x, y, epsilon=epsilon)
    samples = SAMPLES if n == N_DIM else 5000
    smallest = (Z + 5) / np.sqrt(2 * n * samples)
    assert smallest < 0.011
    off = run(elliptical(epsilon, gamma=n, factor=1 + smallest), declared, samples=samples)
    assert "noise" in off.failed
    assert not run(elliptical(epsilon, gamma=n), declared, samples=samples).failed


def test_gamma_of_n_minus_1_is_too_small_for_few_samples_in_high_dimension() -> None:
    """At n = 384, 100 releases show 0.7 deviations of Gamma(n − 1), where Z is about 6.4."""
    n = 384
    declared = declared_laplace(*pair(n), epsilon=140.0)
    release = elliptical(140.0, gamma=n - 1)
    assert np.sqrt(2 * 100 / n) + 5 < Z  # so that it passes but for a chance of 3e-7
    assert not run(release, declared, samples=100).failed
    assert np.sqrt(2 * 30_000 / n) > Z + 5  # and this many find it
    assert run(release, declared, samples=30_000).failed == {"noise"}


def laplace_scores(epsilon: float, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One-dimensional Laplace releases of 1 and of 0: exactly ε-DP, reached in both tails."""
    return 1 + rng.laplace(size=rows) / epsilon, rng.laplace(size=rows) / epsilon


def ratio_of_counts(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest log(TPR/FPR) over all thresholds with a false positive: no bound."""
    at = np.concatenate([x, y])
    above = [len(s) - np.searchsorted(np.sort(s), at) for s in (x, y)]
    enough = (above[1] > 0) & (above[0] > 0)
    return float(np.log(above[0][enough] / len(x) / (above[1][enough] / len(y))).max())


def test_a_bound_is_above_the_truth_no_more_often_than_stated() -> None:
    """Null: each of 300 bounds is above ε with chance 0.1 at most.

    Power: the control, a ratio of counts without a confidence, is above it nearly always.
    """
    rng, runs, epsilon = np.random.default_rng(5), 300, 1.0
    wrong = control = 0
    for _ in range(runs):
        x, y = laplace_scores(epsilon, 400, rng)
        wrong += epsilon_lower_bound(x, y, confidence=0.9).epsilon > epsilon
        control += ratio_of_counts(x, y) > epsilon
    limit = stats.binom(runs, 0.1).isf(LEVEL)
    assert wrong <= limit
    assert control > limit


def test_a_bound_comes_close_to_the_truth() -> None:
    """Power of the bounds: with 20,000 scores half of ε = 2 at least is proved."""
    x, y = laplace_scores(2.0, SAMPLES, np.random.default_rng(6))
    assert 1.0 < epsilon_lower_bound(x, y, confidence=0.9).epsilon <= 2.2
