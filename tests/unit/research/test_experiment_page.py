"""The page of an experiment: well-formed, escaped, its curves and cells are the figures of the record."""

from __future__ import annotations

import itertools
import re

import pytest

from harness.sample_experiment import EXPERIMENTS, HOSTILE, number, sample_experiment
from research.report import experiment_to_html
from unit.auditing.report.test_frontier_page import FORBIDDEN, Reader


@pytest.mark.parametrize("variant", EXPERIMENTS)
def test_the_page_is_well_formed_and_loads_nothing(variant: str) -> None:
    page = experiment_to_html(sample_experiment(variant))
    reader = Reader(page)
    assert not {tag for tag, _ in reader.elements} & FORBIDDEN
    ids = [held["id"] for _, held in reader.elements if "id" in held]
    assert len(ids) == len(set(ids))
    for _, held in reader.elements:
        assert set(held.get("aria-labelledby", "").split()) <= set(ids)
        assert not any(key.startswith("on") or key in ("style", "src") for key in held)
        link = held.get("href", "data:,")
        assert link == "data:," or link[1:] in ids
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert not {"nan", "none", "inf"} & set(reader.text.lower().replace("accelerator none", "").split())


def test_every_drawing_and_every_wide_table_has_words_and_can_be_reached_by_keyboard() -> None:
    reader = Reader(experiment_to_html(sample_experiment()))
    drawings = [held for tag, held in reader.elements if tag == "svg" and held.get("role") == "img"]
    assert len(drawings) == 3
    assert all(held["aria-labelledby"].count("figure-") == 2 for held in drawings)
    boxes = reader.of("div", "scroll")
    assert len(boxes) == 2 + 3  # the tables, and the numbers of each figure
    for box in boxes:
        assert (box["tabindex"], box["role"]) == ("0", "region")
        assert box["aria-label"]
    assert "laplace: 0.2 at ε 5, 0.6 at 40; sparse: 0.2 at ε 5, 0.4 at 40" in reader.text
    assert "chance 0.12." in reader.text
    assert "weekdays: target −1, other 2; months: target −2, other 4." in reader.text
    assert "4 rows and 6 columns, between −0.8333 and 1.667." in reader.text


def test_hostile_strings_stay_text() -> None:
    page = experiment_to_html(sample_experiment("hostile"))
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("</style>") == 1
    assert Reader(page).text.count(HOSTILE) > 50


def test_the_curves_are_the_figures() -> None:
    """Marks, lines and bands lie where the record says: 0.2 to 0.6 on a scale from 0 to 0.8."""
    reader = Reader(experiment_to_html(sample_experiment()))
    lines = reader.of("polyline", "line series-0")
    drawn = [tuple(map(float, pair.split(","))) for pair in lines[0]["points"].split()]
    places = [3 + 94 * (x - 5) / 35 for x in (5, 10, 20, 30, 40)]
    values = [0.2, 0.3, 0.4, 0.5, 0.6]
    down = [8 + 204 * (0.8 - y) / 0.8 for y in values]
    assert [x for x, _ in drawn] == pytest.approx(places, abs=1e-3)
    assert [y for _, y in drawn] == pytest.approx(down, abs=0.01)
    band = reader.of("polygon", "band series-0")[0]
    ends = [tuple(map(float, pair.split(","))) for pair in band["points"].split()]
    edge = 204 * 0.05 / 0.8
    assert [y for _, y in ends[:5]] == pytest.approx([y + edge for y in down], abs=0.011)
    assert [y for _, y in ends[5:]] == pytest.approx([y - edge for y in down[::-1]], abs=0.011)
    assert len(reader.of("polygon", "band series-2")) == 0  # no interval, no band
    assert len(reader.of("polyline", "line series-1 dashed")) == 1


def test_bars_start_at_zero_and_end_at_their_figure() -> None:
    reader = Reader(experiment_to_html(sample_experiment()))
    target, other = reader.of("rect", "fill series-0"), reader.of("rect", "fill series-1")
    zero, unit = 3 + 94 * 0.5, 94 / 10  # the scale is −5 to 5
    for k, (held, beside) in enumerate(zip(target[1:], other[1:], strict=True), start=1):
        x, width = float(held["x"].rstrip("%")), float(held["width"].rstrip("%"))
        assert (x, x + width) == (pytest.approx(zero - k * unit), pytest.approx(zero))
        assert float(beside["x"].rstrip("%")) == pytest.approx(zero)
        assert float(beside["width"].rstrip("%")) == pytest.approx(2 * k * unit)


def test_a_heat_map_is_strongest_where_the_figure_is_largest() -> None:
    record = sample_experiment()
    reader = Reader(experiment_to_html(record))
    above, below = reader.of("rect", "cell above")[5:], reader.of("rect", "cell below")[5:]
    values = [v for row in record["figures"][2]["values"] for v in row if v is not None]
    strengths = [float(held["fill-opacity"]) for held in above]
    wanted = [v for v in values if v >= 0]
    assert strengths == pytest.approx([v / max(values) for v in wanted], abs=5e-4)
    strengths = [float(held["fill-opacity"]) for held in below]
    wanted = [-v for v in values if v < 0]
    assert strengths == pytest.approx([v / max(values) for v in wanted], abs=5e-4)


def test_tables_hold_every_figure_with_what_the_paper_has() -> None:
    record = sample_experiment()
    page = experiment_to_html(record)
    for row in record["tables"][0]["rows"]:
        if row[3] is None:
            continue
        words = f"{100 * row[3]['value']:.1f} ± 0.6"
        beside = "<small>published 22.3</small>" if row[3]["published"] else ""
        assert f'<td class="number">{words}{beside}</td>' in page
    assert page.count("published 22.3") == 9
    assert '<td class="number">0.900<small>[0.880, 0.920]</small></td>' in page
    assert '<td class="number">–</td>' in page
    assert "–: not measured." in page
    assert "leakage (%)" in page
    assert "1,048" in page


def test_per_cent_stands_in_the_cell_where_the_head_lacks_it_and_nothing_is_minus_zero() -> None:
    record = sample_experiment()
    record["tables"][0]["columns"][3]["unit"] = None
    record["tables"][0]["rows"][0][3] = number(-0.00001, published=-0.1, low=-0.5, high=0.5)
    page = experiment_to_html(record)
    assert ">0.0\u00a0%<small>[−50.0, 50.0]</small><small>published −10.0\u00a0%</small>" in page


def test_what_is_coarse_or_failed_is_said_above_all() -> None:
    record = sample_experiment()
    text = Reader(experiment_to_html(record)).text
    assert text.index("coarse version") < text.index("What was found")
    assert "2 of 270 cells were not measured" in text
    record |= {"quick": False, "cells": {"asked": 9, "measured": 9, "failed": 0}}
    text = Reader(experiment_to_html(record)).text
    assert "coarse" not in text
    assert "were not measured" not in text
