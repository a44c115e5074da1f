"""The four-set table: readers keep what they should, cells resume, and the tables are those of the records."""

from __future__ import annotations

import gzip
import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[3]


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"benchmarks.textcrafter.{name}")
    finally:
        sys.path.remove(str(ROOT))


sets, store, table, defences, vectors, run = (
    _module(name) for name in ("sets", "store", "table", "defences", "vectors", "run")
)


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def _json_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def _labelled(prefix: str, counts: dict[str, int], **more: Any) -> list[dict[str, Any]]:
    return [
        {"split": split, "text": f"{prefix} {split} {i} in March", "label": i % 2, **more}
        for split, count in counts.items()
        for i in range(count)
    ]


def _ade(pmid: str, split: str, number: int) -> dict[str, Any]:
    text = f"Case {number}: drugzol 5 mg was followed by rash."
    marks = {"drugzol": "DRUG", "5 mg": "DOSE", "rash": "ADVERSE_EFFECT"}
    spans = [
        {"start": text.index(t), "end": text.index(t) + len(t), "label": label, "text": t}
        for t, label in marks.items()
    ]
    return {
        "id": f"ade-{number}", "split": split, "pmid": pmid, "text": text,
        "label": number % 2, "spans": spans, "relations": [],
    }  # fmt: skip


def _pii(number: int, split: str, file: str) -> dict[str, Any]:
    name = f"Person{number}"
    return {
        "id": f"{file}-{number}", "split": split, "text": f"Template {split} {file}: ask {name}.",
        "spans": [{"start": len(f"Template {split} {file}: ask "),
                   "end": len(f"Template {split} {file}: ask {name}"), "label": "PERSON", "text": name}],
        "template_id": 1, "masked": f"Template {split} {file}: ask {{{{name}}}}.",
    }  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    own = tmp_path / "data"
    classification = own / "classification"
    named = {"label_name": "x", "agreement": 100}
    _parquet(
        classification / "financial_phrasebank.parquet",
        _labelled("Sales", {"train": 30, "dev": 4, "test": 10}, **named),
    )
    copied = {"split": "train", "text": "sst TEST 3, in march!", "label": 0}
    rows = _labelled("sst", {"train": 30, "dev": 5, "test": 10})
    _parquet(classification / "sst2.parquet", [*rows, copied])
    news = {"label_name": "World", "source": "s"}
    _parquet(
        classification / "ag_news_train_subset.parquet", _labelled("news", {"train": 20}, **news)
    )
    _parquet(
        classification / "ag_news_test.parquet",
        _labelled("news", {"test": 8}, title="t", description="d", label_name="World"),
    )
    ade = [_ade(f"p{i}", "train", i) for i in range(20)]
    ade += [_ade("p100", "train", 100), _ade("p100", "test", 101), _ade("p102", "dev", 102)]
    _json_lines(own / "ade" / "ade_corpus_v2.jsonl.gz", ade)
    for name in ("presidio_synth_v2", "presidio_generated_large"):
        splits = ("train", "dev", "test")
        _json_lines(
            own / "pii" / f"{name}.jsonl.gz",
            [_pii(i, split, name) for split in splits for i in range(4)],
        )
    _parquet(
        own / "lm" / "sentences.parquet",
        [
            {"source": source, "text": f"{source} sentence {i}"}
            for source in ("brown", "wikitext2_valid", "wikitext2_test")
            for i in range(5)
        ],
    )
    (own / "concepts").mkdir()
    (own / "concepts" / "sts_terms.json").write_text('{"month": ["march", "april"]}')
    return own


@pytest.mark.parametrize(("name", "train", "test"), [("phrasebank", 30, 10), ("agnews", 20, 8)])
def test_a_set_is_its_training_and_test_rows(data: Path, name: str, train: int, test: int) -> None:
    found = sets.read_set(name, data, (1000, 1000))
    assert (len(found.train), len(found.test)) == (train, test)
    assert all(" train " in found.texts[i] for i in found.train)
    assert all(" test " in found.texts[i] for i in found.test)
    assert found.classes.tolist() == [int(t.split()[2]) % 2 for t in found.texts]


def test_a_training_row_that_a_test_row_repeats_is_left_out(data: Path) -> None:
    found = sets.read_set("sst2", data, (1000, 1000))
    assert found.dropped == 1
    assert len(found.train) == 30
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()


def test_an_abstract_is_on_one_side_only(data: Path) -> None:
    found = sets.read_set("ade", data, (1000, 1000))
    assert (found.dropped, len(found.train), len(found.test)) == (1, 20, 1)
    matches = found.concept.find(found.texts, min_texts=1)
    assert {span.term for row in matches.spans for span in row} == {"drugzol", "rash"}


def test_rows_are_drawn_alike_every_time(data: Path) -> None:
    one, two = (sets.read_set("phrasebank", data, (12, 5)) for _ in range(2))
    assert one.texts == two.texts
    assert (len(one.train), len(one.test)) == (12, 5)
    assert set(one.texts) < set(sets.read_set("phrasebank", data, (99, 99)).texts)


def test_pii_templates_are_on_one_side_only(data: Path) -> None:
    found = sets.read_pii(data)
    assert (len(found.train), len(found.test)) == (16, 8)
    assert not np.isin(found.groups[found.train], found.groups[found.test]).any()
    assert len(np.unique(found.groups)) == 6  # templates: three splits of two files
    assert {text.split()[0] for text in found.plain_train} == {"wikitext2_valid"}
    assert {text.split()[0] for text in found.plain_test} == {"wikitext2_test"}


class _Lengths:
    """An encoder: letters counted."""

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = [[text.lower().count(c) + 0.5 for c in "abcdefgh"] for text in texts]
        X = np.array(counts, dtype=np.float32)
        return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_no_test_row_is_in_the_material(data: Path) -> None:
    task = vectors.load_task("phrasebank", data, (99, 99), _Lengths())
    assert len(task.material.positive) == 30
    assert len(task.vocabulary) == 1
    rows, labels = task.tokens(task.rows.test)
    assert rows.tolist() == task.rows.test.tolist()
    assert labels.all()
    assert np.array_equal(task.material.groups, task.rows.groups[task.rows.train])


def test_the_pii_problem_holds_both_classes_and_no_group_twice(data: Path) -> None:
    pii = vectors.load_pii(data, None, _Lengths())
    for X, labels, groups in (pii.train, pii.test):
        assert len(X) == len(labels) == len(groups)
        assert 0 < labels.sum() < len(labels)
    assert not np.isin(pii.train[2], pii.test[2]).any()
    assert len(pii.material.positive) == len(pii.material.negative) == 16


def test_the_random_perturbation_is_orthogonal_and_of_the_norm() -> None:
    X = np.random.default_rng(0).standard_normal((200, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = vectors.Material(X, X, None, X, np.arange(len(X)))
    defence = defences.make("orthogonal", material, 0.7, 0)
    one, two = (defence.protect(X, np.random.default_rng(seed)) for seed in (1, 2))
    assert np.allclose(np.linalg.norm(one - X, axis=1), 0.7)
    assert np.abs(((one - X) * X).sum(axis=1)).max() < 1e-12
    assert np.abs(one - two).max() > 0.01


def test_the_control_with_a_fixed_direction_is_orthogonal_to_it_and_of_the_norm() -> None:
    n, r = 24, 0.7
    X = np.random.default_rng(0).standard_normal((200, n))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    material = vectors.Material(X, X, None, X, np.arange(len(X)))
    directions = []
    for seed in (0, 1):
        defence = defences.make("orthogonal-fixed", material, r, seed)
        moved = [defence.protect(X, np.random.default_rng(draw)) - X for draw in (1, 2)]
        assert np.allclose(np.linalg.norm(moved, axis=2), r)
        assert np.abs(moved[0] - moved[1]).max() > 0.01
        values, axes = np.linalg.eigh(np.concatenate(moved).T @ np.concatenate(moved))
        assert values[0] < 1e-10 < 1.0 < values[1]  # one direction has none, all others have some
        directions.append(axes[:, 0])
    assert abs(directions[0] @ directions[1]) < 0.99


def test_texts_of_the_base_corpus_are_not_judged(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconstruction = _module("reconstruction")
    task = vectors.load_task("sst2", data, (99, 99), _Lengths())
    judged: list[list[str]] = []

    class Stopped(Exception):
        pass

    def run_(self: Any, train: Any, test: Any, **options: Any) -> None:
        judged.append(list(test.texts))
        assert len(test.X) == len(test.texts)
        raise Stopped

    monkeypatch.setattr(reconstruction._LongGEIA, "run", run_)
    planted = data / "lm" / "sentences.parquet"
    rows = [
        {"source": "brown", "text": t}
        for t in ("SST test 4: in March?", "other", "sst test 5 in March")
    ]
    _parquet(planted, rows)
    defence = defences.make("none", task.material, 1.0, 0)
    for corpus in (frozenset(), reconstruction.corpus_keys(data, 2)):
        with pytest.raises(Stopped):
            reconstruction.sentence_cell(
                task,
                defence,
                data,
                start_from=None,
                seen=1,
                judged=5,
                encoder=_Lengths(),
                corpus=corpus,
            )
    every = [task.rows.texts[i] for i in task.rows.test]
    assert judged == [every, [text for text in every if text != "sst test 4 in March"]]


def test_cells_hold_every_figure_of_the_tables(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    utility = _module("utility")
    task = vectors.load_task("phrasebank", data, (99, 99), _Lengths())
    pii = vectors.load_pii(data, None, _Lengths())
    defence = defences.make("orthogonal", task.material, 0.5, 0)
    found = utility.task_cell(task, defence, 0)
    assert found["token_inference"]["attacks"] == {}  # ten test texts are too few
    probed = utility.pii_cell(pii, defence, 0)
    assert set(probed["frozen"]) == {"benchmark"}
    kept = store.Store(tmp_path / "cells", "s/1")
    own = {"defence": "orthogonal", "seed": 0, "sizes": task.to_record()}
    rows = [{**found, **own, "set": "phrasebank"}, {**probed, **own, "set": "pii"}]
    kept.gather(
        tmp_path / "textcrafter-utility.json", rows, defences={"orthogonal": "a random direction"}
    )
    (line,) = [x for x in table.leakage(tmp_path).splitlines() if x.startswith("| a random")]
    assert line.startswith("| a random direction | 0.50 |")
    assert "not measured" not in table.pii(tmp_path)
    assert "not measured" not in table.sizes(tmp_path)


def test_a_policy_is_known_by_its_classifier(data: Path) -> None:
    utility = _module("utility")
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    pii = vectors.load_pii(data, None, _Lengths())
    blind = np.zeros(pii.train[0].shape[1] + 1)
    blind[-1] = -50.0  # calls nothing PII, whatever it is shown
    defence = defences.Applied(lambda X, rng: X, None, False, {}, classifier=blind)
    found = utility.pii_cell(pii, defence, 0)["frozen"]["policy"]
    assert found["p_with"] < 1e-20
    assert found["auc"] == 0.5


def test_options_take_the_radius() -> None:
    assert defences.DEFENCES["gaussian"].options_at(2.0, 16) == {"sigma": 0.5}
    assert defences.DEFENCES["textcrafter"].options_at(2.0, 16)["radius"] == 2.0
    for name, one in defences.DEFENCES.items():
        assert all(
            not isinstance(v, str) or v == "untrained" for v in one.options_at(1, 9).values()
        ), name


def test_a_cell_is_measured_again_only_when_its_settings_differ(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "cells", "s/1")
    key = {"set": "ade", "defence": "none", "seed": 0}
    assert kept.get(key, {"r": 1}) is None
    kept.put(key, {"r": 1}, {"value": 3})
    assert kept.get(key, {"r": 1})["value"] == 3
    assert kept.get(key, {"r": 2}) is None
    (path,) = (tmp_path / "cells").iterdir()
    path.write_text(path.read_text()[:20])  # cut short by a full disk
    assert kept.get(key, {"r": 1}) is None


def test_settings_of_a_cell_depend_on_what_decides_it(tmp_path: Path) -> None:
    one, two = (run.Run(tmp_path, tmp_path, radius=radius) for radius in (1.0, 2.0))
    for defence, differs in (("gaussian", True), ("textcrafter", True), ("subspace", False)):
        cell = run.Cell("utility", "ade", defence, 0)
        assert (one.settings(cell) != two.settings(cell)) is differs
    assert len({tuple(c.key().values()) for c in one.cells("utility")}) == len(one.cells("utility"))


def _record(defence: str, seed: int, accuracy: float) -> dict[str, Any]:
    scenario = {"accuracy": accuracy, "macro_f1": accuracy / 2, "chance": 0.4}
    return {
        "set": "ade", "defence": defence, "seed": seed, "noise_norm": 1.0, "deployment": scenario,
        "development": scenario,
        "token_inference": {"chance": 0.1, "attacks": {"linear": 0.2, "kernel": 0.3 + seed / 10}},
    }  # fmt: skip


def test_tables_hold_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    titles = {"none": "none", "gaussian": "Gaussian"}
    kept = store.Store(tmp_path / "cells", "s/1")
    rows = [_record("gaussian", seed, 0.5 + seed / 10) for seed in range(2)]
    kept.gather(tmp_path / "textcrafter-utility.json", rows, defences=titles)
    sentence = {"set": "ade", "defence": "gaussian", "figures": {"bleu": {"value": 0.123}}}
    kept.gather(tmp_path / "textcrafter-sentences.json", [sentence], defences=titles)
    deviation = f"{10 / math.sqrt(2):.1f}"
    (line,) = [
        x for x in table.four_sets(tmp_path).splitlines() if x.startswith("| ADE | Gaussian")
    ]
    assert f"55.0 ± {deviation}" in line
    assert "| 12.3 |" in line
    assert line.endswith("| 1.0 | 63.0 |")  # as published
    assert "0.350 ± 0.071" in table.leakage(tmp_path)
    rows = [_record(name, 0, 0.5) for name in ("textcrafter", "textcrafter-untrained")]
    kept.gather(
        tmp_path / "textcrafter-utility.json",
        rows,
        defences={r["defence"]: r["defence"] for r in rows},
    )
    ours, literal = (
        x for x in table.four_sets(tmp_path).splitlines() if x.startswith("| ADE | text")
    )
    assert ours.endswith("| – | – |")
    assert literal.endswith("| 2.1 | 75.0 |")  # the paper's is the literal one


def test_tables_without_results_say_so(tmp_path: Path) -> None:
    for render in table.TABLES.values():
        text = render(tmp_path)
        assert "not measured" in text or "95.50" in text
