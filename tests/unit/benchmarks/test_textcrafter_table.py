"""The four-set table: cells resume, a try-out replaces no result, and the tables are those of the records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unit.benchmarks.textcrafter_files import module

command, defences, records, run, store, table = (
    module(name) for name in ("__main__", "defences", "records", "run", "store", "table")
)


def test_a_cell_is_measured_again_only_when_its_settings_differ(tmp_path: Path) -> None:
    kept = store.Store(tmp_path / "cells", "s/1")
    key = {"set": "ade", "defence": "none", "seed": 0}
    assert kept.get(key, {"r": 1}) is None
    kept.put(key, {"r": 1}, {"value": 3})
    assert kept.get(key, {"r": 1})["value"] == 3
    assert kept.get(key, {"r": 2}) is None
    kept.put(key, {"r": 2}, {"value": 4})  # beside it, in its own file
    assert [kept.get(key, {"r": r})["value"] for r in (1, 2)] == [3, 4]
    kept.put(key, {"r": 2}, {"value": 5})
    paths = list((tmp_path / "cells").iterdir())
    assert [path.name[:11] for path in paths] == ["ade-none-0-"] * 2
    for path in paths:
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


def _figure(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.02, "chance": value / 2}


def _everything(folder: Path) -> list[str]:
    """Write every file that the tables read, and return the defences in it."""
    names = ["none", "textcrafter", "textcrafter-untrained", "textcrafter-12", "subspace"]
    titles = {name: one.title for name, one in defences.DEFENCES.items() if name in names}
    kept = store.Store(folder / "cells", "s/1")
    frozen = {"p_with": 0.9, "p_without": 0.2, "auc": 0.8}
    reading = {"benchmark": frozen, "policy": {name: v / 2 for name, v in frozen.items()}}
    probed: list[dict[str, Any]] = [
        {"set": "pii", "defence": name, "seed": 0, "probes": {"linear": 0.7, "mlp": 0.75},
         "frozen": reading if name.startswith("textcrafter") else {"benchmark": frozen}}
        for name in names
    ]  # fmt: skip
    keys = ("train", "test", "dropped", "classes", "tokens", "token_train", "token_test")
    sizes = dict.fromkeys(keys, 2)
    rows = [*({**_record(name, 0, 0.5), "sizes": sizes} for name in names), *probed]
    kept.gather(folder / "textcrafter-utility.json", rows, defences=titles)
    figures = {name: _figure(0.1 * (at + 1)) for at, name in enumerate(table.SENTENCE)}
    rows = [{"set": "ade", "defence": name, "seed": 0, "figures": figures} for name in names[:3]]
    kept.gather(folder / "textcrafter-sentences.json", rows, defences=titles)
    training = {"epochs": [
        {"epoch": at, "reward": -3 + at / 10, "reward_clean": -1.5, "p_pii": 0.25, "drift": 0.5,
         "cluster_distance": 0.75, "deterministic_share": 0.125, "mean_resultant": 0.625}
        for at in range(11)
    ]}  # fmt: skip
    rows = [{"defence": name, "seed": 0, "training": training} for name in table.CURVES]
    kept.gather(folder / "textcrafter-curves.json", rows, defences=titles)
    speeds = {"textcrafter float32": 50_000, "gaussian float32": 100_000}
    cost = {"rows": 10, "dimension": 4, "threads": 2, "vectors_per_second": speeds,
            "training": {"seconds": 9.0, "processor_seconds": 17.0}}  # fmt: skip
    (folder / "textcrafter-cost.json").write_text(json.dumps(cost), encoding="utf-8")
    return names


def _line(text: str, start: str) -> list[str]:
    (line,) = [x for x in text.splitlines() if x.startswith(f"| {start}")]
    return line.strip("| ").split(" | ")


def test_the_sentence_attack_is_shown_with_cosine_and_intervals(tmp_path: Path) -> None:
    _everything(tmp_path)
    text = table.four_sets(tmp_path)
    head = text.splitlines()[0].strip("| ").split(" | ")
    shown = dict(zip(head, _line(text, "ADE | TextCrafter, v learnt"), strict=True))
    assert [shown[name] for name in ("BLEU", "T-F1", "EM", "R-L", "cosine")] == [
        "10.0", "20.0", "30.0", "40.0", "0.500",
    ]  # fmt: skip
    assert dict(zip(head, _line(text, "ADE | chance"), strict=True))["cosine"] == "0.250"
    shown_intervals = _line(table.sentences(tmp_path), "ADE | TextCrafter, v learnt")[2:]
    assert shown_intervals == [
        "10.0 [9.0, 12.0]", "20.0 [19.0, 22.0]", "30.0 [29.0, 32.0]", "40.0 [39.0, 42.0]",
        "0.500 [0.490, 0.520]",
    ]  # fmt: skip
    assert "subspace" not in table.sentences(tmp_path)  # its attack has not been run


def test_the_two_frozen_classifiers_have_columns_of_their_own(tmp_path: Path) -> None:
    _everything(tmp_path)
    text = table.pii(tmp_path)
    own, same = ["0.450", "0.100", "0.400"], ["0.900", "0.200", "0.800"]
    assert _line(text, "TextCrafter, v learnt")[1:] == [*own, *same, "0.750"]
    assert _line(text, "none")[1:] == ["–", "–", "–", *same, "0.750"]
    head = text.splitlines()[0].strip("| ").split(" | ")
    assert [name.split(":")[0] for name in head[1:7]] == [
        *["policy's own classifier"] * 3, *["benchmark's classifier"] * 3,
    ]  # fmt: skip


def test_learning_curves_are_shown_at_some_epochs(tmp_path: Path) -> None:
    _everything(tmp_path)
    lines = [x for x in table.curves(tmp_path).splitlines() if x.startswith("| TextCrafter, v")]
    found = [line.strip("| ").split(" | ")[1:] for line in lines]
    rest = ["-1.500", "0.250", "0.500", "0.750", "0.125", "0.625"]
    rewards = {"0": "-3.000", "1": "-2.900", "2": "-2.800", "5": "-2.500", "10": "-2.000"}
    assert found == [[epoch, reward, *rest] for epoch, reward in rewards.items()]


def test_textcrafter_is_nowhere_without_its_label(tmp_path: Path) -> None:
    _everything(tmp_path)
    for name, render in table.TABLES.items():
        head, *lines = render(tmp_path).splitlines()
        named = [line for line in lines if "TextCrafter" in line]
        assert named or name == "textcrafter-sets", name
        labelled = [records.LABEL in line or records.LABEL in head for line in named]
        assert all(labelled), name


def test_the_command_gathers_the_curves_of_the_first_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = run.Run(tmp_path, tmp_path)
    path = tmp_path / "textcrafter-curves.json"
    run.gather_curves(own, path)
    assert not path.exists()  # no policy was trained
    for name, seed in (("textcrafter", 0), ("textcrafter", 1), ("textcrafter-12", 0)):
        policy = own.policy_path(name, seed)
        policy.parent.mkdir(exist_ok=True)
        policy.write_text(name)

    def loaded(policy: Path) -> Any:
        report = {"training": {"epochs": [], "of": policy.name}, "seed": 0}
        return SimpleNamespace(protector=SimpleNamespace(report=report))

    monkeypatch.setattr(run, "load", loaded)
    run.gather_curves(own, path)
    (row,) = json.loads(path.read_text())["rows"]
    assert row["defence"] == "textcrafter"
    assert row["training"] == {"epochs": [], "of": own.policy_path("textcrafter", 0).name}


@pytest.mark.parametrize(
    "more",
    ["--rows 60 40", "--radius 2", "--seen 100", "--judged 5", "--seeds 1", "--base-texts 50"],
)
def test_a_try_out_is_gathered_elsewhere(more: str, tmp_path: Path) -> None:
    usual = ["--data", "d", "--work", str(tmp_path)]
    assert command.arguments(usual).results == command.RESULTS
    same = ["--rows", "8000", "2000", "--radius", "1"]
    assert command.arguments([*usual, *same]).results == command.RESULTS
    assert command.arguments([*usual, *more.split()]).results == tmp_path / "results"
    asked = command.arguments([*usual, *more.split(), "--results", "here"])
    assert asked.results == Path("here")


def test_tables_without_results_say_so(tmp_path: Path) -> None:
    for name, render in table.TABLES.items():
        assert ("not measured" in render(tmp_path)) is (name != "textcrafter-published"), name
