"""The verdict says what the figures say, and nothing kinder."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
from msgspec import structs

from harness.sample_attacks import attack, clean_of, figure, settle
from harness.sample_audit import sample_audit
from vecveil.auditing.records import AuditRecord
from vecveil.auditing.records.audit_record import SEALED, LeakageFigure, LearningPoint
from vecveil.auditing.records.verdict import against_chance, against_clean, decide, grade, grade_ahead, standing, status
from vecveil.auditing.report import audit_page as words


def parse(record: dict[str, Any]) -> AuditRecord:
    return AuditRecord.read(record, owner="test")


def caveats(audit: AuditRecord) -> list[str]:
    return words.caveat_words(audit, decide(audit))


def said(record: dict[str, Any]) -> str:
    audit = parse(record)
    return words.worst_words(audit, decide(audit)).replace("\u00a0", " ")


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


def test_the_verdict_of_the_usual_case() -> None:
    verdict = decide(parse(sample_audit()))
    assert verdict.words == "Listed words: mostly hidden"
    assert verdict.sentence == (
        "Hides most, not all, of what vectors reveal about the listed words from attackers who do not know the text; "
        "does not hide the text from somebody who knows it, nor words of a text released again, "
        "nor words outside the list."
    )
    assert said(sample_audit()) == (
        "The strongest of 3 attacks on one release of a text, mlp-adaptive, recovered 22.9 % of the concept’s words "
        "from protected vectors (21.4–24.4 %), 72.7 % from clean ones (71.2–74.2 %); guessing finds 12.2 %. With "
        "ten times your texts (44,190) an attacker recovers about 23 % (21.9–23.9 %). The "
        "worst figure for these words: averaging-16 recovered 42.2 % (40.7–43.7 %) from several releases of one text."
    )


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (figure("R-precision", 0.12, 0.6, 0.12), "hidden"),
        # Few texts: the interval contains chance, and what clean vectors reveal.
        (figure("R-precision", 0.3, 0.6, 0.12, half=0.2), "unknown"),
        (figure("R-precision", 0.2, 0.6, 0.12), "most"),
        (figure("R-precision", 0.3, 0.6, 0.12), "part"),
        (figure("R-precision", 0.4, 0.6, 0.12), "little"),
        (figure("R-precision", 0.58, 0.6, 0.12), "not"),
        (figure("R-precision", 0.7, 0.6, 0.12), "not"),
        # The upper end of the interval decides: 0.23 alone would be mostly hidden.
        (figure("R-precision", 0.23, 0.6, 0.12, half=0.03), "part"),
        # What nobody reads from clean vectors cannot be hidden.
        (figure("R-precision", 0.12, 0.13, 0.12), "unknown"),
        (clean_of(figure("R-precision", 0.2, 0.6, 0.12)), "part"),
        (figure("R-precision", 0.2, 0.6, 0.12) | {"low": None, "high": None}, "unknown"),
    ],
)
def test_a_grade_is_that_of_the_less_favourable_end(main: dict[str, Any], expected: str) -> None:
    assert grade(LeakageFigure(**main)) == expected


@pytest.mark.parametrize(
    ("value", "ahead", "expected"),
    [
        (0.2, (0.22, 0.2, 0.24), "most"),
        (0.2, (0.22, 0.2, 0.3), "part"),  # 0.22 alone would be mostly hidden
        (0.2, (0.3, 0.25, 0.35), "part"),
        (0.2, (0.5, 0.4, 0.6), "little"),
        (0.2, None, "part"),
        (0.12, (0.13, 0.11, 0.2), "hidden"),
        (0.12, (0.14, 0.11, 0.2), "most"),
        (0.12, (0.2, 0.15, 0.25), "most"),
        (0.3, (0.5, 0.4, 0.6), "little"),
        (0.55, (0.4, 0.3, 0.5), "little"),
    ],
)
def test_the_verdict_is_read_at_ten_times_as_many_texts(
    value: float, ahead: tuple[float, float, float] | None, expected: str
) -> None:
    main = LeakageFigure(**figure("R-precision", value, 0.6, 0.12))
    point = None if ahead is None else LearningPoint(44190, *ahead)
    assert grade_ahead(grade(main), main, point) == expected


def test_the_report_names_the_point_that_the_verdict_uses() -> None:
    record = sample_audit("store")
    record["forecast"] |= {"value": 0.1, "high": 0.5}  # odds 1 : 9 and 1 : 1, halfway 1 : 3
    audit = parse(record)
    verdict = decide(audit)
    ahead = functools.partial(words.ahead_words, audit)
    # The upper end of the measured interval counts if it is higher; the report has it already.
    for high, said in ((0.244, "; the verdict uses 25\xa0%."), (0.4, ").")):
        worst = structs.replace(verdict.worst, high=high)
        assert ahead(dataclasses.replace(verdict, grade="part", worst=worst)).endswith(said)
    for unused in ("hidden", "not", "unknown"):
        assert "verdict" not in ahead(dataclasses.replace(verdict, grade=unused))
    record["parameters"]["mode"] = SEALED
    audit = parse(record)
    assert "verdict" not in words.ahead_words(audit, decide(audit))


def test_another_metric_above_chance_lowers_the_grade() -> None:
    record = sample_audit("at-chance")
    assert decide(parse(record)).grade == "hidden"
    record["attacks"][0]["also"] = [figure("AUC", 0.61, 0.9, 0.5)]
    assert decide(parse(record)).grade == "most"


def test_guarantees_are_two_lines_at_most() -> None:
    assert words.guarantee_words(parse(sample_audit()).guarantee) == [
        "ε = 1536 bounds what anybody can learn from one text (one released vector).",
        "At this size the bound excludes little: rely on the measured figures.",
    ]
    record = sample_audit()
    record["guarantee"]["epsilon_euclidean_worst"] = 2.0
    assert len(words.guarantee_words(parse(record).guarantee)) == 1  # a caveat says what the bound leaves out


def test_at_chance_within_the_interval() -> None:
    text = said(sample_audit("at-chance"))
    assert "12.5 % of the concept’s words" in text
    assert "(11.0–14.0 %), at chance within its interval" in text


def test_below_chance_is_not_called_at_chance() -> None:
    record = with_worst(value=0.08, low=0.07, high=0.09)
    assert "(7.0–9.0 %), below chance" in said(record)


def test_overlapping_intervals_are_no_reduction() -> None:
    record = with_worst(value=0.58, low=0.56, high=0.59, clean=0.60, clean_low=0.58, clean_high=0.62)
    assert decide(parse(record)).sentence == "Does not hide the listed words."
    assert "does not show that protection lowers leakage" in noted(record)


def test_intervals_that_touch_overlap() -> None:
    record = with_worst(value=0.57, low=0.56, high=0.58, clean=0.60, clean_low=0.58, clean_high=0.62)
    assert decide(parse(record)).grade == "not"
    record["attacks"][0]["high"] = 0.5799
    assert decide(parse(record)).grade == "little"


def test_more_leakage_than_clean_is_said() -> None:
    record = with_worst(value=0.7, low=0.69, high=0.71, clean=0.60, clean_low=0.58, clean_high=0.62)
    assert decide(parse(record)).grade == "not"
    assert "Leakage is higher with protection than without." in noted(record)


def test_an_attack_at_chance_on_clean_vectors_shows_nothing() -> None:
    record = with_worst(clean=0.13, clean_low=0.11, clean_high=0.15)
    assert "cannot show what protection changes" in noted(record)
    assert "cannot show what protection changes" not in noted(sample_audit())


@pytest.mark.parametrize("kind", ["empirical", "obfuscation"])
def test_no_formal_guarantee_is_said_twice(kind: str) -> None:
    record = sample_audit()
    record["guarantee"] |= {"kind": kind, "epsilon": None}
    (sentence,) = words.guarantee_words(parse(record).guarantee)
    assert sentence.startswith(f"There is no formal guarantee ({kind}): ")
    assert f"The protection is {kind}: nothing but these measurements supports it" in noted(record)
    assert "ε" not in sentence


def test_a_formal_guarantee_does_not_stand_for_the_leakage() -> None:
    assert "measured, not part of the guarantee: a stronger attack may recover more" in noted(sample_audit())


def test_attacks_that_do_not_adapt_are_named_as_such() -> None:
    assert "No token-inference attack was adaptive" in noted(sample_audit("empirical"))
    assert "adaptive" not in noted(sample_audit())


def test_a_seeded_release_is_named_as_such() -> None:
    assert "seeded noise" in noted(sample_audit("empirical"))
    assert "seed" not in noted(sample_audit())


def test_a_store_says_that_nothing_is_known_of_it() -> None:
    assert "22.9 % of the concept’s words from stored vectors" in said(sample_audit("store"))
    text = noted(sample_audit("store"))
    assert "does not say how these vectors were made" in text
    assert "the store comes without its protector" in text
    assert "protection" not in text


@pytest.mark.parametrize(
    ("name", "source"),
    [("access-patterns", "the log of queries"), ("kernel-beside", "stored vectors and the data stored with them")],
)
def test_what_a_log_or_lengths_tell_is_not_said_of_the_vectors(name: str, source: str) -> None:
    record = sample_audit("store-without-clean")
    worst = next(each for each in record["attacks"] if each["name"] == record["worst"])
    record["worst"] = worst["name"] = record["families"][0]["worst"] = name
    record = settle(record)
    assert f"of the concept’s words from {source} (" in said(record)
    assert f"an attacker recovers from {source}" in words.summary_table(record)


def test_without_a_clean_side_nothing_is_called_a_reduction() -> None:
    record = sample_audit("store-without-clean")
    assert "with no clean vectors to compare with; guessing finds 12.2 %" in said(record)
    assert "cannot show whether the stored vectors leak less" in noted(record)
    protector = sample_audit()
    protector["attacks"][1] = clean_of(protector["attacks"][1])
    assert "cannot show whether the protected vectors leak less" in noted(settle(protector))


@pytest.mark.parametrize(
    ("value", "words"), [(0.72, "does not show that the stored vectors leak less"), (0.9, "leak more than clean ones")]
)
def test_a_store_that_leaks_as_much_as_clean_vectors(value: float, words: str) -> None:
    record = sample_audit("store")
    record["attacks"][1] |= {"value": value, "low": value - 0.015, "high": value + 0.015}
    assert words in noted(settle(record))


def test_another_metric_above_chance_is_not_hidden_behind_one_at_chance() -> None:
    record = sample_audit("at-chance")
    record["attacks"][0]["also"] = [figure("AUC", 0.61, 0.9, 0.5), figure("top-5", 0.3, 0.9, 0.3)]
    text = noted(record)
    assert "Other figures of token inference are above chance: AUC of linear (61.0 %, chance 50.0 %)." in text
    assert "all the same" not in noted(sample_audit())


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (figure("AUC", 0.505, 0.9, 0.5), "at chance within its interval; below clean"),
        (figure("AUC", 0.4, 0.9, 0.5), "below chance; below clean"),
        (figure("AUC", 0.89, 0.9, 0.5), "above chance; not clearly below clean: the intervals overlap"),
        (figure("AUC", 0.95, 0.9, 0.5), "above chance; above clean"),
        (figure("AUC", 0.95, 0.9, 0.5) | {"chance": None}, "chance not stated; above clean"),
        (clean_of(figure("AUC", 0.95, 0.9, 0.5)), "above chance; no clean side"),
        (
            figure("AUC", 0.95, 0.9, 0.5) | {"low": None, "high": None},
            "no interval, so no verdict; clean not comparable",
        ),
        (figure("AUC", 0.95, 0.9, 0.5) | dict.fromkeys(("value", "low", "high")), "not measurable on these texts"),
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
            also=[figure("MRR", 0.4, 0.99, 0.29), *(figure(f"top-{k}", 0.2 * k, 0.99, 0.1) for k in (4, 3, 2))],
        )
    ]
    words, notes = others(settle(record))["candidates"]
    assert words.startswith("at chance within its interval")
    assert notes == (
        "Above chance all the same: top-4 of ten (80.0 %, chance 10.0 %); top-3 of ten (60.0 %, chance "
        "10.0 %); top-2 of ten (40.0 %, chance 10.0 %); and 1 more."
    )


def test_nothing_is_compared_with_what_is_missing() -> None:
    record = sample_audit()
    record["attacks"][3] |= {"chance": None, "clean": None, "clean_low": None, "clean_high": None}
    lonely = parse(settle(record)).attacks[3]
    assert (against_chance(lonely), against_clean(lonely), status(lonely)) == ("", "", "")


def test_vectors_that_nothing_protects_are_not_called_unknown() -> None:
    record = sample_audit("store")
    assert "does not say how these vectors were made" in " ".join(caveats(parse(record)))
    record["lint"] = [{"code": "vectors-not-protected", "message": "Nothing protects them."}]
    found = " ".join(caveats(parse(record)))
    assert "These are the encoder's own vectors, which nothing protects" in found
    assert "does not say how" not in found
    assert "its protector" not in found


def test_a_high_chance_level_is_explained() -> None:
    record = sample_audit()
    assert not any("Guessing finds" in each for each in caveats(parse(record)))
    worst = next(each for each in record["attacks"] if each["name"] == record["worst"])
    worst["chance"] = 0.4
    assert any(each.startswith("Guessing finds 40.0\u00a0%, because") for each in caveats(parse(settle(record))))


def test_a_store_names_the_attacks_that_want_the_encoder() -> None:
    record = sample_audit("store-without-clean")
    skipped = {"family": "candidates", "reason": "There are no clean vectors.", "code": "no-encoder"}
    record["skipped"] = [
        {"attack": "decoys-cosine", **skipped},
        {"attack": "averaging-4", **skipped, "reason": "Name an encoder.", "code": "no-oracle"},
    ]
    said = "Not run without the encoder: decoys-cosine. `--encoder NAME` runs them."
    assert said in caveats(parse(record))
    record["skipped"].append({"attack": "transplant", **skipped, "family": "token-inference"})
    (found,) = [each for each in caveats(parse(record)) if each.startswith("Not run")]
    assert "transplant, which often finds most, if the vectors are that encoder's own" in found
    known = record | {"encoder": sample_audit()["encoder"]}
    assert not any(each.startswith("Not run") for each in caveats(parse(known)))


def test_one_release_and_keyed_releases_are_no_repeated_releases() -> None:
    record = sample_audit("formal")
    averaging = {each["name"]: each for each in record["attacks"] if each["family"] == "averaging"}
    for name, each in averaging.items():
        value = 0.99 if name.endswith(("-1", "-keyed")) else 0.0
        each |= {"value": value, "low": value, "high": value}
    assert decide(parse(settle(record))).repeated is None
    averaging["averaging-16"] |= {"value": 0.98, "low": 0.98, "high": 0.98}
    repeated = decide(parse(settle(record))).repeated
    assert repeated is not None
    assert repeated.name == "averaging-16"
