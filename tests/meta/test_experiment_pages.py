"""The pages of experiments say what the records say, and the records are those that the code would take."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from harness.documents import ROOT
from research import summarise
from research.catalogue import EXPERIMENTS
from research.results import read_experiment
from vecveil.errors import DataFileError

RECORDS = ROOT / "benchmarks" / "results" / "experiments"
MEASURED = [name for name in EXPERIMENTS if (RECORDS / name / "spec.yaml").exists()]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    path = ROOT / "benchmarks" / "experiment_pages.py"
    spec = importlib.util.spec_from_file_location("experiment_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_drawn_from_the_records(maker: ModuleType) -> None:
    stale = [
        path.name
        for path, text in maker.pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run python benchmarks/experiment_pages.py"


def test_a_stale_page_would_be_noticed(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "EXPERIMENTS", ("latency",))  # drawing all of them once is enough
    (tmp_path / "experiments.md").write_text("<!-- pages -->\nold\n<!-- end pages -->\n")
    found = maker.pages(RECORDS, tmp_path)
    assert "old" not in found[tmp_path / "experiments.md"]
    assert {path.name for path in found} == {"experiments.md", "latency.html", "README.md"}


QUICK = ("benchmark",)
"""Experiments whose committed records are of the quick size; their pages say so."""


@pytest.mark.parametrize("name", MEASURED)
def test_committed_records_are_of_cells_that_are_asked_for(name: str) -> None:
    record = read_experiment(summarise(name, RECORDS), owner=name, error=DataFileError)
    lines = (RECORDS / name / "records.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert record.cells.measured == sum("skipped" not in row["found"] for row in rows) > 0
    for held in rows:
        assert held["experiment"] == name
        assert not held["quick"] or name in QUICK
