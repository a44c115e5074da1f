"""The scale of the noise: given, searched for a target, or refused beyond its range."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.auditing.metrics import ClassificationTask, NeighbourTask, SimilarityTask
from vecveil.errors import CalibrationError
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import SMALLEST_NOISE, Candidate, Scale, calibrate
from vecveil.privacy.sensitivity.shapes import NoiseShape

DATA = token_data(400, 32)
SUBSPACE = {"rank": 3, "kept": 20, "flattening": 0.0, "pairs": True}


def fit(**options: Any) -> Protector:
    return vecveil.fit_pairs(*DATA.arguments(), **{"method": "laplace"} | options)


def fresh_similarity(protector: Protector, seed: int = 99) -> float:
    """Measure the similarity that is left on texts and noise that the fit has not seen."""
    other = token_data(400, 32, seed=0)
    X = np.concatenate([other.positive, other.background])
    task = SimilarityTask.of(X, pairs=4000, seed=seed)
    return task.relative(lambda V, rng: protector.protect(V, rng, noise=rng is not None), np.random.default_rng(seed))


def test_a_given_noise_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.privacy.protector.fitting.calibrate", None)
    assert fit(method="laplace", epsilon=9.0).report["epsilon"] == 9.0
    with pytest.raises(TypeError):  # control
        fit(method="laplace", target_utility=0.9)


@pytest.mark.parametrize(
    "scale",
    [
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": "9"},
        {"epsilon": float("nan")},
        {"epsilon": True},
        {"noise_to_signal": 0},
        {"noise_to_signal": float("inf")},
        {"target_utility": 0},
        {"target_utility": 1},
        {"target_utility": 1.5},
        {"target_utility": -0.1},
    ],
)
def test_scales_out_of_range(scale: dict[str, Any]) -> None:
    with raises("E-INPUT", next(iter(scale))):
        fit(**scale)


@pytest.mark.parametrize("method", ["laplace", "covariance"])
def test_epsilon_and_noise_to_signal_are_two_names_of_one_scale(method: str) -> None:
    first = fit(method=method, epsilon=41.0)
    second = fit(method=method, noise_to_signal=first.report["noise_to_signal"])
    assert second.mechanism.parameters()["epsilon"] == pytest.approx(41.0)
    assert first.report["asked"] == {"epsilon": 41.0}
    # The ratio is what it says: root mean square norms before the map.
    X = np.concatenate([DATA.positive, DATA.background])
    Z = first.mechanism.protect(np.zeros((20_000, 32)), rng=0)
    ratio = np.sqrt((Z**2).sum(axis=1).mean() / (X**2).sum(axis=1).mean())
    assert ratio == pytest.approx(first.report["noise_to_signal"], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("options", [{"method": "laplace"}, {"method": "covariance"}, {"method": "subspace"}])
def test_target_utility_is_reached_on_fresh_noise(options: dict[str, Any], target: float) -> None:
    """Over seeds of the fit the figure has a standard deviation of .011, and the texts differ by .02."""
    protector = fit(**options, target_utility=target)
    assert fresh_similarity(protector) == pytest.approx(target, abs=0.07)
    assert protector.report["utility"]["similarity"]["relative"] == pytest.approx(target, abs=0.07)


def test_several_draws_meet_the_target_on_average() -> None:
    """Their noise lies between those of the single draws, and is none of them."""
    own, data = DATA.positive, Data(DATA.positive, DATA.negative)
    task, scale = SimilarityTask.of(own), Scale("target_utility", 0.8)
    shape = Candidate(NoiseShape.isotropic(own.shape[1]))

    def noise(seed: int, draws: int) -> float:
        return calibrate(shape, scale, data, task, own, seed=seed, draws=draws)

    alone = [noise(seed, 1) for seed in range(3)]
    assert min(alone) < noise(0, 3) < max(alone)
    assert noise(0, 3) not in alone


def test_neighbours_and_labelled_tasks_can_be_the_target() -> None:
    near = fit(method="laplace", utility="neighbours", target_utility=0.7)
    assert near.report["utility_task"] == "neighbours"
    assert near.report["utility"]["neighbours"]["relative"] == pytest.approx(0.7, abs=0.06)
    classes = DATA.labels[:, 0]
    task = ClassificationTask.of(DATA.positive[:100], classes[:100])
    protector = fit(method="laplace", utility=task, noise_to_signal=0.5)
    assert set(protector.report["utility"]) == {"similarity", "neighbours", "classification"}


@pytest.mark.parametrize(
    "options",
    [
        {"method": "subspace", **SUBSPACE},
        {"method": "subspace", "rank": 8},
        {"method": "subspace"},
        {"method": "laplace", "utility": "neighbours"},
    ],
)
def test_an_unreachable_target_says_what_can_be_reached_and_that_works(options: dict[str, Any]) -> None:
    with raises("E-CALIBRATION", "target_utility") as caught:
        fit(**options, target_utility=0.9999)
    found = re.search(r"at most (\d\.\d+) here", str(caught.value))
    assert found is not None
    protector = fit(**options, target_utility=float(found[1]))
    assert protector.report["noise_to_signal"] >= SMALLEST_NOISE


def test_an_unreachable_target_names_sealed_search_or_its_candidates() -> None:
    with raises("E-CALIBRATION", "target_utility") as caught:
        fit(utility="neighbours", target_utility=0.9999)
    assert "candidates=N (--candidates N) and collection_size=M (--collection-size M)" in str(caught.value)
    with raises("E-CALIBRATION", "target_utility") as caught:
        fit(utility="sealed-search", candidates=10, collection_size=100_000, target_utility=0.99999)
    assert "raise `candidates`" in str(caught.value)
    assert "utility='sealed-search'" not in str(caught.value)


def test_a_task_that_clean_vectors_cannot_do_is_refused() -> None:
    class Hopeless(NeighbourTask):
        clean_value = 0.0  # type: ignore[assignment]

    with raises("E-INPUT", "utility"):
        fit(utility=Hopeless(DATA.background), target_utility=0.9)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_protector() -> None:
    first, second = (fit(method="subspace", target_utility=0.9, seed=3) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    drop = {"seconds"}
    assert {k: v for k, v in first.report.items() if k not in drop} == {
        k: v for k, v in second.report.items() if k not in drop
    }


@pytest.mark.parametrize("options", [{"rank": 5, "kept": 8}, {}])
@pytest.mark.parametrize("seed", [0, 1, 5, 6])
def test_what_can_be_reached_holds_for_all_texts_and_not_for_the_searched_part_alone(
    options: dict[str, Any], seed: int
) -> None:
    data = token_data(150, 16, seed=seed).arguments()
    with pytest.raises(CalibrationError) as caught:
        vecveil.fit_pairs(*data, target_utility=0.9995, seed=seed, **options)
    found = re.search(r"at most (\d\.\d+) here", str(caught.value))
    assert found is not None
    vecveil.fit_pairs(*data, target_utility=float(found[1]), seed=seed, **options)


def _pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    negative = rng.standard_normal((60, 12))
    return negative + 0.5 * rng.standard_normal((60, 12)), negative


@pytest.mark.parametrize("epsilon", [1e300, 1e-300, 1e-160, 1e15, 5e-324])
@pytest.mark.parametrize("method", ["laplace", "subspace"])
def test_an_epsilon_without_meaning_is_refused(epsilon: float, method: str) -> None:
    with raises("E-INPUT-RANGE", "epsilon"):
        vecveil.fit_pairs(*_pairs(), method=method, epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e6])
def test_nine_decades_of_epsilon_are_not(epsilon: float) -> None:
    protector = vecveil.fit_pairs(*_pairs(), method="laplace", epsilon=epsilon)
    assert np.isfinite(protector.protect(_pairs()[0], 0)).all()
    assert protector.report["epsilon"] == pytest.approx(epsilon)


def test_a_noise_ratio_without_meaning_is_refused() -> None:
    with raises("E-INPUT-RANGE", "noise_to_signal"):
        vecveil.fit_pairs(*_pairs(), method="laplace", noise_to_signal=1e20)
