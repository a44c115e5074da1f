"""`vecveil.audit` from end to end on a small problem with an encoder that is all arithmetic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vecveil
from harness.errors import raises
from vecveil.auditing import AuditResult
from vecveil.auditing.attacks import FAMILIES, LinearAttack, text_groups
from vecveil.auditing.auditor import check_options
from vecveil.auditing.case import make_case
from vecveil.auditing.metrics import SimilarityTask
from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.report import render_audit
from vecveil.errors import DataFileError, InvalidInputError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_audits")]
DRUGS = ["aspirin", "codeine", "heparin", "insulin", "lithium", "metformin"]
TOPICS = ["knee", "heart", "sleep", "skin", "travel", "music", "garden", "school"]
N_DIM = 24


class TopicEncoder:
    """The mean of one fixed direction per word: linear, deterministic, without a model."""

    name = "topic-encoder"
    fingerprint = "topic-encoder-1"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([np.sum([self._word(w) for w in text.split()], axis=0) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    @cache
    def _word(word: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        weight = 1.5 if word in TOPICS else 1.0 if word in DRUGS else 0.1
        return weight * np.random.default_rng(seed).standard_normal(N_DIM)


def notes(rows: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    texts = []
    for i in range(rows):
        words = ["note", str(i + 10_000 * seed), "about", rng.choice(TOPICS), rng.choice(TOPICS)]
        if i % 3:
            words += ["takes", *rng.choice(DRUGS, size=rng.integers(1, 3), replace=False)]
        texts.append(" ".join(str(w) for w in words))
    return texts


CONCEPT = vecveil.Concept.from_terms("drug", DRUGS)
OPTIONS: dict[str, Any] = {"show_progress": False}


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    return vecveil.fit(
        notes(900, 1),
        CONCEPT,
        TopicEncoder(),
        rank=6,
        kept=14,
        flattening=0.0,
        pairs=False,
        noise_to_signal=0.3,
        **OPTIONS,
    )


@pytest.fixture(scope="module")
def result(protector: vecveil.Protector) -> AuditResult:
    return vecveil.audit(protector, notes(600, 2), CONCEPT, **OPTIONS)


def test_the_record_draws_its_page(result: AuditResult) -> None:
    page = render_audit(result.to_record())
    assert page.startswith("<!doctype html>")
    assert "drug" in page
    assert not [term for term in DRUGS if term in page]


def test_the_record_counts_right(result: AuditResult) -> None:
    record = result.to_record()
    assert record["schema"] == "vecveil.audit/2"
    assert record["texts"]["total"] == 600
    assert record["texts"]["with_concept"] == 400
    assert record["texts"]["without_concept"] == 200
    assert record["texts"]["emptied"] == 0
    assert record["texts"]["vocabulary"] == 6
    split = record["split"]
    assert split["train"] + split["validation"] + split["test"] == 400
    assert split["test"] == pytest.approx(120, abs=3)
    assert record["parameters"]["epsilon"] > 0
    assert record["parameters"]["rank"] == 6
    assert record["encoder"]["fingerprint"] == "topic-encoder-1"
    assert record["randomness"] == "seeded"
    assert record["guarantee"]["kind"] == "formal"
    assert set(record["utility"]) >= {"similarity", "similarity_rank", "neighbours"}
    counts = [term["count"] for term in record["terms"]]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == record["attacks"][0]["n"]


def test_the_planted_leak_is_found_on_clean_vectors_and_erased_after(result: AuditResult) -> None:
    """The concept is linear in the clean vectors: chance is far below what is found there."""
    worst = result.worst
    ladder = [a for a in result.record["attacks"] if a["family"] == "token-inference"]
    clean = max(attack["clean"] for attack in ladder)
    assert clean > 0.8
    assert worst["chance"] < 0.45
    assert worst["value"] < clean - 0.3
    assert worst["low"] <= worst["value"] <= worst["high"]


def test_worst_is_the_attack_with_the_highest_r_precision(result: AuditResult) -> None:
    record = result.to_record()
    names = [a["name"] for a in record["attacks"]]
    assert len(set(names)) == len(names)
    ladder = [a for a in record["attacks"] if a["family"] == "token-inference"]
    assert len(ladder) == 4
    assert all(a["metric"] == "R-precision" for a in ladder)
    assert result.worst["value"] == max(a["value"] for a in ladder)
    assert all(a["adaptive"] for a in ladder)
    curve = record["learning_curve"]
    assert curve[-1]["value"] == result.worst["value"]
    assert [point["texts"] for point in curve] == sorted(point["texts"] for point in curve)
    assert record["forecast"] is None or record["forecast"]["texts"] == 10 * curve[-1]["texts"]


def test_every_family_has_its_verdict_or_a_reason(result: AuditResult) -> None:
    record = result.to_record()
    values = {(a["family"], a["name"]): a["over_chance"] for a in record["attacks"]}
    verdicts = {each["family"]: each["worst"] for each in record["families"]}
    for family, name in verdicts.items():
        assert values[family, name] == max(v for (f, _), v in values.items() if f == family)
    missing = {each["family"] for each in record["skipped"]}
    assert verdicts.keys() | missing == set(FAMILIES)
    # Reconstruction is for tier full, and no word of these notes is rare.
    assert set(verdicts) == set(FAMILIES) - {"reconstruction", "whole-vocabulary"}
    assert all(each["reason"] for each in record["skipped"])
    assert all(isinstance(a["cost"], str) and a["cost"] for a in record["attacks"])


def test_leakage_is_also_given_relative_to_chance(result: AuditResult) -> None:
    for attack in result.record["attacks"]:
        for value, over in (("value", "over_chance"), ("clean", "clean_over_chance")):
            share = (attack[value] - attack["chance"]) / (1 - attack["chance"])
            assert attack[over] == pytest.approx(share)


def named(result: AuditResult) -> dict[str, dict[str, Any]]:
    return {attack["name"]: attack for attack in result.record["attacks"]}


def test_the_probe_finds_the_concept_on_clean_vectors(result: AuditResult) -> None:
    probe = named(result)["probe-linear"]
    assert probe["metric"] == "AUC"
    assert probe["clean"] > 0.95 > probe["value"]


def test_membership_is_certain_on_clean_vectors(result: AuditResult) -> None:
    membership = named(result)["membership"]
    assert membership["metric"] == "AUC"
    assert membership["clean"] > 0.95
    assert membership["clean"] >= membership["value"] >= 0.5


def test_terms_that_the_fit_was_not_told_of_stay_readable(result: AuditResult) -> None:
    """Each drug has a direction of its own here: erasing three of them cannot hide the others."""
    found = named(result)
    unlisted = found["unlisted-linear"]
    listed = next(a for a in unlisted["also"] if a["metric"] == "R-precision of listed words")
    assert unlisted["value"] - unlisted["chance"] > listed["value"] - listed["chance"] + 0.2


def test_shuffling_is_undone_with_a_few_known_texts() -> None:
    shuffled = vecveil.fit(notes(300, 1), CONCEPT, TopicEncoder(), method="shuffle", **OPTIONS)
    found = vecveil.audit(shuffled, notes(600, 2), CONCEPT, skip=["probe", "candidates"], **OPTIONS)
    attack = named(found)["alignment-permutation"]
    assert attack["value"] > 0.95
    assert not attack["adaptive"]
    codes = {each["attack"]: each["code"] for each in found.record["skipped"]}
    assert codes["averaging-16-keyed"] == "no-noise"
    assert codes["unlisted-kernel"] == "not-fitted"


def test_families_can_be_left_out_and_tasks_of_one_key_are_numbered(protector: vecveil.Protector) -> None:
    rest = [family for family in FAMILIES if family != "token-inference"]
    texts = notes(300, 2)
    task = SimilarityTask.of(TopicEncoder().encode(texts))
    found = vecveil.audit(protector, texts, CONCEPT, skip=rest, tasks=[task, task], **OPTIONS)
    assert {attack["family"] for attack in found.record["attacks"]} == {"token-inference"}
    left_out = {each["family"] for each in found.record["skipped"] if each["code"] == "left-out"}
    assert left_out == set(rest)
    measures = [key for key in found.record["utility"] if key.startswith("similarity")]
    assert measures == ["similarity", "similarity_rank", "similarity_2", "similarity_3"]
    render_audit(found.to_record())


def test_attacks_are_named_one_by_one(protector: vecveil.Protector) -> None:
    names = ["linking", "linking-anchors", "linking-groups", "zero-shot"]
    texts = notes(300, 2)
    found = vecveil.audit(protector, texts, CONCEPT, attacks=names, groups=[i // 2 for i in range(300)], **OPTIONS)
    attacks = {each["name"]: each for each in found.record["attacks"]}
    assert {name for name, each in attacks.items() if each["family"] != "token-inference"} == set(names)
    codes = {each["attack"]: each["code"] for each in found.record["skipped"]}
    assert codes["decoys-cosine"] == codes["geia"] == codes["averaging"] == "left-out"
    # The number in each text sets it apart, and clean stores hold equal rows.
    assert attacks["linking"]["clean"] > 0.9
    assert attacks["linking"]["chance"] < attacks["linking"]["value"] < attacks["linking"]["clean"]
    assert attacks["linking"]["adaptive"]
    assert attacks["zero-shot"]["clean"] > attacks["zero-shot"]["chance"]
    assert "trigram model of" in attacks["zero-shot"]["description"]
    with raises("E-INPUT-NAME", "attacks"):
        vecveil.audit(protector, texts, CONCEPT, attacks=["decoys"], **OPTIONS)


def test_words_on_no_list_are_attacked_beside_the_listed_ones(protector: vecveil.Protector) -> None:
    texts = [f"{text} w{i * i % 71}" for i, text in enumerate(notes(400, 2))]
    found = vecveil.audit(protector, texts, CONCEPT, attacks=["whole-vocabulary"], **OPTIONS)
    (attack,) = (each for each in found.record["attacks"] if each["family"] == "whole-vocabulary")
    assert attack["metric"] == "R-precision of words on no list"
    assert [also["metric"] for also in attack["also"]] == ["R-precision of every word"]
    assert attack["adaptive"]
    assert attack["clean"] is not None
    assert 0 < attack["chance"] < attack["also"][0]["chance"]


def test_no_attack_on_rewritten_texts_is_left_out_for_want_of_a_protector() -> None:
    redact = vecveil.fit(notes(300, 1), CONCEPT, TopicEncoder(), method="redact", **OPTIONS)
    found = vecveil.audit(redact, notes(400, 2), CONCEPT, **OPTIONS)
    assert "linking" in named(found)
    codes = {each["attack"]: each["code"] for each in found.record["skipped"]}
    assert codes["averaging-16"] == "equal-releases"
    assert "no-oracle" not in codes.values()


def test_the_record_says_how_many_further_texts_were_learnt_from(protector: vecveil.Protector, tmp_path: Path) -> None:
    rest = [family for family in FAMILIES if family != "token-inference"]
    far = [f"sailors carry {drug} {i}" for i, drug in enumerate(3 * DRUGS)]
    (tmp_path / "far.txt").write_text("\n".join([*far, "nothing of the kind", ""]), encoding="utf-8")
    for given, said, warnings in (
        (
            tmp_path / "far.txt",
            "Of 19 further texts of the attacker, token inference learnt from 18: it leaves out",
            [],
        ),
        (
            ["nothing of the kind"],
            "Of 1 further texts of the attacker, token inference learnt from 0",
            ["attacker-texts"],
        ),
    ):
        found = vecveil.audit(protector, notes(300, 2), CONCEPT, skip=rest, attacker_texts=given, **OPTIONS).record
        assert [each["code"] for each in found["lint"]] == warnings
        assert said in " ".join([*found["limits"], *(each["message"] for each in found["lint"])])


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    record = json.loads(json.dumps(record))
    for key in ("created", "seconds"):
        del record[key]
    for attack in record["attacks"]:
        del attack["seconds"]
    return record


def test_saved_and_loaded_it_is_the_same(result: AuditResult, tmp_path: Path) -> None:
    result.save(tmp_path / "audit.json")
    again = AuditResult.load(tmp_path / "audit.json")
    assert again.to_record() == result.to_record()
    assert str(again) == str(result)
    again.to_html(tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text("utf-8") == render_audit(result.to_record())


def test_the_same_seed_gives_the_same_record_with_its_terms_only_if_asked_for(
    protector: vecveil.Protector, result: AuditResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "audit.json")
    hidden = (tmp_path / "audit.json").read_text("utf-8") + repr(result) + str(result)
    assert not [term for term in DRUGS if term in hidden]
    shown = vecveil.audit(protector, notes(600, 2), CONCEPT, show_terms=True, **OPTIONS)
    record = without_times(shown.to_record())
    assert {term["term"] for term in record["terms"]} == set(DRUGS)
    record["terms"] = [each | {"term": None} for each in record["terms"]]
    assert record == without_times(result.to_record())


def test_embeddings_in_place_of_an_encoder(protector: vecveil.Protector, result: AuditResult, tmp_path: Path) -> None:
    protector.save(tmp_path / "p")
    loaded = vecveil.load(tmp_path / "p")
    texts = notes(600, 2)
    X = TopicEncoder().encode(texts)
    rest = ["probe", "averaging", "alignment"]  # need no texts
    found = vecveil.audit(loaded, texts, CONCEPT, embeddings=X, skip=rest, **OPTIONS)
    record = found.to_record()
    kept = {attack["name"]: attack["value"] for attack in record["attacks"]}
    assert kept.items() <= {a["name"]: a["value"] for a in result.record["attacks"]}.items()
    missing = {each["attack"] for each in record["skipped"]}  # what needs an encoder
    assert {"substitution-cosine", "unlisted-kernel"} <= missing
    with raises("E-INPUT", "encoder"):
        vecveil.audit(loaded, texts, CONCEPT, **OPTIONS)  # an encoder of one's own has no name

    class Other(TopicEncoder):
        fingerprint = "another"

    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        vecveil.audit(loaded, texts, CONCEPT, encoder=Other(), **OPTIONS)


def test_reduced_releases_are_audited_in_their_own_dimension() -> None:
    reduced = vecveil.fit(
        notes(600, 1),
        CONCEPT,
        TopicEncoder(),
        rank=6,
        kept=10,
        flattening=0.5,
        pairs=True,
        noise_to_signal=0.5,
        output="reduced",
        **OPTIONS,
    )
    rest = ["probe", "averaging", "alignment"]
    found = vecveil.audit(reduced, notes(300, 2), CONCEPT, skip=rest, **OPTIONS)
    assert found.record["parameters"]["released_dimension"] == 10
    codes = {each["attack"]: each["code"] for each in found.record["skipped"]}
    assert codes["decoys-norm"] == codes["substitution-norm"] == "other-dimension"
    assert "decoys-likelihood" in named(found)
    render_audit(found.to_record())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tier": "huge"}, "`tier`"),
        ({"seed": -1}, "`seed`"),
        ({"seed": 2**70}, "`seed`"),
        ({"groups": [1]}, "`groups`"),
        ({"embeddings": np.zeros((5, N_DIM))}, "`embeddings`"),
        ({"min_token_count": 0}, "`min_token_count`"),
        ({"skip": ["token-inference"]}, "`skip`"),
        ({"skip": "probe"}, "`skip`"),
        ({"device": "abacus"}, "`device`"),
        ({"attacker_texts": [1]}, "`attacker_texts`"),
    ],
)
def test_bad_arguments(protector: vecveil.Protector, options: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        vecveil.audit(protector, notes(120, 2), CONCEPT, **OPTIONS, **options)


def test_embeddings_of_another_dimension(protector: vecveil.Protector) -> None:
    with raises("E-INCOMPATIBLE", "embeddings"):
        vecveil.audit(protector, notes(60, 2), CONCEPT, embeddings=np.zeros((60, 3)), **OPTIONS)


def test_too_few_texts(protector: vecveil.Protector) -> None:
    with raises("E-CONCEPT-FEW", "texts"):
        vecveil.audit(protector, notes(24, 2), CONCEPT, **OPTIONS)
    with raises("E-CONCEPT", "texts"):
        vecveil.audit(protector, notes(60, 2), CONCEPT, **OPTIONS)
    with raises("E-CONCEPT", "texts"):
        vecveil.audit(protector, notes(300, 2), CONCEPT, min_token_count=10_000, **OPTIONS)
    with raises("E-CONCEPT-NO-MATCH", "texts"):
        vecveil.audit(protector, ["no such word"] * 300, CONCEPT, **OPTIONS)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"schema": "x/9"}', "[" * 10**5])
def test_a_file_that_is_no_audit_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with raises("E-DATA-FILE", "path"):
        AuditResult.load(tmp_path / "a.json")
    with pytest.raises(DataFileError):
        AuditResult.load(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"skip": None}, "`skip`"),
        ({"skip": [["probe"]]}, "`skip`"),
        ({"work": 5}, "`work`"),
        ({"groups": [[1]] * 120}, "`groups`"),
        ({"embeddings": np.ones((120, N_DIM))}, "differ"),
    ],
)
def test_arguments_of_the_wrong_kind(protector: vecveil.Protector, options: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        vecveil.audit(protector, notes(120, 2), CONCEPT, **OPTIONS, **options)


def test_things_that_are_no_protector_and_no_concept(protector: vecveil.Protector) -> None:
    texts: Any = notes(60, 2)
    nothing: Any = None
    with raises("E-INPUT", "protector"):
        vecveil.audit(nothing, texts, CONCEPT, **OPTIONS)
    with raises("E-INPUT", "concept"):
        vecveil.audit(protector, texts, nothing, **OPTIONS)


def test_a_work_folder_that_cannot_be_is_refused_before_anything_is_run(
    protector: vecveil.Protector, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for work in (tmp_path / "file", tmp_path / "file" / "below"):
        with raises("E-INPUT", "work"):
            vecveil.audit(protector, notes(120, 2), CONCEPT, work=work, **OPTIONS)


def test_two_groups_are_too_few(protector: vecveil.Protector) -> None:
    ids = [i % 2 for i in range(300)]
    with raises("E-CONCEPT", "groups"):
        vecveil.audit(protector, notes(300, 2), CONCEPT, groups=ids, **OPTIONS)


@pytest.mark.parametrize("method", ["subspace", "covariance", "sparse"])
def test_methods_that_look_at_words_can_be_fitted_on_half_of_them(method: str) -> None:
    small: dict[str, Any] = {
        "subspace": {"rank": 6, "kept": 12, "flattening": 0.0, "pairs": True},
        "covariance": {},
        "sparse": {"epochs": 2},
    }[method]
    texts = notes(900, 1)
    fitted = vecveil.fit(texts[:450], CONCEPT, TopicEncoder(), method=method, noise_to_signal=0.3, **small, **OPTIONS)
    rest = ["probe", "candidates", "averaging", "alignment", "reconstruction"]
    found = vecveil.audit(fitted, texts[450:], CONCEPT, skip=rest, **OPTIONS)
    assert {"unlisted-linear", "unlisted-kernel"} <= named(found).keys()


def test_criteria_of_anonymity_by_text_and_by_subject(
    protector: vecveil.Protector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecveil.auditing.families.ladder_attacks", lambda *given, **named: (LinearAttack(),))
    texts = notes(600, 2)
    subjects = [None if i % 50 == 0 else f"subject {i // 4}" for i in range(600)]
    some = ["probe", "averaging", "alignment", "held-out-terms"]
    result = vecveil.audit(protector, texts, CONCEPT, subjects=subjects, skip=some, **OPTIONS)
    record = AuditRecord.read(json.loads(json.dumps(result.to_record())), owner="test")
    assert record.anonymity is not None
    assert record.split.unit == "subject"
    assert record.split.groups <= 162  # 150 subjects and 12 texts of no person: no subject is on both sides
    criteria = {each.criterion: each for each in record.anonymity.criteria}
    assert list(criteria) == ["singling-out", "linkability", "inference"]
    units = {name: [figure.unit for figure in each.figures] for name, each in criteria.items()}
    assert units["singling-out"] == ["text", "subject"]
    assert units["inference"] == ["text", *3 * ["subject"]]
    found, by_subject = criteria["singling-out"].figures
    # Noise hides which text a row is of; clean vectors show it. One right row of a subject's finds the subject.
    assert found.clean == 1.0 == by_subject.clean
    assert by_subject.value == pytest.approx(1 - (1 - found.value) ** 4, abs=0.05)  # four texts of each subject
    read = criteria["inference"].figures[1]
    assert read.metric == "subjects with a word read"
    assert read.n <= record.anonymity.subjects < 150
    assert read.clean == 1.0
    assert read.low < read.chance < read.high  # chance is high: one of four texts' words is easily guessed
    assert "subjects with a word read" in result.summary()
    assert max(map(len, result.summary().splitlines())) <= 80
    # An edited record may name no attack.
    old = json.loads(json.dumps(result.to_record()))
    criterion = old["anonymity"]["criteria"][0]
    assert criterion["missing"] is None
    criterion["figures"][0]["attack"] = "nothing"
    with raises("E-INPUT"):
        AuditRecord.read(old, owner="test")


@pytest.mark.parametrize("missing", [None, "", float("nan"), pd.NA])
def test_a_text_without_an_id_is_of_no_group_and_no_subject(missing: Any) -> None:
    texts = notes(300, 2)
    ids = [missing if i % 3 else i // 6 for i in range(300)]
    matches = CONCEPT.find(texts)
    alone, given, subjects = (
        make_case(matches, check_options(texts, {name: value}, owner="test"), embeddings=None, encode=None)
        for name, value in (("groups", range(300)), ("groups", ids), ("subjects", ids))
    )
    pairs = text_groups(texts, [i // 6 if i % 3 == 0 else -i for i in range(300)])
    assert given.groups.tolist() == subjects.groups.tolist() == pairs.tolist()
    assert alone.groups.max() > given.groups.max()
    assert subjects.subjects is not None
    assert (subjects.subjects >= 0).tolist() == [i % 3 == 0 for i in range(300)]


def test_groups_and_subjects_exclude_each_other(protector: vecveil.Protector) -> None:
    texts = notes(30, 2)
    with raises("E-INPUT", param="subjects"):
        vecveil.audit(protector, texts, CONCEPT, groups=texts, subjects=texts, **OPTIONS)
