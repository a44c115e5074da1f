"""Corpora for the PII classifier: relabelled by real Presidio or any detector, balanced, without text in the record."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.concepts import AnnotatedSpans, Concept, Span
from vecveil.errors import ConceptError, InvalidInputError, MissingDependencyError
from vecveil.textcrafter.corpus import (
    PII_ENTITIES,
    PII_MIN_SCORE,
    PiiCorpus,
    contains_pii,
    label_corpus,
    pii_detector,
)

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


class MarkedDetector:
    """Finds one word; stands in for a spaCy or Hugging Face engine and counts what it is shown."""

    def __init__(self, word: str = "secret") -> None:
        self.word = word
        self.seen = 0

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        self.seen += len(texts)
        found = [(text, text.find(self.word)) for text in texts]
        return [
            [Span(start, start + len(self.word), "PERSON")] if start >= 0 else []
            for _, start in found
        ]


def numbered(word: str, count: int) -> list[str]:
    return [f"{word} {i}" for i in range(count)]


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


def test_plain_texts_with_pii_move_and_the_rest_stays() -> None:
    pytest.importorskip("presidio_analyzer")
    plain = [*PLAIN[:4], WITH_PII[0], *PLAIN[4:], WITH_PII[3]]
    corpus = label_corpus(WITH_PII[4:], plain)
    positive, confirmed = corpus.texts(WITH_PII[4:], plain)
    assert corpus.moved_rows.tolist() == [4, 9]
    assert positive == [*WITH_PII[4:], WITH_PII[0], WITH_PII[3]]
    assert len(confirmed) == 6
    assert set(confirmed) <= set(PLAIN)
    assert corpus.counts == {
        "pii_given": 4,
        "plain_given": 10,
        "pii_drawn": 4,
        "plain_drawn": 10,
        "moved": 2,
        "moved_kept": 2,
        "of_each": 6,
    }
    assert corpus.detector["detectors"][0]["types"] == list(PII_ENTITIES)


def test_any_object_with_detect_relabels() -> None:
    detector = MarkedDetector()
    plain = [*numbered("plain", 6), "a secret here", "no secret"]
    corpus = label_corpus(numbered("pii", 5), plain, detector)
    assert corpus.counts["moved"] == 2
    assert detector.seen == 8  # the PII corpus is taken at its word
    positive, confirmed = corpus.texts(numbered("pii", 5), plain)
    assert len(positive) == len(confirmed) == 6
    assert all("secret" not in text for text in confirmed)
    assert corpus.detector == {"name": "PII", "detectors": [{"kind": "MarkedDetector"}]}


def test_a_spacy_pipeline_and_a_concept_relabel() -> None:
    spacy = pytest.importorskip("spacy")
    from vecveil.concepts import SpacyDetector

    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Jane Doe"}])
    texts = ["Jane Doe left early.", "It rained all day."]
    detector = SpacyDetector(["PERSON"], model=pipeline)
    assert contains_pii(texts, detector).tolist() == [True, False]
    assert contains_pii(texts, Concept.from_terms("rain", ["rained"])).tolist() == [False, True]
    corpus = label_corpus(["Jane Doe again."], texts, detector)
    assert corpus.detector["detectors"][0]["engine"] == "spacy"
    assert corpus.plain_rows.tolist() == [1]


def test_spans_by_position_relabel_the_texts_they_belong_to() -> None:
    spans = AnnotatedSpans([[Span(0, 2, "x")], [], []])
    corpus = label_corpus(["p", "q"], ["one", "two", "three"], spans)
    assert corpus.plain_rows.tolist() == [1, 2]
    assert corpus.counts["moved"] == 1


@pytest.mark.parametrize(("pii", "plain"), [(30, 500), (500, 30), (50, 50)])
def test_classes_are_equal_whichever_is_larger(pii: int, plain: int) -> None:
    plain_texts = [*numbered("plain", plain), *numbered("secret", 10)]
    corpus = label_corpus(numbered("pii", pii), plain_texts, MarkedDetector())
    each = min(pii + 10, plain)
    assert len(corpus.pii_rows) + len(corpus.moved_rows) == len(corpus.plain_rows) == each
    assert corpus.counts["moved"] == 10
    assert corpus.counts["moved_kept"] == len(corpus.moved_rows)
    assert len(np.unique(corpus.plain_rows)) == len(corpus.plain_rows)
    assert len(np.unique(corpus.pii_rows)) == len(corpus.pii_rows)
    positive, confirmed = corpus.texts(numbered("pii", pii), plain_texts)
    assert all(text.startswith(("pii", "secret")) for text in positive)
    assert all(text.startswith("plain") for text in confirmed)


def test_moved_texts_are_sampled_down_like_the_others() -> None:
    plain = [*numbered("secret", 200), *numbered("plain", 20)]
    corpus = label_corpus(numbered("pii", 20), plain, MarkedDetector())
    assert len(corpus.pii_rows) + len(corpus.moved_rows) == 20
    assert corpus.moved_rows.max() > 100  # not the first of them
    assert corpus.counts["moved"] == 200


def test_a_sample_is_drawn_before_the_detector_looks() -> None:
    detector = MarkedDetector()
    corpus = label_corpus(numbered("pii", 90), numbered("plain", 400), detector, sample=50)
    assert detector.seen == 50
    assert (corpus.counts["pii_drawn"], corpus.counts["plain_drawn"]) == (50, 50)
    assert corpus.plain_rows.max() > 50  # not the first fifty
    more = label_corpus(numbered("pii", 90), numbered("plain", 400), detector, sample=200)
    assert (more.counts["pii_drawn"], more.counts["plain_drawn"]) == (90, 200)


def test_one_seed_one_corpus() -> None:
    def rows(seed: int) -> list[Any]:
        corpus = label_corpus(
            numbered("pii", 90), numbered("plain", 400), MarkedDetector(), sample=300, seed=seed
        )
        return [corpus.pii_rows.tolist(), corpus.plain_rows.tolist()]

    assert rows(1) == rows(1) != rows(2)


def test_vectors_follow_their_texts() -> None:
    pii, plain = numbered("pii", 12), [*numbered("plain", 30), *numbered("secret", 4)]
    corpus = label_corpus(pii, plain, MarkedDetector())

    def encode(texts: list[str]) -> Any:
        return np.array([[float(text.split()[1]), float(len(text))] for text in texts])

    positive, confirmed = corpus.vectors(encode(pii), encode(plain))
    for found, texts in zip((positive, confirmed), corpus.texts(pii, plain), strict=True):
        np.testing.assert_array_equal(found, encode(texts))


def test_equal_texts_are_one_group_on_both_sides() -> None:
    pii, plain = ["a", "b", "a"], ["c", "b", "c", "d"]
    corpus = label_corpus(pii, plain, MarkedDetector())
    positive, confirmed = corpus.texts(pii, plain)
    texts = positive + confirmed
    numbers = [*corpus.positive_groups.tolist(), *corpus.plain_groups.tolist()]
    for i, one in enumerate(texts):
        for j, other in enumerate(texts):
            assert (numbers[i] == numbers[j]) == (one == other)


def test_no_text_in_record_or_repr() -> None:
    canary = "canary7391"
    pii, plain = [f"{canary} {i}" for i in range(5)], [f"{canary} plain {i}" for i in range(9)]
    corpus = label_corpus(pii, plain, MarkedDetector(f"{canary} plain 3"))
    record = json.dumps(corpus.to_record(), allow_nan=False)
    assert canary not in record + repr(corpus)
    assert corpus.to_record()["counts"]["moved"] == 1
    fields = [getattr(corpus, name) for name in PiiCorpus.__dataclass_fields__]
    assert canary not in str(fields)


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"pii_texts": []}, InvalidInputError, "`pii_texts` must be at least one text"),
        ({"plain_texts": []}, InvalidInputError, "`plain_texts` must be at least one text"),
        ({"plain_texts": ["secret", "a secret"]}, ConceptError, "got 2 texts, in each of which"),
        ({"pii_texts": "one"}, InvalidInputError, "`pii_texts` must be a sequence of strings"),
        ({"plain_texts": ["a", 1]}, InvalidInputError, "int at position 1"),
        ({"sample": 0}, InvalidInputError, "`sample`"),
        ({"seed": -1}, InvalidInputError, "`seed`"),
        ({"detector": 5}, InvalidInputError, "objects with a method detect"),
    ],
)
def test_bad_input_is_refused(
    change: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    given = {"pii_texts": ["p"], "plain_texts": ["q"], "detector": MarkedDetector(), **change}
    with pytest.raises(error, match=complaint):
        label_corpus(**given)


def test_vectors_of_other_texts_are_refused() -> None:
    corpus = label_corpus(["p", "q"], ["r", "s"], MarkedDetector())
    with raises("E-INPUT", "plain"):
        corpus.vectors(np.ones((2, 4)), np.ones((3, 4)))


def test_a_detector_that_answers_wrongly_is_refused() -> None:
    class Short:
        def detect(self, texts: Sequence[str]) -> list[list[Span]]:
            return []

    with raises("E-INPUT", "detect"):
        contains_pii(["a", "b"], Short())


def test_without_presidio_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[presidio\]"):
        label_corpus(["p"], ["q"])
    assert not contains_pii(["q"], MarkedDetector()).any()
