"""Audits of a store: vectors and texts, and nothing that protects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from unit.auditing.test_audit import CONCEPT, DRUGS, OPTIONS, TopicEncoder, notes
from vecveil.auditing.auditor import clean_vectors, plaintext_beside
from vecveil.auditing.report import render_audit

pytestmark = pytest.mark.usefixtures("quick_audits")
TEXTS = notes(600, 2)
X = TopicEncoder().encode(TEXTS)


def named(result: vecveil.AuditResult) -> dict[str, dict[str, Any]]:
    return {attack["name"]: attack for attack in result.record["attacks"]}


@pytest.fixture(scope="module")
def bare() -> vecveil.AuditResult:
    return vecveil.audit_store(X, TEXTS, CONCEPT, **OPTIONS)


def test_clean_vectors_give_the_words_away(bare: vecveil.AuditResult) -> None:
    record = bare.record
    assert record["kind"] == "store"
    assert record["method"] is record["guarantee"] is None
    assert bare.worst["value"] > 0.8
    assert bare.worst["clean"] is None
    assert not any(attack["adaptive"] for attack in record["attacks"])
    assert {each["attack"] for each in record["skipped"]} >= {
        "decoys-cosine",
        "decoys-norm",
        "alignment-ridge",
        "averaging-16",
        "unlisted-kernel",
    }
    page = render_audit(bare.to_record())
    assert not [term for term in DRUGS if term in page + str(bare) + repr(bare)]


@pytest.mark.slow
def test_with_the_encoder_the_clean_side_stands_beside() -> None:
    store = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    found = vecveil.audit_store(store, TEXTS, CONCEPT, encoder=TopicEncoder(), **OPTIONS)
    worst = found.worst
    assert worst["clean"] > worst["value"] > worst["chance"]
    assert {"decoys-cosine", "substitution-likelihood", "alignment-ridge"} <= named(found).keys()
    assert found.record["lint"] == []


def test_a_store_moved_by_a_fixed_norm_gives_its_texts_away() -> None:
    """However far: at norm 5 neither cosine nor likelihood names the text of a unit vector."""
    moves = np.random.default_rng(0).standard_normal(X.shape)
    store = (X + 5 * moves / np.linalg.norm(moves, axis=1, keepdims=True)).astype(np.float32)
    rest = ["probe", "averaging", "alignment", "reconstruction", "held-out-terms"]
    result = vecveil.audit_store(store, TEXTS, CONCEPT, encoder=TopicEncoder(), skip=rest, **OPTIONS)
    found = named(result)
    for what in ("decoys", "substitution"):
        assert found[f"{what}-norm"]["value"] > 0.95
        assert max(found[f"{what}-{how}"]["value"] for how in ("cosine", "likelihood")) < 0.5
    verdicts = {each["family"]: each["worst"] for each in result.record["families"]}
    assert verdicts["candidates"].endswith("-norm")
    assert "decoys-norm" in render_audit(result.to_record())


@pytest.mark.slow
def test_vectors_that_nobody_protected_are_named() -> None:
    found = vecveil.audit_store(X, TEXTS, CONCEPT, encoder=TopicEncoder(), **OPTIONS)
    assert [each["code"] for each in found.record["lint"]] == ["vectors-not-protected"]
    render_audit(found.to_record())


@pytest.mark.slow
def test_a_store_of_another_dimension_than_the_encoder() -> None:
    store = X @ np.random.default_rng(1).standard_normal((X.shape[1], 9)).astype(np.float32)
    found = vecveil.audit_store(store, TEXTS, CONCEPT, encoder=TopicEncoder(), **OPTIONS)
    assert found.record["parameters"] == {"dimension": X.shape[1], "released_dimension": 9}
    assert named(found)["alignment-ridge"]["value"] > 0.5


def test_nothing_is_found_in_noise() -> None:
    """Null: vectors are drawn without the texts. Power: the tests above, on the vectors of the texts."""
    noise = np.random.default_rng(3).standard_normal((len(TEXTS), 12))
    worst = vecveil.audit_store(noise, TEXTS, CONCEPT, **OPTIONS).worst
    assert worst["value"] < worst["chance"] + 0.17  # 200 words or so: 5 standard errors


def test_bad_stores() -> None:
    with raises("E-INPUT", "vectors"):
        vecveil.audit_store(X[:-1], TEXTS, CONCEPT, **OPTIONS)
    bad = X.copy()
    bad[3, 4] = np.nan
    with raises("E-INPUT-FINITE", "vectors"):
        vecveil.audit_store(bad, TEXTS, CONCEPT, **OPTIONS)
    with raises("E-CONCEPT-NO-MATCH", "texts"):
        vecveil.audit_store(X, ["nothing"] * 600, CONCEPT, **OPTIONS)


def test_the_lint_tells_texts_from_names_and_codes() -> None:
    columns = {
        "body": TEXTS[:50],
        "city": ["Lisbon", "New York"] * 25,
        "code": ["A-1"] * 50,
        "rare": [None] * 49 + ["one text of several words"],
        "number": list(range(50)),
    }
    warned = plaintext_beside(columns)
    assert [each["code"] for each in warned] == ["plaintext-beside-vectors"]
    assert "'body'" in warned[0]["message"]
    assert not [text for text in TEXTS[:50] if text in warned[0]["message"]]
    assert clean_vectors(X, None) == clean_vectors(X, X[:, :3]) == clean_vectors(X, X[::-1]) == []


def test_a_single_word_is_said_to_prove_nothing() -> None:
    """R-precision of one word is 1 for everybody: without the warning, chance would look like a leak."""
    one = vecveil.Concept.from_terms("drug", ["aspirin"])
    found = vecveil.audit_store(X, TEXTS, one, skip=["alignment", "averaging"], **OPTIONS)
    assert found.worst["value"] == found.worst["chance"] == 1.0
    assert [each["code"] for each in found.record["lint"]] == ["one-word"]
    assert named(found)["probe-linear"]["value"] > 0.8
    render_audit(found.to_record())


@pytest.mark.slow
def test_what_stands_beside_the_vectors_is_attacked_too() -> None:
    """A column that tells a word, as the length of a blob might, is found although the vectors are noise."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(X.shape).astype(np.float32)
    column = np.array([[float(len(text)), float(DRUGS[0] in text)] for text in TEXTS])
    rest = ["probe", "candidates", "averaging", "alignment", "reconstruction", "held-out-terms"]
    told = vecveil.audit_store(noise, TEXTS, CONCEPT, beside=column, skip=rest, **OPTIONS)
    constant = np.full((len(TEXTS), 1), 811.0)
    nothing = vecveil.audit_store(noise, TEXTS, CONCEPT, beside=constant, skip=rest, **OPTIONS)
    assert told.worst["name"].endswith("-beside")
    assert told.worst["value"] > nothing.worst["value"]
    assert not any(name.endswith("-beside") for name in named(nothing))
    # A log in which the rows of a drug are fetched together: read alone, and beside the vectors.
    accesses = np.array([[drug in text for drug in DRUGS for _ in range(3)] for text in TEXTS], dtype=np.float32)
    logged = vecveil.audit_store(noise, TEXTS, CONCEPT, accesses=accesses, skip=rest, **OPTIONS)
    assert named(logged)["access-patterns"]["value"] > 0.9
    assert named(logged)["linear-beside"]["value"] > nothing.worst["value"]
    with raises("E-INPUT", "accesses"):
        vecveil.audit_store(noise, TEXTS, CONCEPT, accesses=accesses[:-1], skip=rest, **OPTIONS)
    with raises("E-INPUT", "beside"):
        vecveil.audit_store(noise, TEXTS, CONCEPT, beside=column[:-1], skip=rest, **OPTIONS)
