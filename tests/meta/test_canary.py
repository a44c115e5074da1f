"""No text, term or vector value gets into a message, a repr or a protector file.

A term and a text that occur nowhere else are planted, and a vector of one odd value; everything
that a protector says or writes is searched for them, in plain and in the encodings of a file.
"""

from __future__ import annotations

import json
import logging
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.small_attacks import small_audits
from harness.token_data import token_data
from vecveil.auditing import AuditResult
from vecveil.auditing.attacks import LabelledVectors
from vecveil.auditing.metrics import ClassificationTask
from vecveil.cli.fit import record
from vecveil.errors import VecveilError
from vecveil.privacy.concepts import Span
from vecveil.privacy.sensitivity import LinearMap, Moments, NoiseShape, concept_directions

TERM = "zyxwophane"
TEXT = "quorbly ventrash"
VALUE = 0.73519264
N_DIM = 8
KEYS = ("zyxw", "quorb", "ventr", "0.7351", "73519264")


class Encoder:
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rng = np.random.default_rng(0)
        noise = rng.standard_normal((len(texts), N_DIM))
        noise[:, 0] += [3.0 * (TERM in text) for text in texts]
        return noise.astype(np.float32)


TEXTS = [f"{TEXT} number {i}" + (f" takes {TERM}" if i % 2 else "") for i in range(160)]
CONCEPT = vecveil.Concept.from_terms("medicine", [TERM, "otherterm"])


def found(text: str | bytes) -> list[str]:
    """Return the planted strings that ``text`` holds, in any case and in UTF-8 or UTF-16."""
    if isinstance(text, str):
        return [key for key in KEYS if key in text.casefold()]
    forms = {key: (key.encode(), key.encode("utf-16-le")) for key in KEYS}
    hits = [key for key, both in forms.items() if any(form in text.lower() for form in both)]
    values = (np.float32(VALUE).tobytes(), np.float64(VALUE).tobytes())
    return hits + ["value" for value in values if value in text]


@pytest.fixture(scope="module")
def protector() -> vecveil.Protector:
    return vecveil.fit(TEXTS, CONCEPT, Encoder(), epsilon=30.0, show_progress=False)


def test_control_the_search_finds_what_is_planted() -> None:
    assert found(f"... {TERM.upper()} ...") == ["zyxw"]
    assert found(TEXT.encode("utf-16-le")) == ["quorb", "ventr"]
    assert found(np.array([1.0, VALUE]).tobytes()) == ["value"]
    assert found(repr(np.array([VALUE]))) == ["0.7351", "73519264"]
    assert not found("nothing of it")


def test_the_protector_file_and_what_a_protector_says(protector: vecveil.Protector, tmp_path: Path) -> None:
    protector.save(tmp_path / "p")
    assert not found((tmp_path / "p").read_bytes())
    said = [repr(protector), str(protector), str(protector.guarantee), repr(protector.guarantee)]
    said += [json.dumps(protector.report), repr(protector.mechanism), repr(protector.map)]
    assert not [hit for text in said for hit in found(text)]


class NamesItsFinds:
    """A detector of a user's own whose label is what it found."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        found_at = [text.find(TERM) for text in texts]
        return [[] if at < 0 else [Span(at, at + len(TERM), TERM)] for at in found_at]


def spans_with_terms_for_labels() -> list[list[dict[str, Any]]]:
    found_at = [text.find(TERM) for text in TEXTS]
    return [[] if at < 0 else [{"start": at, "end": at + len(TERM), "label": TERM}] for at in found_at]


@pytest.mark.parametrize(
    "concept",
    [
        vecveil.Concept.from_spans("medicine", spans_with_terms_for_labels()),
        vecveil.Concept("medicine", (NamesItsFinds(),)),
    ],
    ids=["spans", "detector"],
)
def test_labels_that_are_terms_stay_out_of_the_protector(concept: vecveil.Concept, tmp_path: Path) -> None:
    fitted = vecveil.fit(TEXTS, concept, Encoder(), epsilon=30.0, show_progress=False)
    fitted.save(tmp_path / "p")
    assert fitted.report["texts"]["span_labels"] == 1
    said = json.dumps(record(fitted, tmp_path / "p")) + repr(concept)
    said += json.dumps(concept.describe()) + repr(concept.find(TEXTS))
    assert not found((tmp_path / "p").read_bytes())
    assert not found(said)


def planted_rows(rows: int = 40) -> np.ndarray:
    return np.full((rows, N_DIM), VALUE)


def with_nan() -> np.ndarray:
    X = planted_rows()
    X[3, 3] = np.nan
    return X


P, N, L, B = token_data(40, N_DIM, dtype=float).arguments()
FAILURES: dict[str, Callable[[], Any]] = {
    "NaN": lambda: vecveil.fit_pairs(with_nan(), N, epsilon=1.0),
    "same pairs": lambda: vecveil.fit_pairs(planted_rows(), planted_rows(), epsilon=1.0),
    "dimension": lambda: vecveil.fit_pairs(P, planted_rows()[:, :4], epsilon=1.0),
    "labels": lambda: vecveil.fit_pairs(P, N, planted_rows(), epsilon=1.0),
    "label text": lambda: vecveil.fit_pairs(P, N, [[TERM]] * 40, epsilon=1.0),  # type: ignore[arg-type]
    "objects": lambda: vecveil.fit_pairs(np.array([[TEXT]] * 40, object), N, epsilon=1.0),
    "list": lambda: vecveil.fit_pairs(planted_rows().tolist(), N, epsilon=1.0),  # type: ignore[arg-type]
    "shape": lambda: NoiseShape.from_diagonal([TERM] * 4),  # type: ignore[arg-type]
    "negative shape": lambda: NoiseShape.from_diagonal(np.full(4, -VALUE)),
    "texts": lambda: vecveil.fit([TEXT, VALUE] * 20, CONCEPT, Encoder(), epsilon=1.0),  # type: ignore[list-item]
    "no text holds it": lambda: vecveil.fit([TEXT] * 40, CONCEPT, Encoder(), epsilon=1.0),
    "nothing else": lambda: vecveil.fit([TERM] * 40, CONCEPT, Encoder(), epsilon=1.0),
    "audit": lambda: vecveil.audit(
        vecveil.fit_pairs(P, N, epsilon=1.0, method="laplace"), TEXTS[:30], CONCEPT, embeddings=planted_rows(30)
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_errors_with_their_traceback_and_causes(name: str, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned, pytest.raises(VecveilError) as caught:
        FAILURES[name]()
    error: BaseException | None = caught.value
    while error is not None:
        assert not found("".join(traceback.format_exception_only(error)))
        error = error.__cause__
    assert not found(caplog.text + "".join(str(w.message) for w in warned))


def test_reprs_of_what_a_fit_works_with() -> None:
    moments = Moments.of(P, N, token_labels=L, background=planted_rows())
    task = ClassificationTask.of(planted_rows(), np.arange(40) % 2)
    things = [
        moments,
        concept_directions(moments),
        LinearMap(down=planted_rows(N_DIM)),
        task,
        task.train,
        NoiseShape(diagonal=np.full(4, VALUE)),
        NoiseShape(matrix=VALUE * np.eye(4)),
        CONCEPT,
        CONCEPT.find(TEXTS, min_texts=20),
        LabelledVectors(planted_rows(), L),
    ]
    for thing in things:
        assert not found(repr(thing)), type(thing).__name__
        assert "array(" not in repr(thing), type(thing).__name__


def test_an_audit_record_without_terms(protector: vecveil.Protector) -> None:
    words = ["wardle", "glemmy", "tosk"]
    texts = [f"{TEXT} {i} " + (words[i % 3] if i % 2 else TERM) for i in range(400)]
    concept = vecveil.Concept.from_terms("medicine", [TERM, *words])
    with small_audits(), pytest.MonkeyPatch.context() as patch:
        from vecveil.auditing.attacks import LinearAttack

        patch.setattr("vecveil.auditing.families.ladder_attacks", lambda tier, device: (LinearAttack(),))
        result = vecveil.audit(protector, texts, concept, show_progress=False)
    assert isinstance(result, AuditResult)
    said = json.dumps(result.to_record()) + repr(result) + str(result)
    assert not found(said)
    assert not [word for word in words if word in said]
