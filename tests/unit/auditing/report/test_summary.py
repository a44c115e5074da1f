"""The terminal summary fits 80 columns and holds what a person must know."""

from __future__ import annotations

import unicodedata

import pytest

from harness.sample_audit import VARIANTS, sample_audit
from vecveil.auditing.report import summary_table


def columns(line: str) -> int:
    shown = [c for c in line if not unicodedata.combining(c)]
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_line_is_wider_than_a_terminal(variant: str) -> None:
    text = summary_table(sample_audit(variant))
    assert text.endswith("\n")
    assert max(map(columns, text.splitlines())) <= 80
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", ["疾患" * 60, "x" * 300, "e\u0301" * 50, "a\nb\tc"])
def test_wide_and_long_names_are_cut(name: str) -> None:
    record = sample_audit()
    record["concept"] = name
    record["guarantee"]["statement"] = name
    for each in record["utility"].values():
        each["label"] = name
    assert max(map(columns, summary_table(record).splitlines())) <= 80


def test_the_usual_case() -> None:
    text = summary_table(sample_audit())
    for line in (
        'Audit of the concept "drug", method subspace',
        "  without protection  72.7 % (71.2 to 74.2)  ####################",
        "  with protection     22.9 % (21.4 to 24.4)  ######",
        "  guessing (chance)   12.2 %                 ###",
        "  Retrieval, documents only                          93.0 %",
    ):
        assert line in text.splitlines()
    assert "Listed words: mostly hidden. Hides most, not all" in text
    assert "  listed words, same attack: 22.1 % (chance 7.7 %)" in text
    assert "= 1536 bounds what anybody can learn from one text" in text


def test_terminal_escapes_are_inert() -> None:
    text = summary_table(sample_audit("hostile"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode("utf-8")


def test_no_utility() -> None:
    assert "Utility kept\n  not measured\n" in summary_table(sample_audit() | {"utility": {}})


def test_warnings_stand_first_and_what_was_not_run_is_counted() -> None:
    text = summary_table(sample_audit("store"))
    assert text.index("WARNING: The column") < text.index("How many of the concept's words")
    assert "  1 attack not run; the report says why." in text.splitlines()
    assert "WARNING" not in summary_table(sample_audit())
    assert "not run" not in summary_table(sample_audit() | {"skipped": []})


def test_a_store_has_no_guarantee_and_perhaps_no_clean_side() -> None:
    text = summary_table(sample_audit("store-without-clean"))
    assert 'Audit of the concept "drug", a store\n' in text
    assert "  stored vectors      22.9 % (21.4 to 24.4)  ######" in text
    for wrong in ("protection", "guaranteed", "Utility", "clean vectors  ", "None"):
        assert wrong not in text
    assert "  clean vectors       72.7 %" in summary_table(sample_audit("store"))
