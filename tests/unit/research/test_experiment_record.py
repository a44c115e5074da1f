"""The summary of an experiment is read whole or refused with one sentence that names the key."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from msgspec.structs import replace

from harness.errors import raises
from harness.sample_experiment import EXPERIMENTS, sample_experiment
from research import results as s
from research.report import experiment_to_csv, experiment_to_html, experiment_to_latex, experiment_to_markdown
from research.results import Number, read_experiment
from vecveil.errors import DataFileError

DRAWN = (experiment_to_html, experiment_to_markdown, experiment_to_csv, experiment_to_latex)


@pytest.mark.parametrize("variant", EXPERIMENTS)
def test_a_sound_record_is_read(variant: str) -> None:
    record = sample_experiment(variant)
    held = read_experiment(record, owner="test")
    assert len(held.tables) == len(record["tables"])
    assert [p.title for p in held.figures] == [p["title"] for p in record["figures"]]


def test_findings_that_disagree_come_first_and_empty_series_are_left_out() -> None:
    held = read_experiment(sample_experiment(), owner="test")
    assert [finding.verdict for finding in held.findings] == ["disagrees", "agrees", "not measured"]
    assert held.figures[3].series == ()
    cell = held.tables[0].rows[0][3]
    assert isinstance(cell, Number)
    assert (cell.n, cell.sd, cell.published) == (5, 0.006, 0.2234)
    assert held.tables[0].rows[2][3] is None
    record = sample_experiment()
    record["figures"][0]["series"][0]["points"].reverse()
    points = read_experiment(record, owner="test").figures[0].series[0].points
    assert [x for x, *_ in points] == [5, 10, 20, 30, 40]


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the sample with one value replaced, or one key added."""
    record = sample_experiment()
    *inner, last = path.split(".")
    at: Any = record
    for key in inner:
        at = at[int(key)] if key.isdigit() else at[key]
    at[int(last) if last.isdigit() else last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("schema", "vecveil.experiment/2", "schema"),
        ("colour", "red", "colour"),
        ("quick", "no", "quick"),
        ("seconds", math.nan, "seconds"),
        ("cells.asked", 1.5, "cells.asked"),
        ("cells.lost", 1, "cells.lost"),
        ("machine.load", math.inf, "machine[...]"),
        ("commits", "abc", "commits"),
        ("notes.0", 7, "notes[0]"),
        ("tables.0.rows.1", ["sts12"], "tables[0].rows[1]"),
        ("tables.0.rows.1.3.value", math.nan, "tables[0].rows[1][3].value"),
        ("tables.0.rows.1.3.digits", 40, "tables[0].rows[1][3].digits"),
        ("tables.0.rows.1.3.sd", -0.1, "tables[0].rows[1][3].sd"),
        ("tables.0.rows.1.3.low", 0.1, "tables[0].rows[1][3].low"),
        ("tables.0.rows.1.4.low", 0.99, "tables[0].rows[1][4].low"),
        ("tables.0.rows.1.3", 0.5, "tables[0].rows[1][3]"),
        ("figures.0.kind", "pie", "figures[0].kind"),
        ("figures.0.x.log", 0, "figures[0].x.log"),
        ("figures.0.series.1.points.2.y", math.nan, "figures[0].series[1].points[2].y"),
        ("figures.0.chance", math.inf, "figures[0].chance"),
        ("figures.1.columns", ["one"], "figures[1].series"),
        ("figures.2.rows", ["one"], "figures[2].values"),
        ("figures.2.values.1", [0.0], "figures[2].values[1]"),
        ("findings.0.verdict", "true", "findings[0].verdict"),
    ],
)
def test_what_is_not_sound_is_one_clear_error(path: str, value: Any, key: str) -> None:
    record = changed(path, value)
    for draw in DRAWN:
        with raises("E-INPUT", key) as failure:
            draw(record)
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize("key", [*sample_experiment()])
def test_a_key_that_is_missing_is_named(key: str) -> None:
    record = sample_experiment()
    del record[key]
    with raises("E-INPUT", key):
        read_experiment(record, owner="test")


def test_a_logarithmic_axis_needs_positive_numbers() -> None:
    record = changed("figures.0.x.log", True)
    read_experiment(record, owner="test")
    record["figures"][0]["series"][0]["points"][0]["x"] = 0
    with raises("E-INPUT", "figures[0].series"):
        read_experiment(record, owner="test")


def test_no_text_of_the_record_is_in_an_error_and_the_kind_of_error_is_the_caller_s() -> None:
    with pytest.raises(DataFileError) as failure:
        read_experiment(changed("findings.0.verdict", "a secret"), owner="x", error=DataFileError)
    assert "secret" not in str(failure.value)
    for nothing in (None, [], "x"):
        with raises("E-INPUT", "record"):
            experiment_to_html(nothing)  # type: ignore[arg-type]


def test_what_experiments_write_is_what_is_read() -> None:
    """A record with every kind of part goes through JSON and is drawn."""
    columns = (s.Column("method", text=True), s.Column("leakage", "%"))
    rows = (("sparse", s.number([0.2, 0.3], published=0.1)), ("none", None))
    line = s.Series("sparse", [s.Point(5.0, 0.2, 0.1, 0.3), s.Point(10.0, 0.3)], dashed=True)
    figures = (
        s.Figure("Curve", x=s.XAxis("ε", log=True), y=s.YAxis("leakage"), series=(line,), chance=0.1),
        s.Figure("Heat", kind="heat", rows=["a"], columns=["b", "c"], values=[[0.5, 1.0]]),
        s.Figure("Bars", kind="bars", series=(s.Series("x", [s.Point(0.0, 1.0)]),), columns=["b"]),
    )
    finding = s.ClaimFinding("It leaks less.", "SPARSE, Table 1", "agrees", "2 of 2 cells")
    known = read_experiment(sample_experiment(), owner="test")
    table = s.Table("T", columns, rows)
    written = replace(known, tables=(table,), figures=figures, findings=(finding,), notes=("Note.",))
    record = json.loads(json.dumps(written.to_record()))
    held = read_experiment(record, owner="test")
    cell = held.tables[0].rows[0][1]
    assert isinstance(cell, Number)
    assert (cell.value, cell.n, cell.published) == (0.25, 2, 0.1)
    assert [len(picture.series) for picture in held.figures] == [1, 0, 1]
    for draw in DRAWN:
        assert draw(record)
