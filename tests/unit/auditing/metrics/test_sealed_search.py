"""The expected quality of exact ranking among protected candidates, against collections of that size."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.auditing.metrics import SealedSearchTask
from vecveil.privacy.utility.sealed_search import _expected_dcg
from vecveil.privacy.utility.tasks import ndcg_of_scores, unit_rows

N = 64
CENTRES = np.random.default_rng(0).standard_normal((40, N))


def collection(rows: int, seed: int) -> np.ndarray:
    """Return vectors of 40 Gaussian clusters whose spread falls from direction to direction."""
    rng = np.random.default_rng(seed)
    spread = 0.8 * rng.standard_normal((rows, N)) * np.linspace(1.5, 0.2, N)
    return np.asarray(CENTRES[rng.integers(0, 40, rows)] + spread, dtype=np.float32)


def noisy(noise: float) -> Any:
    def release(X: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        return X if rng is None else X + noise * rng.standard_normal(X.shape).astype(np.float32)

    return release


def outlook(task: SealedSearchTask, noise: float) -> dict[str, Any]:
    return task.to_record(noisy(noise), np.random.default_rng(1))["outlook"]


def measured(X: np.ndarray, noise: float, candidates: int, queries: int = 300) -> float:
    """Return recall@10 after ranking the candidates exactly, by other code than the task's; the first rows query."""
    rng = np.random.default_rng(2)
    clean = unit_rows(X[:queries]) @ unit_rows(X).T
    released = unit_rows(noisy(noise)(X[:queries], rng)) @ unit_rows(noisy(noise)(X, rng)).T
    for scores in (clean, released):
        scores[np.arange(queries), np.arange(queries)] = -np.inf
    nearest = np.argpartition(-clean, 10, axis=1)[:, :10]
    proposed = np.argpartition(-released, candidates, axis=1)[:, :candidates]
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(nearest, proposed, strict=True)]))


@pytest.mark.parametrize(("noise", "candidates"), [(0.3, 50), (0.6, 50), (0.6, 100), (1.0, 100)])
def test_a_quarter_of_a_collection_predicts_the_whole(noise: float, candidates: int) -> None:
    """The bound of 0.1 is four standard errors of 300 queries at a recall of 0.7, and the model's own error."""
    whole = collection(6000, 1)
    task = SealedSearchTask(whole[:1500], candidates=candidates, collection_size=len(whole))
    expected = outlook(task, noise)["expected"][0]
    truth = measured(whole, noise, candidates)
    assert abs(expected["value"] - truth) < 0.1
    assert expected["low"] < truth + 0.03
    # Control: the collection as it is now says too much, where it matters.
    now = measured(whole[:1500], noise, candidates)
    assert now > truth + 0.1 or truth > 0.9


def test_distractors_stand_for_the_rest_of_the_collection() -> None:
    rng = np.random.default_rng(3)
    ordinary = (1.2 * rng.standard_normal((9000, N))).astype(np.float32)
    own = collection(800, 4)
    whole = np.concatenate([own, ordinary[1000:]])
    task = SealedSearchTask(own, candidates=60, collection_size=len(whole), distractors=ordinary[:1000])
    result = outlook(task, 1.5)
    assert result["distractors"] == 1000
    assert result["model_error"] < 0.03
    truth = measured(whole, 1.5, 60)
    assert abs(result["expected"][0]["value"] - truth) < 0.05  # control: 0.1 more without distractors
    assert measured(own, 1.5, 60) > truth + 0.1


def test_the_candidates_after_growth_restore_the_target() -> None:
    task = SealedSearchTask(collection(1500, 1), candidates=50, collection_size=3000, target=0.9)
    more = outlook(task, 0.6)["candidates_after_growth"]
    assert more is not None
    assert more > 50
    grown = SealedSearchTask(collection(1500, 1), candidates=more, collection_size=30_000)
    assert outlook(grown, 0.6)["expected"][0]["value"] > 0.9


def test_a_whole_collection_is_counted() -> None:
    """At its own size there is nothing to model: the figure is that of the ranks."""
    X = collection(600, 5)
    task = SealedSearchTask(X, candidates=40, collection_size=len(X), sample=600)
    value = task.protected(noisy(0.6), np.random.default_rng(0)).value
    assert value == pytest.approx(measured(X, 0.6, 40, queries=600), abs=0.03)  # other draws of noise
    assert task.protected(noisy(0.0), np.random.default_rng(0)).value == 1.0


def test_judgements_count_by_ndcg() -> None:
    rng = np.random.default_rng(6)
    X = collection(700, 6)
    queries = X[:60] + 0.3 * rng.standard_normal((60, N)).astype(np.float32)
    gains = np.zeros((60, 700))
    gains[np.arange(60), np.arange(60)] = 2
    gains[np.arange(50), rng.integers(0, 700, 50)] = 1
    task = SealedSearchTask(X, queries=queries, relevance=gains, candidates=30, collection_size=700)
    clean = np.mean(ndcg_of_scores(unit_rows(queries) @ unit_rows(X).T, gains))
    assert task.clean_value == pytest.approx(clean)
    record = task.to_record(noisy(0.8), np.random.default_rng(0))
    released = np.random.default_rng(1)
    proposed = unit_rows(noisy(0.8)(queries, released)) @ unit_rows(noisy(0.8)(X, released)).T
    scores = unit_rows(queries) @ unit_rows(X).T
    scores[np.argsort(np.argsort(-proposed, axis=1), axis=1) >= 30] = -2
    assert record["value"] == pytest.approx(np.mean(ndcg_of_scores(scores, gains)), abs=0.06)  # other draws
    assert record["metric"] == "nDCG@10"
    assert not record["outlook"]["texts_as_queries"]
    # Fifty relevant documents nearer than a further row keep their ranks; in a larger collection some do not.
    larger = SealedSearchTask(X, queries=queries, relevance=gains, candidates=30, collection_size=70_000)
    assert larger.clean_value < task.clean_value


def test_the_expected_dcg_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(7)
    inside, gains = rng.random((1, 7)), rng.integers(0, 3, (1, 7)).astype(float)
    total = 0.0
    for subset in itertools.product([0, 1], repeat=7):
        held = np.array(subset, dtype=bool)
        chance = np.where(held, inside[0], 1 - inside[0]).prod()
        total += chance * (gains[0][held] / np.log2(np.arange(2, held.sum() + 2))).sum()
    assert _expected_dcg(inside, np.zeros((1, 7)), gains)[0] == pytest.approx(total)
    # Rows of a rate of nearer ones: by simulation, standard error 0.003.
    nearer = np.full((1, 7), 2.0)
    drawn = []
    for _ in range(20_000):
        held = rng.random(7) < inside[0]
        ranks = np.cumsum(held) + rng.poisson(2.0, 7)
        held &= ranks <= 10
        drawn.append((gains[0][held] / np.log2(ranks[held] + 1.0)).sum())
    assert _expected_dcg(inside, nearer, gains)[0] == pytest.approx(np.mean(drawn), abs=0.03)


def test_queries_without_noise_carry_none() -> None:
    X = collection(600, 8)
    both, trusted = (SealedSearchTask(X, candidates=20, collection_size=600, query_noise=noise) for noise in (1, 0))
    first, second = (task.to_record(noisy(1.2), np.random.default_rng(0)) for task in (both, trusted))
    assert (first["sides"], second["sides"]) == ("both", "documents")
    assert second["value"] > first["value"] + 0.05


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("documents", {"documents": collection(50, 1)}),
        ("collection_size", {"collection_size": 100}),
        ("candidates", {"candidates": 9}),
        ("candidates", {"candidates": 601}),
        ("relevance", {"queries": collection(5, 2)}),
        ("relevance", {"queries": collection(5, 2), "relevance": np.ones((4, 300))}),
        ("relevance", {"queries": collection(5, 2), "relevance": np.zeros((5, 300))}),
        ("distractors", {"distractors": collection(20, 2)}),
    ],
)
def test_bad_input_is_refused(param: str, given: dict[str, Any]) -> None:
    settings = {"documents": collection(300, 1), "candidates": 50, "collection_size": 600} | given
    with raises("E-INPUT", param):
        SealedSearchTask(settings.pop("documents"), **settings)
