"""``utility="sealed-search"``: the noise that exact ranking of the candidates allows in a collection to come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.token_data import token_data
from vecveil.auditing.metrics import RetrievalTask
from vecveil.index import Sealer
from vecveil.privacy.protector import Protector

N = 32
DATA = token_data(400, N)
SIZES = {"candidates": 60, "collection_size": 3000}
FIXED = {"method": "laplace"}


def fit(**options: Any) -> Protector:
    positive, negative, labels, background = (DATA.positive, DATA.negative, DATA.labels, DATA.background)
    # Noise that keeps search hides few of six words in 32 dimensions.
    return vecveil.fit_pairs(positive, negative, labels, background, **{"accept_leak": True} | options)


@pytest.fixture(scope="module")
def sealed() -> Protector:
    return fit(utility="sealed-search", target_utility=0.8, **SIZES, **FIXED)


def test_the_report_tells_what_a_search_will_keep(sealed: Protector) -> None:
    report = sealed.report
    outlook = report["sealed_search"]
    assert report["utility_task"] == "sealed_search"
    assert (outlook["candidates"], outlook["query_noise"]) == (60, 1)
    now, later = outlook["expected"]
    assert (now["collection_size"], later["collection_size"]) == (3000, 30_000)
    assert now["low"] <= now["value"] <= now["high"]
    assert later["value"] < now["value"]
    assert outlook["candidates_after_growth"] > 60
    # The fit met the target by the lower limit, on its own draws of noise; these are others.
    assert now["value"] > 0.8
    blob = Sealer(bytes(range(32))).seal(DATA.positive[:1], ids=["1"], collection="c", texts=["a note"])[0]
    assert outlook["bytes_per_query"] == 60 * 4 * -(-len(blob) // 3)


@pytest.mark.slow
def test_more_candidates_buy_noise_and_a_larger_collection_costs_it(sealed: Protector) -> None:
    noise = [
        fit(utility="sealed-search", target_utility=0.8, candidates=c, collection_size=size, **FIXED, **more).report[
            "noise_to_signal"
        ]
        for c, size, more in ((200, 3000, {}), (60, 30_000, {}), (60, 3000, {"query_noise": 0}))
    ]
    own = sealed.report["noise_to_signal"]
    assert noise[0] > 1.2 * own
    assert noise[1] < own
    assert noise[2] > 1.2 * own
    # Control: the store alone allows less.
    assert fit(utility="neighbours", target_utility=0.8, **FIXED).report["noise_to_signal"] < own


@pytest.mark.slow
def test_the_search_of_the_subspace_takes_this_target() -> None:
    """With the rank given, the search of the other settings is short."""
    size = {"candidates": 150, "collection_size": 1000}
    protector = fit(utility="sealed-search", target_utility=0.8, rank=1, gradients=0, **size)
    feasible = [row for row in protector.report["search"] if row["feasible"]]
    assert feasible
    assert all(row["utility"] >= 0.8 for row in feasible)
    assert protector.report["sealed_search"]["distractors"] == 400  # 400 positives say too little of 1,000 texts


@pytest.mark.slow
def test_without_a_scale_the_target_is_99_percent_and_next_to_no_protection_is_refused() -> None:
    size = {"candidates": 200, "collection_size": 2000}
    with raises("E-CALIBRATION-LEAK", "accept_leak") as refused:
        fit(method="laplace", utility="sealed-search", accept_leak=False, **size)
    report = fit(method="laplace", utility="sealed-search", **size).report
    assert report["asked"] == {"target_utility": 0.99}
    assert report["warnings"][0].startswith("This protects next to nothing: an attacker recovers ")
    assert str(refused.value).startswith(report["warnings"][0])
    figures = report["accepted_leak"]
    assert figures["value"] - figures["chance"] > 0.75 * (figures["clean"] - figures["chance"])
    # The subspace leaves little of these words at a lower target.
    assert "accepted_leak" not in fit(utility="sealed-search", target_utility=0.5, rank=6, gradients=0, **size).report
    # A given scale is kept and measured.
    report = fit(method="laplace", utility="sealed-search", noise_to_signal=0.5, **SIZES).report
    assert report["asked"] == {"noise_to_signal": 0.5}
    assert report["sealed_search"]["expected"]


def test_a_retrieval_task_counts_by_its_judgements() -> None:
    relevance = np.eye(40, len(DATA.positive))
    queries = DATA.positive[:40] + 0.02 * np.random.default_rng(0).standard_normal((40, N)).astype(np.float32)
    task = RetrievalTask(queries, DATA.positive, relevance)
    report = fit(method="laplace", utility=task, noise_to_signal=0.4, **SIZES).report
    outlook = report["sealed_search"]
    assert (outlook["metric"], outlook["texts_as_queries"], outlook["queries"]) == ("nDCG@10", False, 40)
    assert outlook["distractors"] > 0  # 400 documents say too little of 3,000


def test_a_collection_takes_its_candidates_from_the_protector(sealed: Protector, tmp_path: Any) -> None:
    where, key = f"sqlite-vec:{tmp_path}/a.db#notes", bytes(range(32))
    assert vecveil.ProtectedCollection(where, sealed, Sealer(key)).candidates == 60
    assert vecveil.ProtectedCollection(where, sealed, Sealer(key), candidates=7).candidates == 7
    plain = fit(method="laplace", noise_to_signal=0.5)
    assert vecveil.ProtectedCollection(where, plain, Sealer(key)).candidates == 200


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("candidates", {"candidates": None}),
        ("collection_size", {"collection_size": None}),
        ("candidates", {"candidates": 3001}),
        ("candidates", {"candidates": 5}),
        ("collection_size", {"collection_size": 399}),
        ("query_noise", {"query_noise": "map"}),
        ("candidates", {"utility": "neighbours"}),
        ("query_noise", {"utility": "similarity", "candidates": None, "collection_size": None, "query_noise": 0}),
    ],
)
def test_bad_input_is_refused(param: str, given: dict[str, Any]) -> None:
    settings = {"utility": "sealed-search", "method": "laplace", **SIZES} | given
    with raises("E-INPUT", param):
        fit(**settings)
    if param != "collection_size" or given["collection_size"] is None:  # texts are counted before they are encoded
        concept = vecveil.Concept.from_terms("drug", ["ibuprofen"])
        with raises("E-INPUT", param):
            vecveil.fit(["one text"], concept, encoder=object(), **settings)
