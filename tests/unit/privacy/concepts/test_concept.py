"""Concepts combine detectors, take columns, describe themselves without a term."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from harness.errors import raises
from vecveil.privacy.concepts import Concept, Detector, Span


class Capitals:
    """A detector of a user's own."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(0, 1, "capital")] if t[:1].isupper() else [] for t in texts]


def test_detectors_combine_and_overlaps_unite() -> None:
    terms = Concept.from_terms("a", ["New York"])
    patterns = Concept.from_patterns("b", [r"York \d+"])
    both = Concept.combined("place", [terms, patterns])
    assert [(s.start, s.end, s.term) for s in both.detect(["in New York 10 now"])[0]] == [(3, 14, "new york 10")]


def test_a_users_detector_takes_part() -> None:
    assert isinstance(Capitals(), Detector)
    concept = Concept("capital", [Capitals()])  # type: ignore[arg-type]
    assert concept.detect(["Abc", "abc"]) == [[Span(0, 1, "capital", "a")], []]
    assert concept.describe()["detectors"] == [{"kind": "custom", "type": "Capitals"}]
    assert repr(concept) == "Concept('capital', Capitals)"


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ([], "0 lists for 1 texts"),
        (None, "NoneType"),
        ([[(0, 1)]], "tuple in row 0"),
        ([[Span(0, 9, "x")]], "length 3"),
        ([[Span(True, 2, "x")]], "bool"),
    ],
)
def test_a_users_detector_is_checked(result: Any, complaint: str) -> None:
    class Wrong:
        def detect(self, texts: Sequence[str]) -> Any:
            return result

    with raises("E-INPUT", "detect") as error:
        Concept("x", (Wrong(),)).detect(["abc"])
    assert complaint in str(error.value)


def test_long_input_is_cut_into_blocks_without_a_seam() -> None:
    texts = [f"word {i}" for i in range(1300)]
    spans = Concept.from_patterns("n", [r"\d+"]).detect(texts, show_progress=False)
    assert [t[s[0].start : s[0].end] for t, s in zip(texts, spans, strict=True)] == [str(i) for i in range(1300)]


def test_columns_are_asked_for_and_bound() -> None:
    concept = Concept("given", Concept.from_terms("t", ["b"]).detectors, spans_column="spans")
    assert concept.columns == ("spans",)
    with raises("E-INPUT", "concept"):
        concept.find(["a b"])
    with raises("E-DATA-FILE", "columns"):
        concept.with_columns({"text": []})
    bound = concept.with_columns({"spans": ['[{"start": 0, "end": 1, "label": "X"}]'], "text": ["a"]})
    assert bound.columns == ()
    assert [s.label for s in bound.detect(["a b"])[0]] == ["X", "term"]
    with raises("E-INPUT", "spans"):
        concept.with_columns({"spans": [[{"start": 2, "end": 1}]]})
    with raises("E-INPUT", "spans"):
        concept.with_columns({"spans": [[{"start": 0, "end": 2}]]}).detect(["b"])


def test_a_labels_column_is_bound() -> None:
    concept = Concept("topic", labels_column="topic")
    assert concept.columns == ("topic",)
    assert concept.with_columns({"topic": ["a", None]}).labels == ("a", None)


def test_describe_is_json_without_terms() -> None:
    concept = Concept.combined(
        "c",
        [
            Concept.from_terms("a", ["canary", "sparrow"]),
            Concept.from_patterns("b", ["canary+"]),
            Concept("s", spans_column="spans"),
        ],
    )
    text = json.dumps(concept.describe())
    assert "canary" not in text
    assert json.loads(text) == {
        "name": "c",
        "detectors": [
            {"kind": "terms", "terms": 2, "case_sensitive": False},
            {"kind": "patterns", "patterns": 1, "time_limit": 2.0},
            {"kind": "spans", "column": "spans"},
        ],
    }
    assert "canary" not in repr(concept)


@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda: Concept.from_terms("", ["a"]), "name"),
        (lambda: Concept.from_terms(3, ["a"]), "name"),
        (lambda: Concept("x"), "detectors"),
        (lambda: Concept("x", (object(),)), "detectors"),
        (lambda: Concept("x", (Capitals(),), labels=("a",)), "labels"),
        (lambda: Concept("x", spans_column="a", labels_column="b"), "labels"),
        (lambda: Concept.from_terms("x", "abc"), "terms"),
        (lambda: Concept.from_patterns("x", ["("]), "patterns"),
        (lambda: Concept.from_spans("x", [3]), "spans"),
        (lambda: Concept.from_entities("x", ["A"], engine="presido"), "engine"),
        (lambda: Concept.from_entities("x", []), "entities"),
        (lambda: Concept.from_entities("x", "EMAIL"), "entities"),
        (lambda: Concept.from_entities("x", ["A", ""]), "entities"),
        (lambda: Concept.combined("x", [Concept.from_labels("l", ["a"])]), "concepts"),
        (lambda: Concept.combined("x", [Concept("a", spans_column="a"), Concept("b", spans_column="b")]), "concepts"),
    ],
)
def test_refused_concepts(make: Any, param: str) -> None:
    with raises("E-INPUT", param):
        make()
