"""The verdict says what the figures say, and nothing kinder."""

from __future__ import annotations

from typing import Any

import pytest

from harness.sample_attacks import attack, clean_of, figure, settle
from harness.sample_audit import sample_audit
from vecveil.records import AuditRecord
from vecveil.records.verdict import against_chance, against_clean, decide, standing, status
from vecveil.report import audit as words


def parse(record: dict[str, Any]) -> AuditRecord:
    return AuditRecord.read(record, owner="test")


def caveats(audit: AuditRecord) -> list[str]:
    return words.caveat_words(audit, decide(audit))


def said(record: dict[str, Any]) -> str:
    audit = parse(record)
    parts = words.sentence(audit, decide(audit))
    return "".join(part for _, part in parts).replace("\u00a0", " ")


def noted(record: dict[str, Any]) -> str:
    return " ".join(caveats(parse(record))).replace("\u00a0", " ")


def with_worst(**figures: float) -> dict[str, Any]:
    """Return a record whose only attack has the given figures."""
    record = sample_audit("one-attack")
    record["attacks"][0] |= figures
    return settle(record)


def others(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the words and notes on each other family."""
    others = decide(parse(settle(record))).others
    return {v.family: (v.words, " ".join(words._besides(v)).replace("\u00a0", " ")) for v in others}


def test_the_sentence_of_the_usual_case() -> None:
    assert said(sample_audit()) == (
        "The worst of 3 token-inference attacks, mlp-adaptive, recovered 22.9 % of concept tokens "
        "from protected vectors (95 % interval 21.4–24.4 %), against 72.7 % from clean ones "
        "(71.2–74.2 %); chance is 12.2 %, so it comes 12.2 % of the way from chance to certainty; "
        "utility kept is 71.2 % to 95.3 % of clean over 3 measures (lowest: Nearest neighbours); "
        "the guarantee is formal at ε = 1536, a bound that excludes little by itself."
    )


def test_it_is_one_sentence() -> None:
    for variant in (
        "formal",
        "empirical",
        "at-chance",
        "without-retrieval",
        "many-attacks",
        "store",
        "store-without-clean",
    ):
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


def test_how_far_it_is_from_chance_to_certainty_is_said_above_chance_only() -> None:
    assert "so it comes 12.2 % of the way" in said(sample_audit())
    assert "of the way" not in said(sample_audit("at-chance"))
    assert "of the way" not in said(with_worst(value=0.08, low=0.07, high=0.09))


def test_a_store_says_that_nothing_is_known_of_it() -> None:
    assert said(sample_audit("store")) == (
        "The worst of 3 token-inference attacks, mlp-adaptive, recovered 22.9 % of concept tokens "
        "from stored vectors (95 % interval 21.4–24.4 %), against 72.7 % from clean ones "
        "(71.2–74.2 %); chance is 12.2 %, so it comes 12.2 % of the way from chance to certainty; "
        "no guarantee is known of the store."
    )
    text = noted(sample_audit("store"))
    assert "does not say how these vectors were made" in text
    assert "the store comes without its protector" in text
    assert "protection" not in text


def test_without_a_clean_side_nothing_is_called_a_reduction() -> None:
    record = sample_audit("store-without-clean")
    assert "with no clean vectors to compare with; chance is 12.2 %" in said(record)
    assert "cannot show whether the stored vectors leak less" in noted(record)
    protector = sample_audit()
    protector["attacks"][1] = clean_of(protector["attacks"][1])
    assert "cannot show whether the protected vectors leak less" in noted(settle(protector))


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.72, "does not show that the stored vectors leak less"), (0.9, "leak more than clean ones")],
)
def test_a_store_that_leaks_as_much_as_clean_vectors(value: float, words: str) -> None:
    record = sample_audit("store")
    record["attacks"][1] |= {"value": value, "low": value - 0.015, "high": value + 0.015}
    assert words in noted(settle(record))


def test_another_metric_above_chance_is_not_hidden_behind_one_at_chance() -> None:
    record = sample_audit("at-chance")
    record["attacks"][0]["also"] = [figure("AUC", 0.61, 0.9, 0.5), figure("top-5", 0.3, 0.9, 0.3)]
    text = noted(record)
    assert "above chance all the same in: AUC of linear (61.0 %, chance 50.0 %)." in text
    assert "all the same" not in noted(sample_audit())


def test_every_other_family_is_compared_with_chance_and_clean() -> None:
    assert others(sample_audit()) == {
        family: ("above chance; below clean", "")
        for family in (
            "probe", "candidates", "averaging", "alignment", "reconstruction", "held-out-terms",
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (figure("AUC", 0.505, 0.9, 0.5), "at chance within its interval; below clean"),
        (figure("AUC", 0.4, 0.9, 0.5), "below chance; below clean"),
        (
            figure("AUC", 0.89, 0.9, 0.5),
            "above chance; not clearly below clean: the intervals overlap",
        ),
        (figure("AUC", 0.95, 0.9, 0.5), "above chance; above clean"),
        (figure("AUC", 0.95, 0.9, 0.5) | {"chance": None}, "chance not stated; above clean"),
        (clean_of(figure("AUC", 0.95, 0.9, 0.5)), "above chance; no clean side"),
        (
            figure("AUC", 0.95, 0.9, 0.5) | {"low": None, "high": None},
            "no interval, so no verdict; clean not comparable",
        ),
        (
            figure("AUC", 0.95, 0.9, 0.5) | dict.fromkeys(("value", "low", "high")),
            "not measurable on these texts",
        ),
    ],
)
def test_other_families_are_not_overstated(main: dict[str, Any], words: str) -> None:
    record = sample_audit("at-chance")
    record["attacks"].append(attack("coin", "probe", main))
    assert others(record) == {"probe": (words, "")}
    assert standing(parse(record).attacks[-1]) == words


def test_a_family_at_chance_names_what_is_above_it() -> None:
    record = sample_audit("at-chance")
    record["attacks"] += [
        attack(
            "ten",
            "candidates",
            figure("top-1 of 10", 0.105, 0.99, 0.1),
            also=[
                figure("MRR", 0.4, 0.99, 0.29),
                *(figure(f"top-{k}", 0.2 * k, 0.99, 0.1) for k in (4, 3, 2)),
            ],
        ),
    ]
    words, notes = others(settle(record))["candidates"]
    assert words.startswith("at chance within its interval")
    assert notes == (
        "Above chance all the same: top-4 of ten (80.0 %, chance 10.0 %); top-3 of ten (60.0 %, chance "
        "10.0 %); top-2 of ten (40.0 %, chance 10.0 %); and 1 more."
    )


def test_status_of_every_attack() -> None:
    audit = parse(sample_audit())
    assert {a.name: status(a) for a in audit.attacks} == {
        **{a.name: "above chance, below clean" for a in audit.attacks},
        "mlc-published": "at chance within its interval, below clean",
        "alignment-permutation": "at chance within its interval, below clean",
    }


def test_nothing_is_compared_with_what_is_missing() -> None:
    record = sample_audit()
    record["attacks"][3] |= {"chance": None, "clean": None, "clean_low": None, "clean_high": None}
    lonely = parse(settle(record)).attacks[3]
    assert (against_chance(lonely), against_clean(lonely), status(lonely)) == ("", "", "")


def test_what_could_not_be_measured_is_called_so() -> None:
    record = sample_audit()
    record["attacks"][3] |= {"value": None, "low": None, "high": None}
    assert status(parse(settle(record)).attacks[3]) == "not measurable on these texts"


def test_vectors_that_nothing_protects_are_not_called_unknown() -> None:
    record = sample_audit("store")
    assert "does not say how these vectors were made" in " ".join(caveats(parse(record)))
    record["lint"] = [{"code": "vectors-not-protected", "message": "Nothing protects them."}]
    found = " ".join(caveats(parse(record)))
    assert "These are the encoder's own vectors, which nothing protects" in found
    assert "does not say how" not in found
    assert "its protector" not in found


def test_a_store_names_the_attacks_that_want_the_encoder() -> None:
    record = sample_audit("store-without-clean")
    skipped = {"family": "candidates", "reason": "There are no clean vectors.", "code": "no-encoder"}
    record["skipped"] = [
        {"attack": "decoys-cosine", **skipped},
        {"attack": "averaging-4", **skipped, "reason": "Name an encoder.", "code": "no-oracle"},
    ]
    said = "Not run without the encoder: decoys-cosine. `--encoder NAME` runs them."
    assert said in caveats(parse(record))
    # A record of an earlier version, which has no code.
    record["skipped"].append(
        {"attack": "transplant", "family": "token-inference", "reason": "It needs an encoder."}
    )
    (found,) = [each for each in caveats(parse(record)) if each.startswith("Not run")]
    assert "transplant, which often finds most, if the vectors are that encoder's own" in found
    known = record | {"encoder": sample_audit()["encoder"]}
    assert not any(each.startswith("Not run") for each in caveats(parse(known)))
