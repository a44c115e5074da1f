"""Pairs, token labels and the refusals of a concept that fits its texts badly."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import Concept, Span, TokenVocabulary

DRUGS = Concept.from_terms("drug", ["aspirin", "vitamin d", "co-trimoxazole", "foo bar"])
TEXTS = [
    "He took Aspirin, then slept.",
    "Nothing here.",
    "Aspirin!",
    "Vitamin  D and aspirin help",
    "Take Co-Trimoxazole now, not ASPIRIN",
]


def test_every_text_is_in_one_of_three_groups() -> None:
    matches = DRUGS.find(TEXTS, min_texts=3)
    assert matches.with_concept.tolist() == [0, 3, 4]
    assert matches.without_concept.tolist() == [1]
    assert matches.emptied.tolist() == [2]
    assert matches.positives() == [TEXTS[i] for i in (0, 3, 4)]
    assert matches.negatives() == ["He took, then slept.", "and help", "Take now, not"]
    assert matches.report() == {
        "concept": "drug",
        "texts": 5,
        "with_concept": 3,
        "without_concept": 1,
        "emptied": 1,
        "spans": 6,
        "span_labels": 1,
    }


def test_token_labels_are_single_words_inside_spans() -> None:
    labels, vocabulary = DRUGS.find(TEXTS, min_texts=1).token_labels(min_count=1)
    assert vocabulary.tokens == ("aspirin", "co", "d", "trimoxazole", "vitamin")
    assert labels.dtype == np.uint8
    assert labels.tolist() == [[1, 0, 0, 0, 0], [1, 0, 1, 0, 1], [1, 1, 0, 1, 0]]


def test_rare_words_are_left_out_and_counted_once_a_text() -> None:
    matches = DRUGS.find([*TEXTS, "aspirin aspirin vitamin d vitamin d x"], min_texts=1)
    assert matches.token_labels(min_count=4)[1].tokens == ("aspirin",)
    labels, none = matches.token_labels(min_count=5)
    assert labels.shape == (4, 0)
    assert len(none) == 0


def test_a_given_vocabulary_keeps_its_columns() -> None:
    vocabulary = TokenVocabulary(("unseen", "vitamin"))
    labels, same = DRUGS.find(TEXTS, min_texts=1).token_labels(vocabulary)
    assert same is vocabulary
    assert labels.tolist() == [[0, 0], [0, 1], [0, 0]]


def test_a_word_outside_its_span_does_not_count() -> None:
    labels, _ = DRUGS.find(["vitamin d is a vitamin", "aspirin d"], min_texts=1).token_labels(TokenVocabulary(("d",)))
    assert labels.tolist() == [[1], [0]]


def test_what_removal_joins_is_removed_as_well() -> None:
    assert DRUGS.find(["x foo aspirin bar y"], min_texts=1).negatives() == ["x y"]
    by_position = Concept.from_spans("given", [[{"start": 2, "end": 3}]])
    assert by_position.find(["a b c"], min_texts=1).negatives() == ["a c"]


@pytest.mark.parametrize(
    ("texts", "minimum", "code"),
    [
        (["no", "not"], 1, "E-CONCEPT-NO-MATCH"),
        (TEXTS, 4, "E-CONCEPT-FEW"),
        (["aspirin", "Aspirin."], 1, "E-CONCEPT-WHOLE"),
        (["aspirin", "no"], 1, "E-CONCEPT-WHOLE"),
    ],
)
def test_refusals(texts: list[str], minimum: int, code: str) -> None:
    with raises(code, "texts") as error:
        DRUGS.find(texts, min_texts=minimum)
    assert "aspirin" not in str(error.value).lower()


@pytest.mark.parametrize(("minimum", "lower"), [(20, False), (21, True)])
def test_the_advice_names_no_minimum_that_a_fit_refuses(minimum: int, lower: bool) -> None:
    for texts in (TEXTS, ["take aspirin"] * 300):
        with raises("E-CONCEPT-FEW", "texts") as error:
            DRUGS.find(texts, min_texts=minimum)
        assert ("lower `min_texts`" in str(error.value)) == lower


def test_the_default_minimum_is_twenty() -> None:
    with raises("E-CONCEPT-FEW", "texts"):
        DRUGS.find([f"take aspirin {i}" for i in range(19)])
    assert len(DRUGS.find([f"take aspirin {i}" for i in range(20)]).with_concept) == 20


def test_copies_of_a_text_do_not_count_towards_the_minimum() -> None:
    with raises("E-CONCEPT-FEW", "texts"):
        DRUGS.find(["take aspirin"] * 300)
    with raises("E-CONCEPT-FEW", "texts"):
        DRUGS.find(
            [f"take{space}aspirin a\u0308 e\u0301" for space in (" ", "\n", "\u00a0", "\u200b ", "  ")] * 9
            + ["take aspirin ä é"] * 9
        )


@pytest.mark.parametrize("texts", ["one text", [], ["a", None], 5])
def test_refused_texts(texts: object) -> None:
    with pytest.raises(InvalidInputError):
        DRUGS.find(texts)  # type: ignore[arg-type]


def test_index_arrays_cannot_be_written() -> None:
    matches = DRUGS.find(TEXTS, min_texts=1)
    with pytest.raises(ValueError, match="read-only"):
        matches.with_concept[0] = 1


def test_labels_are_one_hot_and_have_no_negatives() -> None:
    concept = Concept.from_labels("topic", ["sad", None, "", "glad", "sad", 3])
    matches = concept.find(["a", "b", "c", "d", "e", "f"], min_texts=2)
    labels, vocabulary = matches.token_labels(min_count=1)
    assert matches.with_concept.tolist() == [0, 3, 4, 5]
    assert matches.without_concept.tolist() == [1, 2]
    assert vocabulary.tokens == ("sad", "3", "glad")
    assert labels.tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    with raises("E-CONCEPT", "concept"):
        matches.negatives()
    with raises("E-CONCEPT", "concept"):
        concept.detect(["a"])
    with raises("E-INPUT", "texts"):
        concept.find(["a"])
    with raises("E-CONCEPT-NO-MATCH", "texts"):
        Concept.from_labels("topic", [None]).find(["a"])


@pytest.mark.parametrize("labels", ["abc", [1.5], [True], [["x"]], None])
def test_refused_labels(labels: object) -> None:
    with raises("E-INPUT", "labels"):
        Concept.from_labels("topic", labels)  # type: ignore[arg-type]


def test_numpy_labels_are_accepted() -> None:
    concept = Concept.from_labels("topic", np.array([1, 2, 1]))
    assert concept.labels == ("1", "2", "1")


def test_vocabulary_is_frozen_indexed_and_silent() -> None:
    vocabulary = TokenVocabulary(["canary", "b"])  # type: ignore[arg-type]
    assert (len(vocabulary), vocabulary.index("b"), list(vocabulary)) == (2, 1, ["canary", "b"])
    assert "canary" in vocabulary
    assert repr(vocabulary) == "TokenVocabulary(2 tokens)"
    assert vocabulary == TokenVocabulary(("canary", "b"))
    with pytest.raises(KeyError) as error:
        vocabulary.index("secret")
    assert "secret" not in str(error.value)
    with pytest.raises(AttributeError):
        vocabulary.tokens = ()  # type: ignore[misc]
    with raises("E-INPUT", "tokens"):
        TokenVocabulary(("a", "a"))
    with raises("E-INPUT-TYPE", "tokens"):
        TokenVocabulary("ab")  # type: ignore[arg-type]


def test_no_repr_holds_text() -> None:
    matches = DRUGS.find(TEXTS, min_texts=1)
    shown = repr(matches) + repr(matches.spans) + repr(DRUGS) + str(matches.report())
    assert "spirin" not in shown
    assert isinstance(matches.spans[0][0], Span)
