"""Texts with PII, found by real Presidio or any detector."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.errors import raises
from vecveil.privacy.concepts import AnnotatedSpans, Concept, Span
from vecveil.privacy.textcrafter.pii_classifier import PII_ENTITIES, PII_MIN_SCORE, contains_pii, pii_detector

WITH_PII = [
    "Write to jane.doe@example.com before Friday.",
    "You can reach the clinic at (212) 555-0199.",
    "Ring +44 20 7946 0958 and ask for the manager.",
    "My card 4111 1111 1111 1111 was charged twice.",
    "Please pay into GB82 WEST 1234 5698 7654 32.",
    "Her social security number is 536-22-1234.",
    "The login came from 192.168.10.24 last night.",
    "Her passport number is 123456789.",
]
PLAIN = [
    "The river rises in the hills and flows north.",
    "He scored 30 goals in 42 games that season.",
    "The bridge was opened on 12/05/1921 by the mayor.",
    "A full list is kept at www.example.org for readers.",
    "The survey counted 12345678 birds in the valley.",
    "The F1234567 engine was built in small numbers.",
    "Record 550e8400-e29b-41d4-a716-446655440000 was archived.",
    "Critics praised the film for its music.",
]


def test_presidio_finds_pii_and_leaves_dates_pages_and_bare_numbers() -> None:
    pytest.importorskip("presidio_analyzer")
    assert contains_pii(WITH_PII).tolist() == [True] * 8
    assert contains_pii(PLAIN).tolist() == [False] * 8
    assert contains_pii([]).shape == (0,)


def test_the_defaults_are_what_keeps_plain_text_plain() -> None:
    """Control: with a score of 0, or with the types that are left out, plain sentences would be moved."""
    pytest.importorskip("presidio_analyzer")
    low = contains_pii(PLAIN, pii_detector(min_score=0.0))
    assert low.tolist() == [False, False, False, False, True, True, True, False]
    wide = contains_pii(PLAIN, pii_detector([*PII_ENTITIES, "DATE_TIME", "URL", "UUID"]))
    assert wide.tolist() == [False, False, True, True, False, False, True, False]


def test_every_model_free_type_of_presidio_is_either_taken_or_left_out_on_purpose() -> None:
    pytest.importorskip("presidio_analyzer")
    known = set(pii_detector()._engine.get_supported_entities("en"))
    assert known - set(PII_ENTITIES) == {"DATE_TIME", "URL", "UUID"}
    assert pii_detector().min_score == PII_MIN_SCORE


def test_a_spacy_pipeline_a_concept_and_given_spans_find_pii() -> None:
    spacy = pytest.importorskip("spacy")
    from vecveil.privacy.concepts import SpacyDetector

    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Jane Doe"}])
    texts = ["Jane Doe left early.", "It rained all day."]
    detector = SpacyDetector(["PERSON"], model=pipeline)
    assert contains_pii(texts, detector).tolist() == [True, False]
    assert contains_pii(texts, Concept.from_terms("rain", ["rained"])).tolist() == [False, True]
    spans = AnnotatedSpans([[Span(0, 2, "x")], []])
    assert contains_pii(texts, spans).tolist() == [True, False]


def test_a_detector_that_answers_wrongly_is_refused() -> None:
    class Short:
        def detect(self, texts: Sequence[str]) -> list[list[Span]]:
            return []

    with raises("E-INPUT", "detect"):
        contains_pii(["a", "b"], Short())
