"""A text stage before a method that protects vectors: what it rewrites, saves, refuses and reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil.auditing.attacks import LinearAttack
from vecveil.keys import KeyFile
from vecveil.privacy.concepts import Span
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.texts.encoders import LsaEncoder, load_encoder

DRUGS = ["aspirin", "codeine", "heparin", "insulin", "morphine", "warfarin"]
WORDS = [f"word{a}{b}" for a in "abcde" for b in "abcde"]
CONCEPT = vecveil.Concept.from_terms("drug", DRUGS)
HALF = vecveil.Concept.from_terms("some", DRUGS[:3])
FIXED: dict[str, Any] = {
    "noise_to_signal": 0.2,
    "rank": 4,
    "kept": 10,
    "flattening": 0.0,
    "pairs": True,
    "show_progress": False,
}


def texts_of(count: int = 300, seed: int = 0) -> list[str]:
    """Return texts, every second one with a drug and often with a word that goes with it."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = list(rng.choice(WORDS, size=6))
        if i % 2:
            drug = int(rng.integers(len(DRUGS)))
            words.insert(2, DRUGS[drug])
            words += [f"dose{drug}"] * int(rng.random() < 0.7)
        rows.append(" ".join(words))
    return rows


TEXTS = texts_of()


class Capitals:
    """A user's detector: words in capitals."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [
            [Span(text.index(word), text.index(word) + len(word), "CODE")]
            if (word := next((w for w in text.split() if w.isupper()), ""))
            else []
            for text in texts
        ]


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder(LsaEncoder.fit(texts_of(600, 1), 20), cache=None)


@pytest.fixture(scope="module")
def deleting(encoder: Any) -> vecveil.Protector:
    return vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="delete", **FIXED)


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "surrogates.keys"
    KeyFile.create(path, "one")
    return path


def test_what_the_detector_finds_is_deleted_before_the_text_is_encoded(
    deleting: vecveil.Protector, encoder: Any
) -> None:
    assert deleting.rewrite(["take Aspirin daily", "nothing", "codeine"]) == ["take daily", "nothing", "-"]
    texts = ["worda aspirin wordaa", "worda warfarin wordaa"]
    np.testing.assert_array_equal(*deleting.encode(texts, noise=False))
    X = encoder.encode(deleting.rewrite(texts))
    np.testing.assert_array_equal(deleting.encode(texts, 3), deleting.protect(X, 3, rewritten=True))
    assert deleting.map is not None
    assert deleting.released_noise_covariance().any()


def test_bare_vectors_are_refused(deleting: vecveil.Protector, encoder: Any) -> None:
    X, policy = encoder.encode(TEXTS[:3]), ReleasePolicy(deleting, query_noise=0)
    for call in (deleting.protect, policy.documents, policy.queries):
        with raises("E-INPUT-REWRITTEN", "X"):
            call(X)
    np.testing.assert_array_equal(policy.embed_queries(TEXTS[:3]), deleting.encode(TEXTS[:3], noise=False))


def test_the_map_learns_from_rewritten_texts_and_the_words_of_the_originals(
    deleting: vecveil.Protector, encoder: Any
) -> None:
    """The word beside each drug survives the rewriting: its directions are what the map erases."""
    assert deleting.map is not None
    beside = np.stack([encoder.encode([f"{w} dose{i}" for w in WORDS]).mean(axis=0) for i in range(6)])
    moved = beside - beside.mean(axis=0)
    plain = encoder.encode(WORDS)
    plain = plain - plain.mean(axis=0)
    left = [np.linalg.norm(X @ deleting.map.matrix.T) / np.linalg.norm(X) for X in (moved, plain)]
    assert left[0] < 0.6 * left[1]
    assert deleting.report["labels"] == 6


def test_hypernyms(encoder: Any) -> None:
    protector = vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="hypernym", **FIXED)
    assert protector.rewrite(["Aspirin helps", "the codeine"]) == ["a drug helps", "the drug"]
    named = vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="hypernym", hypernyms={"term": "a remedy"}, **FIXED)
    assert named.rewrite(["some aspirin", "it was aspirin"]) == ["some remedy", "it was a remedy"]
    assert named.fingerprint != protector.fingerprint
    with raises("E-CONCEPT", "hypernyms"):
        vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="hypernym", hypernyms={"term": "an aspirin"}, **FIXED)


def test_surrogates_are_keyed_and_never_the_term_itself(encoder: Any, key_file: Path, tmp_path: Path) -> None:
    options = {**FIXED, "rewrite": "surrogate"}
    protector = vecveil.fit(TEXTS, CONCEPT, encoder, surrogate_key=key_file, **options)
    written = [text.split()[1] for text in protector.rewrite([f"take {drug}" for drug in DRUGS])]
    assert sorted(written) == DRUGS  # different members, different surrogates
    assert all(drug != surrogate for drug, surrogate in zip(DRUGS, written, strict=True))
    assert protector.rewrite(["other words, ASPIRIN'S"])[0].startswith(f"other words, {written[0].upper()}")
    protector.save(tmp_path / "p.vecveil")
    saved = (tmp_path / "p.vecveil").read_bytes()
    key = KeyFile.from_file(key_file).key()
    assert key.secret_for_noise() not in saved
    assert str(key_file).encode() in saved
    assert vecveil.load(tmp_path / "p.vecveil").rewrite(["take codeine"]) == [f"take {written[1]}"]
    os.rename(key_file, tmp_path / "moved.keys")
    try:
        with raises("E-KEY-FILE", "path"):
            vecveil.load(tmp_path / "p.vecveil").rewrite(["take codeine"])
        moved = vecveil.load(tmp_path / "p.vecveil", surrogate_key=tmp_path / "moved.keys")
        assert moved.rewrite(["take codeine"]) == [f"take {written[1]}"]
        assert moved.fingerprint == protector.fingerprint
    finally:
        os.rename(tmp_path / "moved.keys", key_file)
    KeyFile.create(tmp_path / "other.keys", "one")
    other = vecveil.load(tmp_path / "p.vecveil", surrogate_key=tmp_path / "other.keys")
    with raises("E-KEY-FILE", "surrogate_key"):
        other.rewrite(["take codeine"])
    lists = {"term": ["alpha", "beta", "gamma"]}
    given = vecveil.fit(TEXTS, CONCEPT, encoder, surrogate_key=key, surrogates=lists, **options)
    assert given.rewrite(["aspirin"])[0] in lists["term"]


@pytest.mark.parametrize(
    ("param", "options"),
    [
        ("rewrite", {"rewrite": "shout"}),
        ("detector", {"detector": HALF}),
        ("hypernyms", {"rewrite": "delete", "hypernyms": {"term": "a thing"}}),
        ("hypernyms", {"rewrite": "hypernym", "hypernyms": ["a thing"]}),
        ("surrogate_key", {"rewrite": "surrogate"}),
        ("surrogates", {"rewrite": "delete", "surrogates": "faker"}),
        ("detector", {"rewrite": "delete", "detector": 3}),
        ("detector", {"rewrite": "delete", "detector": vecveil.Concept.from_spans("x", [[]] * 300)}),
        ("rewrite", {"rewrite": "delete", "method": "redact"}),
    ],
)
def test_arguments_are_checked_before_anything_is_encoded(param: str, options: dict[str, Any]) -> None:
    with raises("E-INPUT", param):
        vecveil.fit(TEXTS, CONCEPT, object(), **{**FIXED, **options})


def test_the_report_has_recall_and_cost(deleting: vecveil.Protector, encoder: Any) -> None:
    protector = vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="delete", detector=HALF, **FIXED)
    rewriting = protector.report["rewriting"]
    held = sum(any(drug in text for drug in DRUGS[:3]) for text in TEXTS)
    assert rewriting["rewritten"] == held
    recall = {"spans": 150, "found": held, "partly": 0, "recall": held / 150}
    assert rewriting["detector_recall"] == recall
    before, after = (rewriting["utility"][name]["similarity"]["relative"] for name in ("rewritten", "protected"))
    assert after < before < 1
    own = deleting.report["rewriting"]
    assert "detector_recall" not in own
    assert own["utility"]["rewritten"]["similarity"]["relative"] < before


def test_detectors_as_users_name_them(encoder: Any, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: code\nterms: [aspirin]\n", encoding="utf-8")
    for detector, text, written in (
        (tmp_path / "c.yaml", "aspirin now", "now"),
        (Capitals(), "the CODE now", "the now"),
    ):
        texts = [*TEXTS, f"CODE {TEXTS[0]}"]
        protector = vecveil.fit(texts, CONCEPT, encoder, rewrite="delete", detector=detector, **FIXED)
        assert protector.rewrite([text]) == [written]
        if isinstance(detector, Capitals):
            with raises("E-CONCEPT", "concept"):
                protector.save(tmp_path / "p.vecveil")
        else:
            protector.save(tmp_path / "p.vecveil")
            loaded = vecveil.load(tmp_path / "p.vecveil")
            assert loaded.rewrite([text]) == [written]
            assert loaded.fingerprint == protector.fingerprint
            assert os.stat(tmp_path / "p.vecveil").st_mode & 0o777 == 0o600


def test_detectors_that_find_nothing_or_all_are_refused(encoder: Any) -> None:
    class Everything:
        def detect(self, texts: Sequence[str]) -> list[list[Span]]:
            return [[Span(0, len(text), "TEXT")] for text in texts]

    for code, detector in (("E-CONCEPT-NO-MATCH", Capitals()), ("E-CONCEPT-WHOLE", Everything())):
        with raises(code, "detector"):
            vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="delete", detector=detector, **FIXED)


def test_labels_as_the_concept(encoder: Any) -> None:
    topics = vecveil.Concept.from_labels("topic", ["a" if i % 2 else "b" for i in range(300)])
    protector = vecveil.fit(
        TEXTS, topics, encoder, rewrite="delete", detector=CONCEPT, noise_to_signal=0.2, show_progress=False
    )
    assert protector.rewrite(["an aspirin"]) == ["an"]
    with raises("E-CONCEPT", "concept"):
        vecveil.fit(TEXTS, topics, encoder, rewrite="delete", noise_to_signal=0.2)


def test_sealed_search_is_calibrated_on_the_originals(encoder: Any) -> None:
    options: dict[str, Any] = {"utility": "sealed-search", "collection_size": 300, "show_progress": False}
    method: dict[str, Any] = {"method": "laplace", "epsilon": 1e6}
    kept = [
        vecveil.fit(TEXTS, CONCEPT, encoder, candidates=k, rewrite="delete", **method, **options).report["utility"][
            "sealed_search"
        ]["relative"]
        for k in (20, 300)
    ]
    # Without noise, rewriting alone loses neighbours among few candidates, and none where all are fetched.
    assert kept[0] < 0.95
    assert kept[1] == 1


def test_a_guarantee_names_both_stages(deleting: vecveil.Protector) -> None:
    guarantee = deleting.guarantee
    assert guarantee.kind == "formal"
    assert "the detector's spans become nothing" in guarantee.statement
    assert any("what the detectors miss" in sentence for sentence in guarantee.not_promised)


def test_audits_attack_protected_vectors_of_rewritten_texts(
    deleting: vecveil.Protector, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = "vecveil.auditing.families.ladder_attacks"
    monkeypatch.setattr(ladder, lambda *_, **__: (LinearAttack(),))
    texts = texts_of(500, 7)
    by_type = vecveil.Concept.from_patterns("drug", ["|".join(DRUGS)])
    typed = vecveil.fit(TEXTS, CONCEPT, encoder, rewrite="delete", detector=by_type, **FIXED)
    skip = ["averaging", "alignment", "probe", "candidates"]
    options: dict[str, Any] = {"skip": skip, "show_progress": False, "min_token_count": 5}
    unlisted = []
    for protector in (deleting, typed):
        record = vecveil.audit(protector, texts, CONCEPT, **options).to_record()
        attacks = {each["name"]: each for each in record["attacks"]}
        assert attacks["linear"]["clean"] > 0.9
        assert attacks["linear"]["value"] < 0.6
        assert attacks["linear"]["adaptive"]
        assert record["randomness"] == "seeded"
        assert record["utility"]["similarity"]["relative"] < 1
        unlisted.append(attacks["unlisted-linear"]["value"])
    # A list of half of the words leaves the others in the texts; a detector by type does not.
    assert unlisted[1] < unlisted[0]
