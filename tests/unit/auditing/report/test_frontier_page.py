"""The page of a frontier: drawn from its record, escaped, and refused where the record is not sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.sample_frontier import FRONTIERS, HOSTILE, sample_frontier
from unit.auditing.report.test_audit_page import Reader
from vecveil.auditing.records import FrontierRecord
from vecveil.auditing.report import frontier_lines, frontier_page, write_frontier_html
from vecveil.cli.fit import _search

FORBIDDEN = {"script", "img", "iframe", "object", "embed", "base", "form", "image", "use"}


def read(variant: str = "full") -> FrontierRecord:
    return FrontierRecord.read(sample_frontier(variant), owner="test")


@pytest.mark.parametrize("variant", FRONTIERS)
def test_the_page_is_well_formed_and_loads_nothing(variant: str) -> None:
    reader = Reader(frontier_page(read(variant)))
    names = {name for name, _ in reader.elements}
    assert not names & FORBIDDEN
    every = [held for _, held in reader.elements]
    assert not any(key.startswith("on") or key == "style" for held in every for key in held)
    targets = [held["href"] for held in every if "href" in held]
    assert all(target.startswith(("#", "data:")) for target in targets)
    ids = [held["id"] for held in every if "id" in held]
    assert len(ids) == len(set(ids))
    assert all(target[1:] in ids for target in targets if target.startswith("#"))


def test_hostile_strings_stay_text() -> None:
    reader = Reader(frontier_page(read("hostile")))
    assert HOSTILE in reader.text
    assert "hacked" not in {key for _, held in reader.elements for key in held}


def test_every_point_is_in_the_plot_on_both_lines_and_in_the_table() -> None:
    record = read()
    reader = Reader(frontier_page(record))
    dots = [held["href"] for name, held in reader.elements if name == "a" and held.get("class") == "dot"]
    # Two kinds of leak, and two lines of each.
    assert sorted(dots) == sorted(4 * [f"#point-{point.number}" for point in record.points])
    rows = [held["id"] for name, held in reader.elements if name == "tr" and "id" in held]
    assert rows == [f"point-{point.number}" for point in record.points]
    assert record.recommendation in reader.text


def test_the_recommended_point_keeps_search_and_leaks_least() -> None:
    record = read()
    assert record.recommended is not None
    assert record.recommended.number == 3
    assert record.candidates == 200
    words = record.recommendation.replace("\u00a0", " ")
    assert "200 candidates" in words
    assert "larger collection" not in words
    assert "179 of the concept’s 1,026 words" in words
    assert "The attackers of an audit recover 28.0 % of the words (25.0 % to 31.0 %, chance 10.0 %" in words
    few = sample_frontier()
    few["counts"]["rows"] = 600
    assert "larger collection" in FrontierRecord.read(few, owner="test").recommendation
    bare = read("bare")
    assert bare.recommended is not None
    assert bare.recommended.number == 4  # without search, the least leak
    assert "not measured" in bare.recommendation


def audited(value: float) -> dict[str, Any]:
    leak = {"value": value, "low": value - 0.03, "high": value + 0.03, "reader": "mlp", "n": 700}
    return {"leak": leak, "clean": 0.7, "chance": 0.1}


@pytest.mark.parametrize(
    ("changed", "ceiling", "why"),
    [
        ({"audited": audited(0.38)}, 0.5, "Of point 3, the best, the attackers of an audit recover 38.0 %"),
        ({"audited": audited(0.36)}, 0.4, "more than 40 % of what clean vectors reveal over chance."),
        ({"listed": audited(0.4)["leak"]}, 0.5, "point 3 leaks least, 40.0 %"),
        ({"listed": audited(0.499)["leak"]}, 0.5, "point 3 leaks least, 49.9 %"),  # point 1, at 50 %, searches better
    ],
)
def test_nothing_is_recommended_above_the_ceiling(changed: dict[str, Any], ceiling: float, why: str) -> None:
    leaking = sample_frontier() | {"ceiling": ceiling}
    leaking["points"][2] |= changed
    record = FrontierRecord.read(leaking, owner="test")
    assert record.recommended is None
    words = record.recommendation.replace("\u00a0", " ")
    assert words.startswith("No design both hides and searches well here: use a sealed index. ")
    assert why in words
    assert "1,026 words" in words
    assert not any("*" in line[:2] for line in frontier_lines(record))
    assert "No design both hides" in frontier_page(record)


def test_a_search_without_a_key_is_judged_by_the_store_alone() -> None:
    alone = sample_frontier() | {"store_alone": True}
    record = FrontierRecord.read(alone, owner="test")
    assert record.recommended is None, "point 3 keeps 60 % alone"
    assert record.recommendation.startswith("No design both hides and searches well here without a key: ")
    alone["points"][2]["store"]["value"] = 0.99
    record = FrontierRecord.read(alone, owner="test")
    assert record.recommended == record.points[2]
    words = record.recommendation.replace("\u00a0", " ")
    assert "Search in the store alone keeps 99.0 %." in words
    assert "at most 35 % of what clean vectors reveal over chance" in words
    assert record.candidates == 0
    assert "sealed search" not in _search({"utility": {"neighbours": {"relative": 0.3}}}, (record, record.points[2]))


def test_a_point_is_recommended_only_after_the_attackers_of_an_audit() -> None:
    unfinished = sample_frontier()
    unfinished["points"][2]["audited"] = None
    record = FrontierRecord.read(unfinished, owner="test")
    assert not record.is_complete
    assert record.recommended is None
    assert record.recommendation.startswith("No point is recommended. The measurement is not finished.")


def test_the_terminal_table_marks_the_recommended_point(tmp_path: Path) -> None:
    lines = frontier_lines(read())
    assert lines[0].startswith("Point 3 ")
    assert [line.split()[0] for line in lines[3:7]] == ["1", "2", "*3", "4"]
    heads = "design listed recovered (95 %) similarity search: store alone"
    assert frontier_lines(read("bare"))[2].split() == heads.split()
    assert write_frontier_html(read(), tmp_path / "f.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"schema": "vecveil.frontier/2"}, "schema"),
        ({"points": [{"number": 1}]}, "points[0].arguments"),
        ({"chance_listed": 2.0}, "chance_listed"),
        ({"counts": None}, "counts"),
    ],
)
def test_an_unsound_record_is_refused(change: dict[str, Any], param: str) -> None:
    with raises("E-INPUT", param):
        FrontierRecord.read(sample_frontier() | change, owner="test")
    for key, value in (("arguments", {"method": "subspace", "rank": "x"}), ("sealed", [])):
        unsound = sample_frontier()
        unsound["points"][1][key] = value
        with raises("E-INPUT", f"points[1].{key}"):
            FrontierRecord.read(unsound, owner="test")
    assert frontier_lines(FrontierRecord.read(sample_frontier() | {"points": []}, owner="test"))
    twice = sample_frontier()
    twice["points"].append(twice["points"][0])
    with raises("E-INPUT", "points"):
        FrontierRecord.read(twice, owner="test")
