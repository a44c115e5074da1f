"""Text-level methods as protectors: they rewrite and encode, refuse vectors, are saved, and are audited."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from vecveil.auditing.attacks import KernelAttack, LinearAttack
from vecveil.errors import ProtectorFileError
from vecveil.privacy.protector import TEXT_METHODS
from vecveil.texts.encoders import LsaEncoder, load_encoder

DRUGS = ["aspirin", "codeine", "heparin", "insulin", "lithium", "zyxcanaryl"]
WORDS = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(6) for j in range(6)]
CONCEPT = vecveil.Concept.from_terms("drug", DRUGS)
NAMES = list(TEXT_METHODS)


def texts_of(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = list(rng.choice(WORDS, size=6))
        if i % 3:
            words.insert(int(rng.integers(6)), str(rng.choice(DRUGS)))
        rows.append(" ".join(map(str, words)))
    return rows


@pytest.fixture(scope="module")
def encoder() -> Any:
    return load_encoder(LsaEncoder.fit(texts_of(300, 0), 24), cache=None)


@pytest.fixture(scope="module")
def fitted(encoder: Any) -> dict[str, vecveil.Protector]:
    texts = texts_of(300, 0)
    return {name: vecveil.fit(texts, CONCEPT, encoder, method=name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_encode_rewrites_and_then_encodes(name: str, fitted: dict[str, vecveil.Protector], encoder: Any) -> None:
    protector, texts = fitted[name], texts_of(40, 1)
    written = protector.rewrite(texts)
    assert written[::3] == texts[::3]  # nothing is found in them
    changed = sum(a != b for a, b in zip(texts, written, strict=True))
    assert 15 < changed <= 26  # a member may by chance be the same
    if name != "replace-semantic":
        assert not any(drug in text for drug in DRUGS for text in written)
    np.testing.assert_array_equal(protector.encode(texts), encoder.encode(written))
    assert protector.dimension == protector.released_dimension == 24
    assert not protector.released_noise_covariance().any()
    report = protector.report
    assert report["texts"]["with_concept"] == 200
    assert 0.5 < report["utility"]["similarity"]["relative"] <= 1
    json.dumps(report, allow_nan=False)
    assert not any(drug in json.dumps(report) + repr(protector) for drug in DRUGS)


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_refused_with_the_reason(name: str, fitted: dict[str, vecveil.Protector]) -> None:
    protector = fitted[name]
    X = np.ones((3, 24), dtype=np.float32)
    for call in (lambda: protector.protect(X), lambda: protector.protect(X, 0, noise=False)):
        with raises("E-INPUT-REWRITTEN", "X"):
            call()
    np.testing.assert_array_equal(protector.protect(X, rewritten=True), X)
    rows = np.random.default_rng(0).standard_normal((30, 24))
    with raises("E-INPUT", "method"):
        vecveil.fit_pairs(rows, rows + 1, method=name)
    with raises("E-INPUT", "method"):
        vecveil.fit_labels(rows, ["a", "b"] * 15, method=name)


def test_other_methods_do_not_rewrite(encoder: Any) -> None:
    protector = vecveil.fit(texts_of(90, 0), CONCEPT, encoder, method="laplace", epsilon=50.0)
    with raises("E-INPUT", "method"):
        protector.rewrite(["a text"])


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1.0},
        {"noise_to_signal": 0.1},
        {"target_utility": 0.9},
        {"before": "normalise"},
        {"postprocess": "normalise"},
        {"output": "reduced"},
        {"utility": "neighbours"},
        {"delta": 1e-5},
        {"rank": 3},
        {"splits": 2},
        {"words": 5},
    ],
)
def test_what_a_vector_needs_is_refused(options: dict[str, Any], encoder: Any) -> None:
    with raises("E-INPUT", next(iter(options))):
        vecveil.fit(texts_of(60, 0), CONCEPT, encoder, method="redact", **options)


def test_keys_and_ledgers_are_refused(fitted: dict[str, vecveil.Protector]) -> None:
    for given in ({"ids": [1]}, {"noise": False}):
        with raises("E-INPUT", next(iter(given))):
            fitted["redact"].encode(["a text"], **given)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_formal_guarantee(name: str, fitted: dict[str, vecveil.Protector]) -> None:
    guarantee = fitted[name].guarantee
    assert guarantee.kind == "empirical"
    assert guarantee.epsilon is None
    text = str(guarantee)
    assert "no formal privacy guarantee" in text
    assert "what the detectors miss" in text
    assert "as plain text" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_protector_rewrites_the_same(name: str, fitted: dict[str, vecveil.Protector], tmp_path: Path) -> None:
    path, protector = tmp_path / "p.vecveil", fitted[name]
    protector.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = vecveil.load(path)
    texts = texts_of(50, 2)
    assert loaded.rewrite(texts) == protector.rewrite(texts)
    assert loaded.fingerprint == protector.fingerprint
    assert str(loaded.guarantee) == str(protector.guarantee)
    with raises("E-INPUT", "X"):
        loaded.protect(np.ones((1, 24)))
    # The record as it says of itself: the terms are in it, as plain text.
    assert b"aspirin" in path.read_bytes()


def test_a_changed_file_is_refused(fitted: dict[str, vecveil.Protector], tmp_path: Path) -> None:
    path = tmp_path / "p.vecveil"
    fitted["redact"].save(path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"aspirin", b"asparin"))
    with pytest.raises(ProtectorFileError) as caught:
        vecveil.load(path)
    assert "aspirin" not in str(caught.value)


def test_settings_are_in_the_fingerprint(fitted: dict[str, vecveil.Protector], encoder: Any) -> None:
    texts = texts_of(300, 0)
    other = vecveil.fit(texts, CONCEPT, encoder, method="replace-random", words=30, seed=4)
    assert other.report["parameters"] == {"words": 30}
    others = vecveil.Concept.from_terms("drug", [*DRUGS[:-1], "otherdrug"])
    renamed = vecveil.fit(texts, others, encoder, method="redact")
    assert len({p.fingerprint for p in (*fitted.values(), other, renamed)}) == 5
    again = vecveil.fit(texts, CONCEPT, encoder, method="redact")
    assert again.fingerprint == fitted["redact"].fingerprint
    given = vecveil.Concept.from_spans("drug", [list(row) for row in CONCEPT.detect(texts)])
    first, second = (vecveil.fit(texts, given, encoder, method="redact") for _ in range(2))
    assert first.fingerprint == first.fingerprint != second.fingerprint  # nothing is known of them


def test_members_from_faker_and_from_lists(encoder: Any) -> None:
    texts = [f"{t} write to a{i}@mail.org" for i, t in enumerate(texts_of(60, 0))]
    concept = vecveil.Concept.from_patterns("mail", [r"\S+@\S+"])
    lists = {"pattern": ["one@x.org", "two@x.org"]}
    protector = vecveil.fit(texts, concept, encoder, method="replace-semantic", members=lists)
    assert protector.rewrite(texts)[0].split()[-1] in lists["pattern"]
    with raises("E-CONCEPT", "members"):
        vecveil.fit(texts, concept, encoder, method="replace-semantic", members="faker")
    for wrong in ("other", {"pattern": ["one"]}, {"x": ["a", "b"]}, 3):
        with raises("E-INPUT", "members"):
            vecveil.fit(texts, concept, encoder, method="replace-semantic", members=wrong)


def test_concepts_that_cannot_be_saved_or_found(encoder: Any, tmp_path: Path) -> None:
    texts = texts_of(60, 0)
    spans = [list(row) for row in CONCEPT.detect(texts)]
    given = vecveil.Concept.from_spans("drug", spans)
    protector = vecveil.fit(texts, given, encoder, method="redact")
    assert protector.rewrite(texts, spans=spans) == vecveil.fit(texts, CONCEPT, encoder, method="redact").rewrite(texts)
    with raises("E-INPUT", "spans"):
        protector.encode(texts)
    with raises("E-CONCEPT", "concept"):
        protector.save(tmp_path / "p.vecveil")
    assert not (tmp_path / "p.vecveil").exists()
    labels = vecveil.Concept.from_labels("drug", ["a", "b"] * 30)
    with raises("E-CONCEPT", "concept"):
        vecveil.fit(texts, labels, encoder, method="redact")


@pytest.mark.parametrize("positional", [False, True])
def test_audits_attack_the_vectors_of_rewritten_texts(
    encoder: Any, positional: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = "vecveil.auditing.families.ladder_attacks"
    monkeypatch.setattr(ladder, lambda *_, **__: (LinearAttack(), KernelAttack(rows=256)))
    texts = texts_of(300, 5)
    concept = CONCEPT
    if positional:
        concept = vecveil.Concept.from_spans("drug", [list(row) for row in CONCEPT.detect(texts)])
    protector = vecveil.fit(texts, concept, encoder, method="redact")
    skip = ["candidates", "averaging", "alignment", "held-out-terms", "probe"]
    options: dict[str, Any] = {"skip": skip, "show_progress": False, "min_token_count": 5}
    result = vecveil.audit(protector, texts, concept, **options)
    record = result.to_record()
    (linear,) = (each for each in record["attacks"] if each["name"] == "linear")
    assert linear["clean"] > 0.4
    assert linear["value"] < linear["chance"] + 0.2
    assert record["randomness"] == "none"
    assert record["guarantee"]["kind"] == "empirical"
    assert record["utility"]["similarity"]["relative"] < 1
    result.to_html(tmp_path / "audit.html")
    assert "redact" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    if positional:
        return
    task = vecveil.metrics.StsTask(encoder.encode(texts_of(30, 8)), encoder.encode(texts_of(30, 9)), np.arange(30.0))
    with raises("E-INPUT", "tasks"):
        vecveil.audit(protector, texts, concept, tasks=[task], **options)
