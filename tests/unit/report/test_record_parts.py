"""What a record of schema 2 must agree on: its kind, its families, leakage over chance, names."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import raises
from harness.sample_attacks import attack, clean_of, figure, settle
from harness.sample_audit import sample_audit
from vecveil.errors import InvalidInputError
from vecveil.records import AuditRecord
from vecveil.report import render_audit


def test_a_store_may_have_no_clean_side_and_nothing_known_of_its_making() -> None:
    record = sample_audit("store-without-clean")
    assert record["method"] is None
    assert record["guarantee"] is None
    assert next(a for a in record["attacks"] if a["name"] == record["worst"])["clean"] is None
    render_audit(record)
    record["randomness"] = "secure"
    render_audit(record)


@pytest.mark.parametrize("key", ["method", "guarantee", "concept_distance"])
def test_a_store_has_no_method_and_no_guarantee(key: str) -> None:
    record = sample_audit("store") | {key: sample_audit()[key] or {"pairs": 3}}
    with pytest.raises(InvalidInputError, match=f"`{key}` must be null in the audit of a store"):
        render_audit(record)


@pytest.mark.parametrize("key", ["method", "guarantee", "randomness"])
def test_a_protector_has_a_method_and_a_guarantee(key: str) -> None:
    with pytest.raises(InvalidInputError, match=f"`{key}` must be"):
        render_audit(sample_audit() | {key: None})


def test_the_worst_attack_has_its_whole_clean_side_or_none() -> None:
    record = sample_audit()
    record["attacks"][1] = clean_of(record["attacks"][1])
    render_audit(settle(record))
    record["attacks"][1]["clean"] = 0.7
    with raises("E-INPUT", "attacks[1].clean_low"):
        render_audit(settle(record))


def test_every_family_names_its_strongest_attack() -> None:
    record = sample_audit()
    entry = next(e for e in record["families"] if e["family"] == "candidates")
    entry["worst"] = "nearest-candidate"
    with raises("E-INPUT", "families[2].worst"):
        render_audit(record)
    entry["worst"] = "logistic-probe"
    with raises("E-INPUT", "families[2].worst"):
        render_audit(record)


def test_attacks_of_a_family_are_ranked_by_what_they_find_over_chance() -> None:
    record = sample_audit()
    record["attacks"] += [
        attack("likely", "reconstruction", figure("token F1", 0.24, 0.5, 0.23)),
        attack("unstated", "probe", clean_of(figure("AUC", 0.7, 0.9, 0.5)) | {"chance": None}),
    ]
    leading = {e["family"]: e["worst"] for e in settle(record)["families"]}
    assert (leading["reconstruction"], leading["probe"]) == ("geia-small", "unstated")
    audit = AuditRecord.read(record, owner="test")
    assert {f: a.name for f, a in audit.strongest.items()} == leading
    assert [a.name for a in audit.members("reconstruction")] == ["geia-small", "likely"]
    next(e for e in record["families"] if e["family"] == "reconstruction")["worst"] = "likely"
    with raises("E-INPUT", "families[5].worst"):
        render_audit(record)


def test_no_family_is_left_out_or_listed_twice() -> None:
    record = sample_audit()
    left_out = record | {"families": record["families"][:-1]}
    with raises("E-INPUT", "families"):
        render_audit(left_out)
    twice = record | {"families": [*record["families"], record["families"][1]]}
    with raises("E-INPUT", "families[7].family"):
        render_audit(twice)


def test_token_inference_need_not_be_among_the_families_but_must_agree() -> None:
    record = sample_audit()
    plain = render_audit(record)
    assert record["families"][0]["family"] == "token-inference"
    assert render_audit(record | {"families": record["families"][1:]}) == plain
    record["attacks"][0] |= {k: record["attacks"][1][k] for k in ("value", "high", "over_chance")}
    record["families"][0]["worst"] = "linear"
    with raises("E-INPUT", "families[0].worst"):
        render_audit(record)


def test_a_family_that_could_not_be_measured_is_still_listed() -> None:
    record = sample_audit()
    gone = dict.fromkeys(("value", "low", "high", "clean", "clean_low", "clean_high"))
    record["attacks"][3] |= gone
    assert "not measurable on these texts" in render_audit(settle(record)).lower()


@pytest.mark.parametrize(("key", "value"), [("over_chance", 0.5), ("over_chance", None), ("clean_over_chance", 0.1)])
def test_leakage_over_chance_follows_from_the_figures(key: str, value: float | None) -> None:
    record = sample_audit()
    record["attacks"][3][key] = value
    with pytest.raises(InvalidInputError, match=rf"`attacks\[3\].{key}` must be"):
        render_audit(record)


def test_over_chance_may_be_rounded() -> None:
    record = sample_audit()
    for each in record["attacks"]:
        each["over_chance"] = round(each["over_chance"], 3)
    render_audit(record)


@pytest.mark.parametrize(
    ("key", "part"), [("frameworks", {"attacks": ["canary"]}), ("reconstructions", {"attack": "canary"})]
)
def test_attacks_that_are_named_are_in_the_record(key: str, part: dict[str, Any]) -> None:
    record = sample_audit("reconstructions")
    record[key][0] |= part
    with pytest.raises(InvalidInputError, match=rf"`{key}\[0\].attacks?` must be") as caught:
        render_audit(record)
    assert "canary" not in str(caught.value)
