"""Members from sources stand in the user's own sentences, in the place of listed terms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.errors import raises
from vecveil.concepts import Concept, TokenVocabulary
from vecveil.concepts.expansion import Expansion, WordListSource

TERMS = ["Friday", "Monday", "France", "Spain", "seven"]
KINDS = {
    "day": ["friday", "monday", "sunday", "tuesday"],
    "land": ["france", "spain", "norway", "chile"],
    "number": ["seven", "nine", "four"],
}


class Kinds:
    """An encoder that knows of each word which kind it is, and nothing else but a little of its spelling."""

    calls = 0

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.calls += len(texts)
        rows = np.zeros((len(texts), 4 + 26), dtype=np.float32)
        for i, text in enumerate(texts):
            for k, words in enumerate(KINDS.values()):
                rows[i, k] = any(word in text.lower() for word in words)
            rows[i, 3] = not rows[i].any()
            for char in text.lower():
                if char.isascii() and char.isalpha():
                    rows[i, 4 + ord(char) - 97] += 0.01
        return rows


def texts() -> list[str]:
    places = [("on Friday", "day"), ("on Monday", "day"), ("in France", "land"), ("in Spain", "land"),
              ("at seven", "number")]  # fmt: skip
    return [f"Visitor {i} arrived {places[i % 5][0]}." for i in range(60)] + ["Nothing here."] * 5


def expanded(sources: Any, **options: Any) -> Expansion:
    return Concept.from_terms("entities", TERMS).expand(texts(), sources=sources, **options)


def test_a_member_stands_where_a_term_stood_and_the_negative_is_that_of_the_original() -> None:
    made = expanded([WordListSource(["Norway"])], substitutions=10)
    assert len(made) == 10
    found = Concept.from_terms("entities", TERMS).find(texts())
    rests = dict(zip(found.positives(), found.negatives(), strict=True))
    for row in made.rows:
        assert row.text.count("Norway") == 1
        assert row.members == ("norway",)
        assert row.negative == rests[row.original]
        assert row.text.split("arrived")[0] == row.original.split("arrived")[0]


def test_an_encoder_puts_members_to_the_terms_that_they_are_like() -> None:
    made = expanded(
        [WordListSource(["Sunday", "Chile", "nine"])], encoder=Kinds(), substitutions=30
    )
    where = {text.split("arrived ")[1] for text in made.texts}
    # Terms of one label are grouped twelve at a time: five make one group, so any place will do here.
    assert {text.split()[1].lower() for text in where} == {"sunday.", "chile.", "nine."}
    many = [*TERMS, *(f"day{i}friday" for i in range(12)), *(f"land{i}spain" for i in range(12))]
    extra = [f"Seen in {term}." for term in many]
    concept = Concept.from_terms("entities", many)
    apart = concept.expand(
        texts() + extra,
        sources=[WordListSource(["Sunday", "Chile"])],
        encoder=Kinds(),
        substitutions=40,
    )
    assert not any(text.endswith("on Chile.") for text in apart.texts)
    assert not any(
        text.startswith("Visitor") and text.endswith("in Sunday.") for text in apart.texts
    )


def test_a_long_group_does_not_outweigh_a_short_one_by_as_much_as_it_is_longer() -> None:
    source = WordListSource({"name": [f"Name{i}x" for i in range(90)], "number": ["nine", "four"]})
    made = expanded([source], substitutions=40)
    members = [row.members[0] for row in made.rows]
    numbers = sum(member in ("nine", "four") for member in members)
    assert len(made) == 40
    assert numbers == 5  # the roots of 90 and 2, not 90 and 2
    assert len(set(members)) == 37  # in turn: none twice before all once


def test_listed_terms_and_repetitions_are_no_members() -> None:
    made = expanded(
        [WordListSource(["friday", "FRANCE", "Chile"]), WordListSource(["chile", "Norway"])]
    )
    assert {m for row in made.rows for m in row.members} == {"chile", "norway"}
    assert [row["members"] for row in made.report()["sources"]] == [1, 1]
    assert [row["proposed"] for row in made.report()["sources"]] == [3, 2]


def test_labels_are_of_members_and_of_the_terms_beside_them() -> None:
    concept = Concept.from_terms("entities", TERMS)
    made = concept.expand(
        [f"Case {i}: from France to Spain." for i in range(30)],
        sources=[WordListSource(["Chile"])], substitutions=60,
    )  # fmt: skip
    tokens = [row.tokens for row in made.rows]
    vocabulary = TokenVocabulary.most_frequent(tokens, 3)
    labels = vocabulary.labels(tokens)
    assert set(vocabulary.tokens) == {"chile", "france", "spain"}
    assert labels[:, vocabulary.index("chile")].all()
    beside = labels[:, [vocabulary.index("france"), vocabulary.index("spain")]]
    assert (beside.sum(axis=1) == 1).all()
    for row, text in zip(labels, made.texts, strict=True):
        assert bool(row[vocabulary.index("france")]) == ("France" in text)


def test_the_same_seed_gives_the_same_texts_and_another_seed_others() -> None:
    sources = [WordListSource([f"Town{i}a" for i in range(50)])]
    assert expanded(sources, seed=3).texts == expanded(sources, seed=3).texts
    assert expanded(sources, seed=3).texts != expanded(sources, seed=4).texts


def test_a_text_that_holds_a_member_counts_as_it_is() -> None:
    own = [*texts(), "Four of them met Mark.", "Mark went to Norway on Friday.", "Please mark it."]
    concept = Concept.from_terms("entities", TERMS)
    sources = [WordListSource(["Mark", "Norway", "four"])]
    made = concept.expand(own, sources=sources, substitutions=5)
    natural = {row.text: row for row in made.rows if row.text == row.original}
    assert set(natural) == {"Four of them met Mark.", "Mark went to Norway on Friday."}
    assert natural["Four of them met Mark."].negative == "of them met."
    row = natural["Mark went to Norway on Friday."]
    assert row.negative == "went to on."
    assert set(row.members) == {"mark", "norway"}
    assert set(row.tokens) == {"mark", "norway", "friday"}
    assert made.report()["found"] == 2
    assert made.report()["substituted"] == len(made) - 2
    without = concept.expand(own, sources=sources, substitutions=5, occurrences=False)
    assert without.report()["found"] == 0


def test_without_substitutions_the_texts_that_hold_a_member_are_left() -> None:
    own = [*texts(), "Four of them met Mark."]
    concept = Concept.from_terms("entities", TERMS)
    made = concept.expand(own, sources=[WordListSource(["Mark", "Norway"])], substitutions=0)
    assert made.texts == ["Four of them met Mark."]
    assert (made.report()["found"], made.report()["substituted"]) == (1, 0)
    with raises("E-CONCEPT", "texts"):
        expanded([WordListSource(["Norway"])], substitutions=0)
    with raises("E-INPUT", "substitutions"):
        expanded([WordListSource(["Norway"])], substitutions=0, occurrences=False)


def test_nothing_shows_a_text() -> None:
    source = WordListSource(["Chile", "Norway"])
    made = expanded([source])
    shown = repr(made) + repr(made.rows) + json.dumps(made.report()) + repr(source)
    assert not any(word in shown for word in ("Chile", "chile", "Norway", "norway", "Visitor"))
    assert repr(made) == f"Expansion('entities', {len(made)} texts, 2 members)"


def test_the_report_counts_members_texts_and_encodings() -> None:
    encoder = Kinds()
    made = expanded([WordListSource(["Chile", "Norway"])], encoder=encoder, substitutions=7)
    report = made.report()
    assert report["members"] == 2
    assert report["texts"] == len(made) == 7
    assert report["listed"] == 5
    assert report["encodings"] == {"members": encoder.calls, "texts": 7}
    assert encoder.calls == 5 + 2  # the listed terms and the members


def test_long_groups_give_way_first() -> None:
    source = WordListSource({"name": [f"Name{i}x" for i in range(500)], "number": ["nine", "four"]})
    made = expanded([source], members=22, substitutions=200)
    assert {"nine", "four"} < {m for row in made.rows for m in row.members}
    assert made.report()["members"] == 22


class Faulty:
    name = "faulty"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def members(self, context: Any) -> Mapping[str, Sequence[str]]:
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("answer", [["a"], {"g": "word"}, {"g": [1]}, {1: ["a"]}, None])
def test_a_source_that_answers_something_else_is_refused(answer: Any) -> None:
    with raises("E-INPUT", "members"):
        expanded([Faulty(answer)])


@pytest.mark.parametrize("sources", [[], "words", [object()], None, 7])
def test_what_is_no_source_is_refused(sources: Any) -> None:
    with raises("E-INPUT", "sources"):
        expanded(sources)


def test_an_encoder_by_name_is_refused() -> None:
    with raises("E-INPUT-TYPE", "encoder"):
        expanded([WordListSource(["Chile"])], encoder="minilm")


def test_sources_without_anything_new_are_refused() -> None:
    with raises("E-CONCEPT", "sources") as caught:
        expanded([WordListSource(["Friday", "spain"])])
    assert "Friday" not in str(caught.value)


def test_a_concept_of_labels_has_no_places() -> None:
    with raises("E-CONCEPT", "concept"):
        Concept.from_labels("topic", ["a"] * 30).expand(
            ["x"] * 30, sources=[WordListSource(["Chile"])]
        )
