"""A cell's hash of its settings names its record: committed records must stay those of today's code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.documents import ROOT
from research import EXPERIMENTS, load_spec
from research.catalogue import experiment_named
from research.published import claims
from research.specification import digest

RECORDS = ROOT / "benchmarks" / "results" / "experiments"
FROZEN = {
    "tradeoff": "068193ed04fb2491",
    "attacks": "8a168e7c3cae278d",
    "categories": "290f1b63b2455520",
    "whitebox": "d64b0a094210e2f0",
    "concept-groups": "c162b39b8dd34706",
    "datasets": "1a76f0e733c38536",
    "encoders": "da56cac28a2b752b",
    "pii-transforms": "1bff958a199106e8",
    "lambda": "69665ee4838de4d1",
    "readings": "cf08fa284c81800c",
    "latency": "4ac5dc95610c790b",
    "case-study": "8babe773c745d162",
    "sensitivity": "828d371f7fd75daf",
    "textcrafter": "855272fa681e45dd",
    "frontier": "15d0ce21d2e3e0bd",
    "guarantee": "60de2dde40cc3d8e",
    "attributes": "ec0e8711358a5061",
    "sealed-search": "42f71a37f0cf795e",
    "other-texts": "61a4e3b59e2b18d9",
    "benchmark": "9305ac89ebaa0f6d",
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_committed_record_is_recognised(name: str) -> None:
    experiment = experiment_named(name)
    path = RECORDS / name / "spec.yaml"
    spec, _ = load_spec(path, quick="--quick" in path.read_text("utf-8").partition("\n")[0])
    cells = {c.name: digest(experiment.settings(spec, c)) for c in experiment.cells(spec)}
    for line in (RECORDS / name / "records.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        own = "-".join(str(v).replace(" ", "_").replace("/", "_") for v in record["cell"].values())
        assert record["settings"] == cells[own]


@pytest.mark.parametrize("name", sorted({claim.experiment for claim in claims()}))
def test_what_decides_a_verdict_comes_from_a_commit(name: str) -> None:
    """Not from code with unsaved changes, whose commit has a plus. FiQA is too small to decide."""
    for line in (RECORDS / name / "records.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        cell = record["cell"]
        decides = cell.get("problem") != "fiqa" and (
            name != "concept-groups" or cell["method"] in ("none", "mean-difference")
        )
        assert not (decides and record["commit"].endswith("+")), cell


@pytest.mark.parametrize(
    "path", sorted((ROOT / "research" / "specs" / "entities").glob("*.yaml")), ids=lambda p: p.stem
)
def test_a_specification_with_the_papers_concept_is_read_and_takes_entities(path: Path) -> None:
    spec, _ = load_spec(path)
    assert spec.experiment == path.stem
    assert all(spec.problem(name).concept.entities for name in spec.problems)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_hash_of_a_specification_that_comes_with_an_experiment(name: str) -> None:
    experiment = experiment_named(name)
    spec, _ = load_spec(name)
    assert digest([experiment.settings(spec, c) for c in experiment.cells(spec)]) == FROZEN[name]
