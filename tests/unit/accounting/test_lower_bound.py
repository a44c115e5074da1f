"""Lower bounds on ε: formulas against independent ones, edge cases, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.errors import raises
from vecveil.accounting.lower_bound import clopper_pearson, epsilon_lower_bound

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (37, 5000)])
def test_clopper_pearson_is_that_of_scipy(k: int, n: int) -> None:
    low, high = clopper_pearson(k, n, significance=1e-4)
    known = stats.binomtest(k, n).proportion_ci(confidence_level=1 - 2e-4, method="exact")
    assert (low, high) == pytest.approx((known.low, known.high), rel=1e-9)


def randomised_response(epsilon: float, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-epsilon))
    return (rng.random(rows) < p).astype(float), (rng.random(rows) < 1 - p).astype(float)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_bound_of_randomised_response_is_below_and_close(epsilon: float) -> None:
    bound = epsilon_lower_bound(*randomised_response(epsilon, 200_000, 1))
    assert 0.75 * epsilon < bound.epsilon_lower_bound <= epsilon
    assert 0.9 * np.tanh(epsilon / 2) < bound.advantage_low <= np.tanh(epsilon / 2)
    assert bound.samples == (100_000, 100_000)


def test_every_direction_is_found() -> None:
    """Scores that are exponential on one side prove ε in one event only."""
    rare, none = np.zeros(40_000), np.zeros(40_000)
    rare[:4000] = 1.0
    found = {
        epsilon_lower_bound(*pair).direction
        for pair in ((rare, none), (none, rare), (-rare, none), (none, -rare))
    }
    assert found == {"x≥", "y≥", "x<", "y<"}


def test_equal_scores_prove_nothing() -> None:
    bound = epsilon_lower_bound(RNG.standard_normal(5000), RNG.standard_normal(5000))
    assert (bound.epsilon_lower_bound, bound.advantage_low) == (0.0, 0.0)
    alike = epsilon_lower_bound(np.ones(50), np.ones(50))
    assert (alike.epsilon_lower_bound, alike.advantage_low) == (0.0, 0.0)


def test_delta_lowers_the_bound() -> None:
    scores = np.r_[np.ones(500), np.zeros(99_500)], np.zeros(100_000)
    assert epsilon_lower_bound(*scores).epsilon_lower_bound > 2
    assert epsilon_lower_bound(*scores, delta=0.01).epsilon_lower_bound == 0.0
    assert epsilon_lower_bound(*scores, delta=1.0).epsilon_lower_bound == 0.0


def test_perfect_separation_is_limited_by_the_samples() -> None:
    bound = epsilon_lower_bound(np.full(2000, np.inf), np.full(2000, -np.inf))
    assert bound.epsilon_lower_bound == pytest.approx(np.log(1000 / np.log(4e6)), abs=0.1)
    assert json.loads(json.dumps(bound.to_record()))["samples"] == [1000, 1000]


def test_sorted_scores_give_the_same_kind_of_bound() -> None:
    x, y = RNG.standard_normal(20_000) + 1, RNG.standard_normal(20_000)
    shuffled, ordered = epsilon_lower_bound(x, y), epsilon_lower_bound(np.sort(x), np.sort(y))
    assert abs(shuffled.epsilon_lower_bound - ordered.epsilon_lower_bound) < 0.7


@pytest.mark.parametrize(
    ("arguments", "options", "code", "param"),
    [
        ((["a"] * 4, [1.0] * 4), {}, "E-INPUT-TYPE", "scores_x"),
        (([1.0] * 4, [1.0, 2.0, np.nan, 3.0]), {}, "E-INPUT", "scores_y"),
        (([1.0] * 3, [1.0] * 4), {}, "E-INPUT", "scores_x"),
        ((np.ones((2, 2)), [1.0] * 4), {}, "E-INPUT", "scores_x"),
        (([1.0] * 4, [1.0] * 4), {"delta": 2}, "E-INPUT-RANGE", "delta"),
        (([1.0] * 4, [1.0] * 4), {"confidence": 1.0}, "E-INPUT-RANGE", "confidence"),
        (([1.0] * 4, [1.0] * 4), {"seed": -1}, "E-INPUT-RANGE", "seed"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: Any, options: dict[str, Any], code: str, param: str
) -> None:
    with raises(code, param):
        epsilon_lower_bound(*arguments, **options)
