"""`vecveil.frontier` from end to end on a small problem with an encoder that is all arithmetic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import vecveil
from harness.errors import raises
from harness.small_attacks import small_audits
from vecveil.auditing import comparison as module
from vecveil.auditing import families
from vecveil.auditing.attacks import MLPAttack
from vecveil.auditing.metrics import RetrievalTask
from vecveil.auditing.records import FrontierRecord
from vecveil.auditing.records.frontier_record import best_of
from vecveil.texts.encoders import TextEncoder

pytestmark = pytest.mark.slow

DRUGS = ["aspirin", "codeine", "heparin", "insulin", "lithium", "metformin", "naproxen", "warfarin"]
TOPICS = ["knee", "heart", "sleep", "skin", "travel", "music", "garden", "school"]
CONCEPT = vecveil.Concept.from_terms("drug", DRUGS)


class TopicEncoder:
    """The sum of one fixed direction per word: linear, deterministic, without a model."""

    name = "topic-encoder"
    fingerprint = "topic-encoder-32"
    encoded: int = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.encoded += len(texts)
        rows = np.array([np.sum([self._word(w) for w in text.split()], axis=0) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    @cache
    def _word(word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        weight = 1.0 if word in TOPICS or word in DRUGS else 0.4
        return weight * np.random.default_rng(seed).standard_normal(32)


def notes(rows: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    texts = []
    for i in range(rows):
        words = [f"id{i}", f"day{rng.integers(40)}", *rng.choice(TOPICS, 2)]
        if i % 5:
            words.append(rng.choice(DRUGS))
        texts.append(" ".join(str(w) for w in words))
    return texts


TEXTS = notes(620)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Measure five designs with a small perceptron: seconds in place of minutes."""
    made = module.designs

    def five(dimension: int) -> list[dict[str, Any]]:
        every = made(dimension)
        return [every[i] for i in (0, 2, 3, 8, 10)]

    def converging(*given: Any, **options: Any) -> tuple[Any, ...]:
        # On few texts the published classifier stays near chance: it leads where all do, with a clean figure as low.
        return tuple(attack for attack in ladder(*given, **options) if attack.name != "mlc-published")

    with small_audits(), pytest.MonkeyPatch.context() as patch:
        ladder = families.ladder_attacks
        patch.setattr(families, "ladder_attacks", converging)
        patch.setattr(module, "designs", five)
        patch.setattr(module, "MLPAttack", lambda device: MLPAttack((32,), epochs=6, device=device))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frontier") / "out"


@pytest.fixture(scope="module")
def record(folder: Path) -> FrontierRecord:
    return vecveil.frontier(TEXTS, CONCEPT, TopicEncoder(), out=folder, show_progress=False)


def test_the_windows_of_a_split_text_are_measured_and_stay_together() -> None:
    long = [f"{a}\n{b}" for a, b in zip(TEXTS[::2], TEXTS[1::2], strict=True)]
    chosen: list[module.Bench] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextEncoder, "read_lengths", lambda self, texts: [min(len(text), 45) for text in texts])
        patch.setattr(module, "designs", lambda dimension: [{"method": "laplace", "noise_to_signal": 1.0}])
        patch.setattr(
            module.Bench,
            "measure",
            lambda bench, *given, measure=module.Bench.measure: chosen.append(bench) or measure(bench, *given),
        )
        split = vecveil.frontier(long, CONCEPT, TopicEncoder(), long_texts="split", show_progress=False)
    assert (split.counts.texts, split.points[0].arguments["long_texts"]) == (620, "split")
    assert "split" in split.missing["long_texts"]
    (bench,) = chosen
    assert all(bench.groups[i] == bench.groups[i + 1] for i in range(0, 620, 2))


def test_designs_depend_on_the_dimension_alone_and_are_arguments_of_fit() -> None:
    every = module.__dict__["designs"].__closure__[0].cell_contents(384)
    assert len(every) == 15
    assert {design["method"] for design in every} == {"laplace", "sparse", "subspace"}
    assert all(d["rank"] + d["kept"] <= 384 for d in every if d["method"] == "subspace")


def test_stronger_designs_leak_less_and_keep_less(record: FrontierRecord) -> None:
    gentle, strong = record.points[0], record.points[1]
    assert record.is_complete
    # Nearest neighbours read up to ten points more than regressions behind an erasure of few directions.
    assert {"linear", "kernel", "nearest-neighbours"} <= set(record.readers)
    assert record.counts.listed + record.counts.left_out == len(DRUGS)
    assert record.counts.fitted + record.counts.learnt + record.counts.judged == len(TEXTS)
    # A word in eight is guessed in one text of eight; clean vectors are linear in the words.
    assert record.clean_listed.value > 0.8 > 0.4 > record.chance_listed
    assert gentle.listed.value > strong.listed.value
    assert gentle.left_out is not None
    assert gentle.store is not None
    assert strong.store is not None
    assert gentle.store.value > strong.store.value
    for point in record.points:
        kept = [point.store, *point.sealed]
        assert [each.candidates for each in kept if each] == [0, 100, 200, 500]
        assert [each.value for each in kept if each] == sorted(each.value for each in kept if each)


def test_the_record_survives_its_file_and_holds_no_word(record: FrontierRecord, folder: Path) -> None:
    text = (folder / "frontier.json").read_text(encoding="utf-8")
    assert FrontierRecord.read(json.loads(text), owner="test") == FrontierRecord.load(
        folder / "frontier.json", owner="test"
    )
    assert record.to_record() == json.loads(text)
    assert not any(word in text for word in (*DRUGS, *TOPICS))


def test_a_point_is_fitted_with_its_arguments(record: FrontierRecord) -> None:
    point = record.points[3]
    protector = vecveil.fit(TEXTS, CONCEPT, TopicEncoder(), show_progress=False, **point.arguments)
    assert protector.report["parameters"]["rank"] == point.arguments["rank"]
    assert protector.report["noise_to_signal"] == pytest.approx(point.arguments["noise_to_signal"], rel=0.05)


def test_a_finished_folder_is_read_and_an_unfinished_one_continued(
    record: FrontierRecord, folder: Path, tmp_path: Path
) -> None:
    encoder = TopicEncoder()
    again = vecveil.frontier(TEXTS, CONCEPT, encoder, out=folder, show_progress=False)
    assert again == record
    assert encoder.encoded < len(TEXTS)  # the probe sentences of its identity at most
    replace(record, points=record.points[1:]).save(tmp_path / "frontier.json")
    other = vecveil.frontier(TEXTS, CONCEPT, encoder, out=tmp_path, show_progress=False)
    assert other.points[1:] == record.points[1:]
    assert other.points[0].listed == record.points[0].listed


def test_a_folder_of_other_texts_is_refused(record: FrontierRecord, folder: Path) -> None:
    with raises("E-INPUT", "out"):
        vecveil.frontier(notes(620, seed=1), CONCEPT, TopicEncoder(), out=folder)
    with raises("E-INPUT", "out"):
        vecveil.frontier(TEXTS, CONCEPT, TopicEncoder(), out=folder, seed=1)


def test_bad_input_is_refused() -> None:
    encoder = TopicEncoder()
    for few in (notes(50), notes(50) * 3):
        with raises("E-CONCEPT-FEW", "texts") as error:
            vecveil.frontier(few, CONCEPT, encoder, show_progress=False)
        assert "min_texts" not in str(error.value)  # a frontier takes no such argument
    with raises("E-CONCEPT"):
        vecveil.frontier(TEXTS, vecveil.Concept.from_terms("drug", ["aspirin"]), encoder, show_progress=False)
    with raises("E-CONCEPT"):
        vecveil.frontier(TEXTS, vecveil.Concept.from_labels("a", ["a", "b"] * 310), encoder)
    with raises("E-INPUT", "collection_size"):
        vecveil.frontier(TEXTS, CONCEPT, encoder, collection_size=10)
    with raises("E-INPUT", "candidates"):
        vecveil.frontier(TEXTS, CONCEPT, encoder, candidates=200)  # type: ignore[arg-type]
    with raises("E-INPUT", "retrieval"):
        vecveil.frontier(TEXTS, CONCEPT, encoder, retrieval="judged")  # type: ignore[arg-type]


def test_few_terms_give_no_leak_of_words_left_out_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "designs", lambda n: [{"method": "laplace", "noise_to_signal": 1.0}])
    few = vecveil.Concept.from_terms("drug", DRUGS[:4])
    record = vecveil.frontier(TEXTS, few, TopicEncoder(), show_progress=False)
    assert set(record.missing) == {"left_out"}
    assert record.points[0].left_out is None
    assert record.counts.listed == 4


def test_judged_queries_give_ndcg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "designs", lambda n: [{"method": "laplace", "noise_to_signal": 2.0}])
    encoder = TopicEncoder()
    documents, queries = encoder.encode(TEXTS[:300]), encoder.encode(TEXTS[:60])
    task = RetrievalTask(queries, documents, np.eye(60, 300))
    record = vecveil.frontier(TEXTS, CONCEPT, encoder, retrieval=task, show_progress=False)
    (point,) = record.points
    assert point.store is not None
    assert point.store.metric == "nDCG@10"
    assert record.counts.queries == 60
    assert record.counts.rows == 300
    assert [kept.candidates for kept in point.sealed] == [100, 200]
    assert point.sealed[0].value > point.store.value
    mapped = vecveil.frontier(TEXTS, CONCEPT, encoder, retrieval=task, query_noise=0, show_progress=False)
    assert mapped.points[0].similarity == point.similarity
    assert mapped.points[0].store is not None
    assert mapped.points[0].store.value > point.store.value


def test_a_recommended_point_was_attacked_as_in_an_audit(record: FrontierRecord, folder: Path) -> None:
    assert record.counts.words == len(DRUGS)
    point = record.recommended
    assert point is not None
    assert point.audited is not None
    assert point.audited.clean > 0.8 > 0.4 > point.audited.leak.value
    assert f"Point {point.number} " in record.recommendation
    assert FrontierRecord.load(folder / "frontier.json") == record
    low = vecveil.frontier(TEXTS, CONCEPT, TopicEncoder(), out=folder, leak_ceiling=0.0, show_progress=False)
    assert low.recommended is None
    assert low.recommendation.startswith("No design both hides and searches well here: use a sealed index.")
    assert FrontierRecord.load(folder / "frontier.json") == low
    with raises("E-INPUT", "leak_ceiling"):
        vecveil.frontier(TEXTS, CONCEPT, TopicEncoder(), leak_ceiling=50, show_progress=False)
    with raises("E-INPUT-RANGE", "query_noise"):
        vecveil.frontier(TEXTS, CONCEPT, TopicEncoder(), query_noise=0.5, show_progress=False)


def test_points_are_picked_by_limits(record: FrontierRecord) -> None:
    leaks = sorted(point.listed.value for point in record.points)
    assert record.pick(at_most_leak=leaks[0] / 2) is None
    within = record.pick(at_most_leak=leaks[2])
    assert within is not None
    assert within.listed.value <= leaks[2]
    kept = record.pick(at_least_search=0.9)
    assert kept is not None
    best = kept.search()
    assert best is not None
    assert best.value >= 0.9
    alone = record.pick(at_least_search=0.2, store_alone=True)
    assert alone is not None
    assert alone.store is not None
    assert alone.store.value >= 0.2
    # Per cent in place of a share would meet every limit of leak and none of search.
    for param in ("at_most_leak", "at_least_search"):
        with raises("E-INPUT", param):
            record.pick(**{param: 20.0})


def test_the_best_points_are_those_that_no_other_beats() -> None:
    assert best_of([(0.5, 0.9), (0.2, 0.3), (0.3, 0.2), (0.5, 0.8)]) == [(0.2, 0.3), (0.5, 0.9)]


def test_a_frame_and_a_plot(record: FrontierRecord) -> None:
    pytest.importorskip("pandas")
    frame = record.to_frame()
    assert list(frame.index) == [point.number for point in record.points]
    assert frame.loc[1, "listed"] == record.points[0].listed.value
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = record.plot()
    assert len(axes.get_legend().get_texts()) == 3
