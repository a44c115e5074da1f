"""The verdict says what the figures say, and nothing kinder."""

from __future__ import annotations

from typing import Any

import pytest

from harness.sample_audit import attack, figure, sample_audit
from vecveil.report.record import parse
from vecveil.report.verdict import against_chance, against_clean, caveats, sentence, status


def said(record: dict[str, Any]) -> str:
    return "".join(sentence(parse(record))).replace("\u00a0", " ")


def noted(record: dict[str, Any]) -> str:
    return " ".join(caveats(parse(record))).replace("\u00a0", " ")


def with_worst(**figures: float) -> dict[str, Any]:
    """Return a record whose only attack has the given figures."""
    record = sample_audit("one-attack")
    record["attacks"][0] |= figures
    return record


def test_the_sentence_of_the_usual_case() -> None:
    assert said(sample_audit()) == (
        "The worst of 3 token-inference attacks, mlp-adaptive, recovered 22.9 % of concept tokens "
        "from protected vectors (95 % interval 21.4–24.4 %), against 72.7 % from clean ones "
        "(71.2–74.2 %); chance is 12.2 %; utility kept is 71.2 % to 95.3 % of clean over 3 "
        "measures (lowest: Nearest neighbours); the guarantee is formal at ε = 1536, "
        "a bound that excludes little by itself."
    )


def test_it_is_one_sentence() -> None:
    for variant in ("formal", "empirical", "at-chance", "without-retrieval", "many-attacks"):
        text = said(sample_audit(variant))
        assert text.endswith(".")
        assert ". " not in text


def test_one_utility_is_named() -> None:
    assert "utility kept is 95.3 % of clean (Pairwise similarity);" in said(
        sample_audit("without-retrieval")
    )


@pytest.mark.parametrize("empty", [True, False])
def test_no_utility(empty: bool) -> None:
    record = sample_audit()
    if empty:
        record["utility"] = {}
    else:
        for each in record["utility"].values():
            each["relative"] = None
    assert "utility was not measured" in said(record)


def test_at_chance_within_the_interval() -> None:
    text = said(sample_audit("at-chance"))
    assert "12.5 % of concept tokens" in text
    assert "(95 % interval 11.0–14.0 %: at chance within its interval)" in text


def test_below_chance_is_not_called_at_chance() -> None:
    record = with_worst(value=0.08, low=0.07, high=0.09)
    assert "(95 % interval 7.0–9.0 %: below chance)" in said(record)


def test_overlapping_intervals_are_no_reduction() -> None:
    record = with_worst(
        value=0.58, low=0.56, high=0.59, clean=0.60, clean_low=0.58, clean_high=0.62
    )
    assert "which is not clearly below the 60.0 % from clean ones" in said(record)
    assert "does not show that protection lowers leakage" in noted(record)


def test_intervals_that_touch_overlap() -> None:
    record = with_worst(
        value=0.57, low=0.56, high=0.58, clean=0.60, clean_low=0.58, clean_high=0.62
    )
    assert "not clearly below" in said(record)
    record["attacks"][0]["high"] = 0.5799
    assert "not clearly below" not in said(record)
    assert "against 60.0 % from clean" in said(record)


def test_more_leakage_than_clean_is_said() -> None:
    record = with_worst(value=0.7, low=0.69, high=0.71, clean=0.60, clean_low=0.58, clean_high=0.62)
    assert "which is above the 60.0 % from clean ones" in said(record)
    assert "Leakage is higher with protection than without." in noted(record)


def test_an_attack_at_chance_on_clean_vectors_shows_nothing() -> None:
    record = with_worst(clean=0.13, clean_low=0.11, clean_high=0.15)
    assert "cannot show what protection changes" in noted(record)
    assert "cannot show what protection changes" not in noted(sample_audit())


@pytest.mark.parametrize("kind", ["empirical", "obfuscation"])
def test_no_formal_guarantee_is_said_twice(kind: str) -> None:
    record = sample_audit()
    record["guarantee"] |= {"kind": kind, "epsilon": None}
    assert f"there is no formal guarantee ({kind}, " in said(record)
    assert f"The protection is {kind}: nothing but these measurements supports it" in noted(record)
    assert "ε" not in said(record)


def test_a_formal_guarantee_does_not_stand_for_the_leakage() -> None:
    assert "measured, not part of the guarantee: another attack may recover more" in noted(
        sample_audit()
    )


def test_attacks_that_do_not_adapt_are_named_as_such() -> None:
    assert "No token-inference attack was adaptive" in noted(sample_audit("empirical"))
    assert "adaptive" not in noted(sample_audit())


def test_a_seeded_release_is_named_as_such() -> None:
    assert "seeded noise" in noted(sample_audit("empirical"))
    assert "seed" not in noted(sample_audit())


def test_attacks_of_other_families_are_not_hidden() -> None:
    text = noted(sample_audit())
    assert "probe 61.2 % (AUC, chance 50.0 %)" in text
    assert "candidates 34.0 % (top-1, chance 0.1 %)" in text
    record = sample_audit("at-chance")
    record["attacks"].append(attack("coin", "probe", figure("AUC", 0.505, 0.9, 0.5)))
    assert "probe" not in noted(record)


def test_a_family_without_chance_is_not_hidden_either() -> None:
    record = sample_audit("at-chance")
    record["attacks"].append(
        attack("w", "reconstruction", figure("cosine", 0.8, 0.9, 0) | {"chance": None})
    )
    assert "reconstruction 80.0 % (cosine, chance not stated)" in noted(record)


def test_status_of_every_attack() -> None:
    audit = parse(sample_audit())
    assert {a.name: status(a.figure) for a in audit.attacks} == {
        "linear": "above chance, below clean",
        "mlp-adaptive": "above chance, below clean",
        "mlc-published": "at chance within its interval, below clean",
        "logistic-probe": "above chance, below clean",
        "nearest-candidate": "above chance, below clean",
        "wiener": "above chance, below clean",
    }


def test_nothing_is_compared_with_what_is_missing() -> None:
    record = sample_audit()
    record["attacks"][5] |= {"chance": None, "clean": None, "clean_low": None, "clean_high": None}
    lonely = parse(record).attacks[5].figure
    assert (against_chance(lonely), against_clean(lonely), status(lonely)) == ("", "", "")


def test_what_could_not_be_measured_is_called_so() -> None:
    record = sample_audit()
    record["attacks"][3] |= {"value": None, "low": None, "high": None}
    assert status(parse(record).attacks[3].figure) == "not measurable on these texts"
    assert "probe" not in noted(record)
