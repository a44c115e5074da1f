"""Timing: ratios of planted times are found, whatever slows the machine; the experiment runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.experiment_data import measured
from research import run, running
from research.catalogue.latency import interleaved, relative_to
from research.grid import mask_options

SPEC = """
experiment: latency
encoder: {encoder}
methods: [purkayastha, sparse, subspace, gaussian, covariance]
dimensions: [48]
batches: [1, 20]
repeats: 3
vectors: 4
mask_pairs: [100, 1000]
mask_repeats: 1
mask: {{epochs: 2}}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


class Machine:
    """A clock that calls move on, by more in each round: something else runs beside."""

    def __init__(self) -> None:
        self.now = 0.0
        self.load = 1.0
        self.order: list[str] = []

    def call(self, name: str, cost: float) -> Any:
        def work() -> None:
            self.order.append(name)
            self.now += cost * self.load

        return work

    def clock(self) -> float:
        return self.now


def test_ratios_are_those_of_the_same_round() -> None:
    machine = Machine()
    base = machine.call("a", 2.0)

    def slower_each_round() -> None:
        base()
        if len(machine.order) % 4 == 0:
            machine.load *= 1.5

    calls = {"a": slower_each_round, "b": machine.call("b", 6.0)}
    seconds = interleaved(calls, repeats=4, clock=machine.clock)
    assert machine.order[:2] == ["a", "b"]  # once before anything is timed
    assert machine.order[2:6] == ["a", "b", "b", "a"]  # every round begins with another
    found = relative_to(seconds, "a")
    assert found["a"] == {"seconds": found["a"]["seconds"], "least": 2.0, "ratio": 1.0, "low": 1.0, "high": 1.0}
    assert found["b"]["low"] >= 3.0 / 1.5
    assert found["b"]["high"] <= 3.0 * 1.5


def test_calls_in_a_loop_are_timed_each() -> None:
    machine = Machine()
    seconds = interleaved({"a": machine.call("a", 2.0)}, repeats=2, loops=5, clock=machine.clock)
    assert seconds == {"a": [2.0, 2.0]}
    assert len(machine.order) == 1 + 2 * 5


def test_every_method_is_timed_against_laplace(data: Path, encoder: Path, tmp_path: Path) -> None:
    record = measured(SPEC.format(encoder=encoder), data, tmp_path)
    protect, train = record["tables"]
    assert len(protect["rows"]) == 2 * 6
    of = {(row[1]["value"], row[2]): row for row in protect["rows"]}
    assert of[1, "Laplace"][4]["value"] == 1
    assert of[1, "Laplace"][3]["published"] == 39.8
    assert of[20, "Laplace"][3]["published"] is None  # the paper timed single vectors
    assert all(row[3]["value"] > 0 for row in protect["rows"])
    assert [row[1]["value"] for row in train["rows"]] == [100, 1000]
    assert train["rows"][1][2]["value"] < 1000  # the data have fewer pairs
    assert any("with replacement" in note for note in train["notes"])
    assert any("epochs" in note for note in train["notes"])
    assert train["rows"][0][4]["published"] is None  # of 100 epochs
    assert len(record["findings"]) == 3
    assert record["figures"][0]["kind"] == "curve"


def test_cells_that_measure_time_have_one_worker(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = running._results

    def spy(*args: Any) -> Any:
        seen.append(args[3])
        return real(*args[:3], 0)

    monkeypatch.setattr(running, "_results", spy)
    spec = tmp_path / "spec.yaml"
    text = SPEC.format(encoder=encoder).replace("batches: [1, 20]", "batches: [1]")
    spec.write_text(text.partition("problems:")[0] + "problems: {}\n")
    assert run(spec, data, tmp_path / "out", workers=4).measured == 1
    assert seen == [1]


def test_wrong_methods_and_options_are_refused(data: Path, encoder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(encoder=encoder).replace("gaussian", "shuffle"))
    with raises("E-DATA-FILE", "methods"):
        run(spec, data, tmp_path / "out", workers=0)
    with raises("E-INPUT-NAME", "mask options"):
        mask_options({"loss": 1.0})
    assert mask_options({"epochs": 3.0}).epochs == 3
