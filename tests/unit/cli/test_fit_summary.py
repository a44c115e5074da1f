"""The last line of ``vecveil fit`` is a verdict on what its own attacker recovers."""

from __future__ import annotations

from typing import Any

import pytest

from vecveil.auditing.case import MIN_TEST_TEXTS, TEST_SHARE
from vecveil.cli.fit import AUDITED_TEXTS, _advice, _kept, _read, _search

CLEAN = {"low": 0.0, "high": 1.0, "chance": 0.1, "clean": 0.9}


def leak(value: float) -> dict[str, Any]:
    return {**CLEAN, "value": value}


@pytest.mark.parametrize(
    ("listed", "unlisted", "word", "tries"),
    [
        (0.2, 0.2, "Ready to audit", ()),
        (0.4, 0.2, "Perhaps ready", ()),
        (0.2, 0.8, "Perhaps ready", ("--rewrite",)),
        (0.7, 0.8, "Not ready", ("frontier", "--rewrite")),
    ],
)
def test_the_advice_follows_the_leaks(listed: float, unlisted: float, word: str, tries: tuple[str, ...]) -> None:
    advice = _advice({}, leak(listed), leak(unlisted))
    assert advice.startswith(f"{word}: {100 * (listed - 0.1) / 0.8:.1f} % of what clean vectors reveal over chance")
    assert advice.endswith("its attackers recover more.")
    assert {one for one in ("frontier", "--rewrite") if one in advice} == set(tries)


def test_a_fit_from_a_frontier_is_not_sent_to_one() -> None:
    advice = _advice({}, leak(0.7), leak(0.2), of_frontier=True)
    assert "--point" in advice
    assert "vecveil frontier" not in advice


@pytest.mark.parametrize(("recall", "asks"), [(0.58, True), (0.95, False)])
def test_a_detector_that_misses_much_is_named(recall: float, asks: bool) -> None:
    report = {"rewriting": {"detector_recall": {"recall": recall, "spans": 900}}}
    assert ("--detector that finds more than 58.0 %" in _advice(report, leak(0.7), leak(0.2))) is asks
    assert "--detector" not in _advice({"rewriting": {}}, leak(0.7), leak(0.2))


def test_what_was_not_measured_decides_nothing() -> None:
    assert _advice({}, None, None).startswith("Undecided")
    # Clean vectors at chance: nothing can be said to be hidden.
    assert _advice({}, {**leak(0.1), "clean": 0.1}, None).startswith("Not ready")


@pytest.mark.parametrize(("kept", "sealed"), [(0.3, True), (0.9, False)])
def test_little_recall_names_sealed_search(kept: float, sealed: bool) -> None:
    line = _search({"utility": {"neighbours": {"relative": kept}}}, None)
    assert ("sealed search" in line) is sealed


def test_a_fit_says_what_its_attacker_recovers() -> None:
    report = {"reader": {"attack": "kernel ridge"}}
    line = _read(report, {"value": 0.2, "low": 0.17, "high": 0.23, "chance": 0.1, "clean": 0.7})
    assert line == "20.0 % recovered on other texts by kernel ridge (17.0 % to 23.0 %; chance 10.0 %, clean 70.0 %)"


def test_similarity_names_its_texts_and_the_audit_its_number() -> None:
    entry = {"label": "Similarity", "clean": 1.0, "low": 0.9, "high": 0.91, "relative": 0.905}
    report = {"utility": {"similarity": entry}, "utility_task": "similarity", "asked": {}}
    assert "measured on the fit's own texts" in _kept(report)
    assert AUDITED_TEXTS * TEST_SHARE >= 4 * MIN_TEST_TEXTS  # not every text has a frequent word
