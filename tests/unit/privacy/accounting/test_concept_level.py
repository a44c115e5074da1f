"""The concept-level figures, their words, and the calibration to them."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest

from harness.errors import raises
from vecveil.privacy.accounting.advantage import (
    concept_level,
    epsilon_meaning,
    epsilon_of_advantage,
    epsilon_of_cosine,
    expected_cosine,
    gaussian_total_variation,
    laplace_total_variation,
    sigma_of_advantage,
)
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss

DISTANCES = np.random.default_rng(0).uniform(0.05, 0.4, 2_000)


@pytest.mark.parametrize("exact", [True, False])
def test_a_bound_that_excludes_nothing_does_not_read_as_a_guarantee(exact: bool) -> None:
    level = concept_level(DISTANCES, advantage=np.ones_like, exact=exact)
    assert "no attacker" not in str(level)
    assert ("an attacker distinguishes" in str(level)) is exact
    assert "Rely on the audit" in str(level)


def test_concept_level_counts_pairs() -> None:
    level = concept_level(DISTANCES, advantage=partial(gaussian_total_variation, sigma=0.3))
    assert level.pairs == 2_000
    assert level.distances.p50 == np.median(DISTANCES)
    assert level.distances.largest == DISTANCES.max()
    expected = gaussian_total_variation(DISTANCES, sigma=0.3)
    assert level.mean_advantage == pytest.approx(expected.mean())
    assert level.advantages.p95 == pytest.approx(np.quantile(expected, 0.95))
    record = json.loads(json.dumps(level.to_record()))
    assert record["advantages"]["p5"] == level.advantages.p5
    assert record["exact"] is True
    assert f"{level.advantages.p95:.3g} at the 95 % quantile" in str(level)
    bound = concept_level(DISTANCES, advantage=partial(gaussian_total_variation, sigma=0.3), exact=False)
    assert "at most" in str(bound)
    assert "at most" not in str(level)


def test_bad_distances_and_advantages_are_refused() -> None:
    for bad in (np.array([]), np.array([-1.0]), np.array([np.nan]), np.zeros((2, 2))):
        with raises("E-INPUT", "distances"):
            concept_level(bad, advantage=lambda d: d)
        with raises("E-INPUT", "distances"):
            sigma_of_advantage(bad, target_advantage=0.1)
    with raises("E-INPUT", "advantage"):
        concept_level(DISTANCES, advantage=lambda d: d + 1)
    with raises("E-INPUT", "advantage"):
        concept_level(DISTANCES, advantage=lambda d: d[:3])


@pytest.mark.parametrize(("n", "lowest"), [(2, 1e-3), (384, 1e-9), (4096, 1e-3)])
def test_many_laplace_pairs_are_interpolated_within_the_stated_error(n: int, lowest: float) -> None:
    rng = np.random.default_rng(n)
    distances = np.exp(rng.uniform(math.log(lowest), math.log(3.0), 20_000))
    values = laplace_total_variation(distances, dimension=n, epsilon=float(n))
    some = slice(0, 20_000, 250)
    exact = laplace_total_variation(distances[some], dimension=n, epsilon=float(n))
    np.testing.assert_allclose(values[some], exact, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 384, 3072])
@pytest.mark.parametrize("target", [1e-6, 0.1, 0.5, 0.99])
def test_epsilon_of_advantage_meets_its_target(n: int, target: float) -> None:
    eps = epsilon_of_advantage(DISTANCES, n=n, target_advantage=target, quantile=0.9)
    rho = float(np.quantile(DISTANCES, 0.9))
    assert LaplacePrivacyLoss(n, eps, rho).total_variation == pytest.approx(target, rel=1e-9)
    values = laplace_total_variation(DISTANCES, dimension=n, epsilon=eps)
    assert (values <= target * (1 + 1e-6)).mean() == pytest.approx(0.9, abs=2e-3)


def test_sigma_of_advantage_meets_its_target() -> None:
    sigma = sigma_of_advantage(DISTANCES, target_advantage=0.2, quantile=1.0)
    assert gaussian_total_variation(DISTANCES, sigma=sigma).max() == pytest.approx(0.2, rel=1e-12)
    assert sigma > sigma_of_advantage(DISTANCES, target_advantage=0.3, quantile=1.0)


def test_no_distance_cannot_be_calibrated() -> None:
    zeros = np.zeros(5)
    with raises("E-CALIBRATION", "distances"):
        epsilon_of_advantage(zeros, n=3, target_advantage=0.1)
    with raises("E-CALIBRATION", "distances"):
        sigma_of_advantage(zeros, target_advantage=0.1)
    for bad in (0.0, 1.0, -0.1):
        with raises("E-INPUT-RANGE", "target_advantage"):
            epsilon_of_advantage(DISTANCES, n=3, target_advantage=bad)


@pytest.mark.parametrize("n", [1, 2, 8, 384, 4096])
def test_epsilon_of_cosine_inverts_the_expected_cosine(n: int) -> None:
    for target in (1e-3, 0.2, 0.9, 0.9999):
        eps = epsilon_of_cosine(n, target)
        assert expected_cosine(n, eps) == pytest.approx(target, rel=1e-8)


@pytest.mark.parametrize(("n", "epsilon"), [(2, 2.0), (3, 0.5), (8, 20.0), (384, 100.0)])
def test_expected_cosine_against_drawn_noise(n: int, epsilon: float) -> None:
    """Null: the mean of draws. False failure: 6 standard errors, 2e-9 a case. Control: ε·1.1."""
    rng, rows = np.random.default_rng(n), 400_000
    first, others = rng.standard_normal(rows), rng.chisquare(n - 1, rows)
    c, y = first / np.sqrt(first**2 + others), rng.standard_gamma(n, rows) / epsilon
    cosines = (1 + y * c) / np.sqrt(1 + 2 * y * c + y * y)
    error = cosines.std() / math.sqrt(rows)
    assert abs(cosines.mean() - expected_cosine(n, epsilon)) < 6 * error
    assert abs(cosines.mean() - expected_cosine(n, 1.1 * epsilon)) > 6 * error


def test_expected_cosine_over_all_scales() -> None:
    for n in (1, 2, 384, 4096):
        values = [expected_cosine(n, float(e)) for e in 10.0 ** np.arange(-3, 7)]
        assert (np.diff(values) >= 0).all()
        assert 0 < values[0] < 0.01
        assert 0.9999 < values[-1] <= 1
    assert expected_cosine(384, 100.0) == pytest.approx(1 / np.hypot(1, 3.84), abs=1e-5)


def test_meaning_names_the_number_that_shows_it() -> None:
    faint = epsilon_meaning(384, 5.0)
    assert len(faint) == 1
    assert "76.8 times as long" in faint[0]
    assert "0.013" in faint[0]
    idle = epsilon_meaning(384, 400.0)
    assert len(idle) == 1
    assert "10^174" in idle[0]
    near = LaplacePrivacyLoss(384, 400.0, 0.1).total_variation
    assert near < 0.995
    assert f"no attacker has an advantage above {near:.3g}" in idle[0]
    assert len(epsilon_meaning(384, 20.0)) == 2
    assert epsilon_meaning(4, 3.0) == ()


def test_an_advantage_near_1_does_not_read_as_a_guarantee() -> None:
    """The figure is exact: where it rounds to 1, the sentence says that attackers succeed."""
    (said,) = epsilon_meaning(64, 800.0)
    assert LaplacePrivacyLoss(64, 800.0, 0.1).total_variation >= 0.995
    assert "no attacker" not in said
    assert "an attacker distinguishes" in said
    assert "Rely on the audit" in said
