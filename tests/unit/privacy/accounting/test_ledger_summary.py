"""What a ledger says in sum, and what it exports: numbers and hashed ids."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from vecveil.privacy.accounting.ledger import Ledger

CANARY = "zyxwophane"
P = "a1b2c3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "releases.ledger"


def record(ledger: Ledger, *ids: Any, epsilon: float | None = 2.0, **more: Any) -> None:
    ledger.record(list(ids), protector=more.pop("protector", P), epsilon=epsilon, **more)


def test_spent_is_the_sum_of_epsilons(path: Path) -> None:
    ledger = Ledger(path)
    for epsilon in (0.1, 0.2, 0.3):
        record(ledger, "a", epsilon=epsilon)
    record(ledger, "a", epsilon=5.0, protector="other")
    record(ledger, "b", epsilon=None, protector="other")
    assert ledger.spent("a") == math.fsum([0.1, 0.2, 0.3, 5.0])
    assert ledger.spent("a", protector="other") == 5.0
    assert ledger.spent("a", protector="unknown") == 0.0
    assert ledger.spent("b") == math.inf


def test_the_summary_counts_what_was_recorded(path: Path) -> None:
    ledger = Ledger(path, cap=9)
    record(ledger, "a", "a", "b", epsilon=0.5)
    record(ledger, "a", "c", epsilon=None, protector="other")
    summary = ledger.summary()
    assert (summary.items, summary.releases, summary.most_releases, summary.cap) == (3, 5, 3, 9)
    assert summary.histogram == {1: 2, 3: 1}
    assert summary.to_record()["protectors"][0] == {
        "protector": P,
        "items": 2,
        "releases": 3,
        "most_releases": 2,
        "most_epsilon": 1.0,
    }
    second = summary.protectors[1]
    assert (second.protector, second.releases, second.most_epsilon) == ("other", 2, None)
    assert json.loads(json.dumps(summary.to_record()))["histogram"] == {"1": 2, "3": 1}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".CSV"])
def test_the_export_has_one_line_per_release(path: Path, suffix: str) -> None:
    ledger = Ledger(path)
    record(ledger, "a", CANARY, releases=[b"1", b"2"])
    record(ledger, "a", epsilon=None)
    target = path.with_name("out" + suffix)
    ledger.export(target)
    text = target.read_text(encoding="utf-8")
    rows: list[dict[str, Any]]
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["epsilon"] for row in rows] == [2.0, 2.0, None]
    else:
        rows = list(csv.DictReader(text.splitlines()))
        assert [row["epsilon"] for row in rows] == ["2.0", "2.0", ""]
    items = [row["item"] for row in rows]
    assert items[0] == items[2] != items[1]
    assert {len(item) for item in items} == {64}
    assert all(len(row["checksum"]) == 64 for row in rows)
    assert CANARY not in text
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([path.name, target.name])


def test_an_export_to_a_wrong_place_is_refused(path: Path) -> None:
    ledger = Ledger(path)
    with raises("E-INPUT", "path"):
        ledger.export(path.with_name("out.txt"))
    with raises("E-INPUT", "path"):
        ledger.export(path)
    folder = path.with_name("folder.csv")
    folder.mkdir()
    with pytest.raises(OSError, match="folder"):
        ledger.export(folder)
    ledger.verify()
