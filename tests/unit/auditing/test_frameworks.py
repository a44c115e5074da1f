"""Findings by framework say what the figures say, and "not tested" where nothing was run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.sample_attacks import attack, clean_of, every_family, figure, settle
from vecveil.auditing.records.audit_record import FAMILIES, AttackRecord, LintWarning
from vecveil.auditing.records.verdict import controls, strongest
from vecveil.auditing.result import framework_findings

LINT = [LintWarning("plaintext-beside-vectors", "The text lies beside the vectors.")]


def read(attacks: list[dict[str, Any]]) -> list[AttackRecord]:
    return [AttackRecord.read(each, owner="test") for each in settle({"attacks": attacks, "frameworks": []})["attacks"]]


def found(
    attacks: list[dict[str, Any]], kind: str = "protector", lint: list[LintWarning] | None = None
) -> dict[str, dict[str, Any]]:
    entries = framework_findings(read(attacks), is_store=kind == "store", lint=lint or [])
    return {entry.item: entry.to_record() | {"finding": entry.finding.replace("\u00a0", " ")} for entry in entries}


def token_inference(**figures: float | None) -> dict[str, Any]:
    return attack("mlp", "token-inference", figure("R-precision", 0.229, 0.727, 0.122)) | figures


def test_a_finding_is_made_from_the_figures() -> None:
    assert found([token_inference()])["C8.2"] == {
        "framework": "OWASP AISVS 1.0",
        "item": "C8.2",
        "title": "Embedding Sanitization & Validation",
        "finding": "What is left of the sensitive concept after embedding (8.2.1), from protected "
        "vectors (95 % intervals): token inference 22.9 % R-precision (21.4 % to 24.4 %, chance "
        "12.2 %, clean 72.7 %): above chance, below clean. Not tested: concept probe, terms held "
        "out of the fit.",
        "attacks": ["mlp"],
    }


def test_no_figure_stands_that_the_record_does_not_hold() -> None:
    attacks = every_family()
    known = {f"{100 * each[key]:.1f}" for each in attacks for key in ("value", "low", "high", "chance", "clean")} | {
        "0.1"
    }  # below it
    for entry in found(attacks).values():
        shares = re.findall(r"(?<![\d.])(\d+\.\d) %", entry["finding"])
        assert shares
        assert set(shares) <= known


@pytest.mark.parametrize("item", [item["item"] for item in controls()])
def test_what_was_not_run_is_not_tested(item: str) -> None:
    entry = found([])[item]
    assert entry["finding"].startswith("Not tested: no attack of the kind was run (")
    assert entry["attacks"] == []


def test_a_figure_that_was_not_measured_is_not_tested() -> None:
    gone = dict.fromkeys(("value", "low", "high", "clean", "clean_low", "clean_high"))
    assert found([token_inference(**gone)]) == found([])


def test_the_strongest_is_farthest_from_chance_except_in_token_inference() -> None:
    likely = attack("likely", "probe", figure("AUC", 0.24, 0.5, 0.23))
    rare = attack("rare", "probe", figure("AUC", 0.10, 0.5, 0.01))
    lost = attack("lost", "probe", figure("AUC", 0.9, 0.9, 0.1) | {"value": None})
    low = attack("low", "token-inference", figure("R-precision", 0.3, 0.9, 0.01))
    high = attack("high", "token-inference", figure("R-precision", 0.31, 0.9, 0.3))
    for order in ([likely, rare, lost, low, high], [high, low, lost, rare, likely]):
        leading = strongest(read(order))
        assert {family: each.name for family, each in leading.items()} == {"probe": "rare", "token-inference": "high"}
    assert strongest(read([lost]))["probe"].name == "lost"
    bare = attack("bare", "probe", figure("AUC", 0.5, 0.9, 0.1) | {"chance": None})
    assert strongest(read([rare, bare]))["probe"].name == "bare"


def test_a_store_without_a_clean_side() -> None:
    finding = found([clean_of(token_inference())], kind="store")["C8.2"]["finding"]
    assert "from stored vectors (95 % intervals): token inference 22.9 % R-precision" in finding
    assert "clean" not in finding
    assert "protected" not in finding


def test_warnings_are_named_where_they_bear_on_the_item() -> None:
    of_texts = LintWarning("one-word", "A single word is attacked.")
    entries, others = found([], lint=[*LINT, of_texts]), found([], lint=[of_texts])
    for item in controls():
        said = "plaintext-beside-vectors" in entries[item["item"]]["finding"]
        assert said is item["lint"]
        assert "one-word" not in entries[item["item"]]["finding"]
        assert "Warnings about" not in others[item["item"]]["finding"]


def test_items_name_families_that_there_are() -> None:
    assert all(set(item["families"]) <= set(FAMILIES) for item in controls())


def test_no_item_is_called_met() -> None:
    for entry in found(every_family(), lint=LINT).values():
        words = set(re.findall("[a-z]+", entry["finding"].lower()))
        assert not words & {"met", "passed", "compliant", "complies", "satisfied", "safe", "secure"}
