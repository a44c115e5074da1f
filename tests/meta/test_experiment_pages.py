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
from research.published import claims
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


def test_a_stale_page_would_be_noticed(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "EXPERIMENTS", ("latency",))  # drawing all of them once is enough
    docs = tmp_path / "docs"
    docs.mkdir()
    marked = {
        "docs/experiments.md": ["pages"],
        "docs/claims.md": ["facts", "readings", "claims"],
        "README.md": ["claims"],
    }
    for name, marks in marked.items():
        blocks = (f"<!-- {mark} -->\nold\n<!-- end {mark} -->\n" for mark in marks)
        (tmp_path / name).write_text("".join(blocks))
    found = maker.pages(RECORDS, docs)
    assert {path.relative_to(tmp_path).as_posix() for path in found if tmp_path in path.parents} == {
        "docs/experiments.md",
        "docs/claims.md",
        "README.md",
        "docs/experiments/latency.html",
    }
    assert not any("old\n" in text for text in found.values())
    page = found[docs / "claims.md"]
    assert "The Purkayastha mechanism is slower by orders of magnitude" in page


def test_every_claim_of_the_papers_is_on_the_page() -> None:
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    assert not [one.id for one in claims() if one.claim not in page]


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
