"""The CSV export holds every figure of the record, reads back as it was, and starts no formula."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from harness.sample_audit import VARIANTS, sample_audit
from vecveil.auditing.report import render_audit_csv
from vecveil.auditing.report.audit_page import COLUMNS

NUMBERS = ("value", "low", "high", "chance", "clean", "clean_low", "clean_high")


def rows(record: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_audit_csv(record), newline=""), strict=True))


def number(cell: str) -> float | None:
    return None if cell == "" else float(cell)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "hostile"])
def test_every_figure_reads_back_as_it_was(variant: str) -> None:
    record = sample_audit(variant)
    expected = [(attack, figure) for attack in record["attacks"] for figure in (attack, *attack["also"])]
    found = rows(record)
    assert len(found) == len(expected)
    for row, (attack, figure) in zip(found, expected, strict=True):
        assert (row["family"], row["attack"]) == (attack["family"], attack["name"])
        assert row["metric"] == figure["metric"]
        for key in NUMBERS:
            assert number(row[key]) == figure[key]
        assert (int(row["n"]), float(row["seconds"])) == (attack["n"], attack["seconds"])
        assert row["adaptive"] == ("true" if attack["adaptive"] else "false")
        assert row["cost"] == attack["cost"]
        if figure is attack:
            assert number(row["over_chance"]) == pytest.approx(attack["over_chance"])


def test_the_form_is_that_of_rfc_4180() -> None:
    text = render_audit_csv(sample_audit())
    assert text.startswith(",".join(COLUMNS) + "\r\n")
    assert text.endswith("\r\n")
    assert text.count("\n") == text.count("\r\n") == len(rows(sample_audit())) + 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ("\t=1", "'\t=1"),
        ("\rx", "'\rx"),
        ("a=1", "a=1"),
        ('say "x", y', 'say "x", y'),
        ("line\nline", "line\nline"),
        ("'quoted", "'quoted"),
    ],
)
def test_a_text_starts_no_formula(name: str, shown: str) -> None:
    record = sample_audit("one-attack")
    record["attacks"][0] |= {"name": name, "cost": name, "metric": name}
    record["worst"] = record["families"][0]["worst"] = name
    row = rows(record)[0]
    assert row["attack"] == row["cost"] == row["metric"] == shown


def test_a_negative_number_stays_a_number() -> None:
    record = sample_audit()
    record["attacks"][3]["also"][0] |= {"value": -0.02, "low": -0.1, "high": 0.06}
    row = next(row for row in rows(record) if row["metric"] == "advantage")
    assert (row["value"], row["low"]) == ("-0.02", "-0.1")


def test_hostile_strings_stay_in_their_cells() -> None:
    record = sample_audit("hostile")
    found = rows(record)
    assert len(found) == 2 * len(record["attacks"])
    assert all(None not in row and None not in row.values() for row in found)
    render_audit_csv(record).encode("utf-8")
