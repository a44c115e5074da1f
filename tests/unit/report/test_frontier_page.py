"""The page of a frontier: drawn from its record, escaped, and refused where the record is not sound."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.sample_frontier import FRONTIERS, HOSTILE, sample_frontier
from vecveil.records import FrontierRecord
from vecveil.report import frontier_lines, frontier_page, write_frontier_html

VOID = {"meta", "link", "input"}
FORBIDDEN = {"script", "img", "iframe", "object", "embed", "base", "form", "image", "use"}


class Reader(HTMLParser):
    """Collects elements, and checks that every element is closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def of(self, tag: str, kind: str) -> list[dict[str, str]]:
        return [held for name, held in self.elements if name == tag and held.get("class") == kind]


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


def test_marks_are_placed_by_leak_and_search() -> None:
    page = frontier_page(read())
    found = re.findall(r'href="#point-(\d)".*?class="near"/><svg x="([\d.]+)%" y="([-\d.]+)"', page)
    listed = found[:8]  # the first layer: four points after ranking, then four in the store alone
    across = {number: float(x) for number, x, _ in listed}
    assert sorted(across, key=lambda number: across[number]) == ["4", "3", "2", "1"]
    top = {number: float(y) for number, _, y in listed[:4]}
    assert sorted(top, key=lambda number: top[number]) == ["1", "3", "2", "4"]


def test_the_recommended_point_keeps_search_and_leaks_least() -> None:
    record = read()
    assert record.recommended.number == 3
    assert record.candidates == 200
    assert "200 candidates" in record.recommendation
    assert "larger collection" not in record.recommendation
    few = sample_frontier()
    few["counts"]["rows"] = 600
    assert "larger collection" in FrontierRecord.read(few, owner="test").recommendation
    bare = read("bare")
    assert bare.recommended.number == 4  # without search, the least leak
    assert "not measured" in bare.recommendation


def test_a_recommendation_that_hides_little_says_so() -> None:
    assert "less than half" not in read().recommendation
    leaking = sample_frontier()
    # Left over chance: the gentle points most of it, the strongest one a third.
    for point, value in zip(leaking["points"], (0.6, 0.5, 0.45, 0.28), strict=True):
        point["listed"] |= {"value": value, "low": value - 0.03, "high": value + 0.03}
    words = FrontierRecord.read(leaking, owner="test").recommendation
    assert words.startswith("Point 3 ")
    assert words.endswith(
        "It hides less than half of what clean vectors tell of the listed words; point 4 hides more and keeps "
        "30.0\u00a0% of search."
    )
    leaking["points"] = leaking["points"][:3]
    leaking["designs"] = 3
    assert "as every point does" in FrontierRecord.read(leaking, owner="test").recommendation


def test_the_terminal_table_marks_the_recommended_point(tmp_path: Path) -> None:
    lines = frontier_lines(read())
    assert [line.split()[0] for line in lines[1:5]] == ["1", "2", "*3", "4"]
    heads = "design listed read (95 %) similarity search: store alone"
    assert frontier_lines(read("bare"))[0].split() == heads.split()
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
    twice = sample_frontier()
    twice["points"].append(twice["points"][0])
    with raises("E-INPUT", "points"):
        FrontierRecord.read(twice, owner="test")
