"""Lower bounds on ε: formulas against independent ones, edge cases, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vecveil.accounting.lower_bound import (
    Bonferroni,
    CanaryScoreAuditor,
    Explicit,
    Split,
    clopper_pearson,
    epsilon_lower_bound,
)
from vecveil.errors import InvalidInputError

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
    ("arguments", "options", "says"),
    [
        ((["a"] * 4, [1.0] * 4), {}, "`scores_x`"),
        (([1.0] * 4, [1.0, 2.0, np.nan, 3.0]), {}, "with NaN"),
        (([1.0] * 3, [1.0] * 4), {}, "N ≥ 4"),
        ((np.ones((2, 2)), [1.0] * 4), {}, "shape"),
        (([1.0] * 4, [1.0] * 4), {"delta": 2}, "`delta`"),
        (([1.0] * 4, [1.0] * 4), {"confidence": 1.0}, "`confidence`"),
        (([1.0] * 4, [1.0] * 4), {"seed": -1}, "`seed`"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        epsilon_lower_bound(*arguments, **options)


# Canaries ----------------------------------------------------------------------------------------


def test_clopper_pearson_at_an_explicit_threshold() -> None:
    auditor = CanaryScoreAuditor(np.r_[np.ones(80), np.zeros(20)], np.r_[np.ones(5), np.zeros(95)])
    low = stats.beta(80, 21).ppf(0.025)
    high = stats.beta(6, 95).ppf(0.975)
    strategy = Explicit(0.5)
    found = auditor.epsilon_clopper_pearson(0.05, threshold_strategy=strategy)
    assert found == pytest.approx(np.log(low / high))
    with_delta = auditor.epsilon_clopper_pearson(0.05, 0.1, threshold_strategy=strategy)
    assert with_delta == pytest.approx(np.log((low - 0.1) / high))


def test_one_run_of_right_guesses_has_a_closed_form() -> None:
    """k guesses, all right: the p-value is q^k, so that ε = logit(significance^(1/k))."""
    auditor = CanaryScoreAuditor(np.ones(100), np.zeros(90))
    q = 0.05 ** (1 / 100)
    found = auditor.epsilon_one_run(0.05, threshold_strategy=Explicit(0.5))
    assert found == pytest.approx(np.log(q / (1 - q)), abs=1e-6)
    q = (0.05 / 190) ** (1 / 100)  # the correction counts all 190 possible numbers of guesses
    assert auditor.epsilon_one_run(0.05) == pytest.approx(np.log(q / (1 - q)), abs=1e-6)


def test_one_run_with_delta_against_the_theorem_written_out() -> None:
    auditor = CanaryScoreAuditor(np.r_[np.ones(45), np.zeros(5)], np.r_[np.ones(5), np.zeros(45)])
    delta, strategy = 1e-4, Explicit(0.5)
    epsilon = auditor.epsilon_one_run(0.05, delta, threshold_strategy=strategy)
    law = stats.binom(50, 1 / (1 + np.exp(-epsilon)))
    at_least = sum(law.pmf(k) for k in range(45, 51))
    slack = max(sum(law.pmf(k) for k in range(45 - i, 45)) / i for i in range(1, 46))
    assert at_least + 2 * 100 * delta * slack == pytest.approx(0.05, rel=1e-5)
    assert epsilon < auditor.epsilon_one_run(0.05, threshold_strategy=strategy)
    assert auditor.epsilon_one_run(0.05, 0.5, threshold_strategy=strategy) == 0.0


def test_strategies_and_sides_agree_on_a_strong_signal() -> None:
    x, y = RNG.standard_normal(5000) + 2, RNG.standard_normal(5000)
    auditor = CanaryScoreAuditor(x, y)
    for method in (auditor.epsilon_clopper_pearson, auditor.epsilon_one_run):
        found = [method(0.01, threshold_strategy=s) for s in (None, Bonferroni(), Split(0.3, 1))]
        assert found[0] == found[1]
        assert all(1.5 < value < 5 for value in found)
    mirrored = CanaryScoreAuditor(-y, -x)
    both = [a.epsilon_clopper_pearson(0.01, one_sided=False) for a in (auditor, mirrored)]
    assert both[0] == pytest.approx(both[1], abs=0.01)
    assert "5000 in" in repr(auditor)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: CanaryScoreAuditor([], [1.0]), "`in_scores`"),
        (lambda: CanaryScoreAuditor([1.0], [np.nan]), "`out_scores`"),
        (lambda: CanaryScoreAuditor([1.0], [1.0]).epsilon_one_run(0.0), "`significance`"),
        (lambda: CanaryScoreAuditor([1.0], [1.0]).epsilon_clopper_pearson(0.1, -1), "`delta`"),
        (
            lambda: CanaryScoreAuditor([1.0], [1.0]).epsilon_one_run(
                0.1, threshold_strategy=Split()
            ),
            "both parts",
        ),
    ],
)
def test_bad_canaries_are_refused(call: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        call()
