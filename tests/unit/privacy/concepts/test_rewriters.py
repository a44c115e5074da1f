"""Rewriters: what takes a concept's place, that it does not depend on what stood there, and how they are saved."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError, ReleaseError
from vecveil.privacy.concepts import Concept, PatternDetector, Span, TermDetector
from vecveil.privacy.concepts.concept import concept_from_record, concept_record
from vecveil.privacy.concepts.rewriting import (
    Redacting,
    ReplacingAtRandom,
    ReplacingByMembers,
    Rewriter,
    _written_like,
    made_up_members,
)

DRUGS = ["aspirin", "codeine", "heparin", "insulin", "vitamin d"]
WORDS = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(5) for j in range(6)]
CONCEPT = Concept.from_terms("drug", DRUGS)


def texts_of(count: int = 200, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = list(rng.choice(WORDS, size=6))
        if i % 2:
            words.insert(int(rng.integers(6)), str(rng.choice(DRUGS)))
        rows.append(" ".join(words))
    return rows


@pytest.fixture(scope="module")
def rewriters() -> dict[str, Rewriter]:
    matches = CONCEPT.find(texts_of())
    return {
        "redact": Redacting(CONCEPT),
        "replace-random": ReplacingAtRandom.of(matches, CONCEPT),
        "replace-semantic": ReplacingByMembers.of(matches, CONCEPT),
    }


def test_redaction_blackens_characters(rewriters: dict[str, Rewriter]) -> None:
    texts = ["Take Aspirin, then vitamin  D.", "nothing here"]
    assert rewriters["redact"].rewrite(texts) == ["Take *******, then **********.", "nothing here"]


def test_random_words_come_from_the_texts_and_not_from_the_concept(rewriters: dict[str, Rewriter]) -> None:
    rewriter = rewriters["replace-random"]
    assert isinstance(rewriter, ReplacingAtRandom)
    assert set(rewriter.words) == set(WORDS)
    (out,) = rewriter.rewrite(["take vitamin D now"])
    first, one, two, last = out.split(" ")
    assert (first, last) == ("take", "now")
    assert {one, two} <= set(WORDS)


def test_spellings_that_encoders_cannot_tell_apart_are_rewritten_whole(rewriters: dict[str, Rewriter]) -> None:
    spellings = ("Vita\u200bmin\ufe0f\u00a0D\u0301", "vitamin  d", "VITAMIN\nD\u200d")
    texts = [f"take {spelling} now" for spelling in spellings]
    for kind, rewriter in rewriters.items():
        for text, written in zip(texts, rewriter.rewrite(texts), strict=True):
            before, after = written[:5], written[-4:]
            assert (before, after) == ("take ", " now")
            assert kind != "redact" or written == "take " + "*" * (len(text) - 9) + " now"
            assert kind != "replace-random" or len(written.split()) == 4
            assert not CONCEPT.detect([written])[0] or kind == "replace-semantic"


def test_given_spans_take_the_marks_of_their_last_letter() -> None:
    texts = ["Zoe\u0308 sleeps", "I saw Zoe\u200d\ufe0f."]
    spans = [[Span(0, 3, "PER")], [Span(6, 9, "PER")]]
    assert Redacting(CONCEPT).rewrite(texts, spans=spans) == ["**** sleeps", "I saw *****."]
    assert Concept.from_spans("x", spans).detect(texts) == [[Span(0, 4, "PER", "zoë")], [Span(6, 11, "PER", "zoe")]]


def test_members_take_the_place_of_members(rewriters: dict[str, Rewriter]) -> None:
    out = rewriters["replace-semantic"].rewrite(["aspirin and codeine, Aspirin again"])[0]
    first, second, again = out.replace(" and ", ",").replace(" again", "").split(",")
    assert {first, second} <= set(DRUGS)
    assert again.strip() == first != second


@pytest.mark.parametrize("kind", ["redact", "replace-random", "replace-semantic"])
def test_what_comes_out_does_not_depend_on_what_stood_there(kind: str, rewriters: dict[str, Rewriter]) -> None:
    rewriter = rewriters[kind]
    outs = [rewriter.rewrite([f"she takes {drug} daily"])[0] for drug in ("aspirin", "codeine")]
    assert outs[0] == outs[1]
    twice = texts_of(40, seed=3)
    assert rewriter.rewrite(twice) == rewriter.rewrite(twice)
    assert rewriter.rewrite(twice) == [rewriter.rewrite([text])[0] for text in twice]


@pytest.mark.parametrize("kind", ["replace-random", "replace-semantic"])
def test_other_texts_and_seeds_draw_anew(kind: str, rewriters: dict[str, Rewriter]) -> None:
    rewriter = rewriters[kind]
    texts = [f"patient {i} takes aspirin" for i in range(60)]
    drawn = {out.split("takes ")[1] for out in rewriter.rewrite(texts)}
    assert len(drawn) > 3
    other = dataclasses.replace(rewriter, seed=1)
    assert other.rewrite(texts) != rewriter.rewrite(texts)


def test_a_type_without_members_is_blackened() -> None:
    rewriter = ReplacingByMembers(CONCEPT, members={"other": ("a", "b")})
    assert rewriter.rewrite(["take aspirin"]) == ["take *******"]


class Places:
    """Finds words in capitals, labelled by their first letter."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(*m.span(), m.group()[0]) for m in re.finditer(r"\b[A-Z]{2,}\b", text)] for text in texts]


def test_members_stay_within_their_type() -> None:
    concept = Concept("place", (Places(),))
    texts = ["from BONN to KIEL", "from BERN to KOELN", "in BASEL", "in KREMS"] * 10
    matches = concept.find(texts, min_texts=1)
    out = ReplacingByMembers.of(matches, concept).rewrite(texts)
    for before, after in zip(texts, out, strict=True):
        kinds = [[w[0] for w in text.split() if w.isupper()] for text in (before, after)]
        assert kinds[0] == kinds[1]


def test_what_the_replacement_joins_is_blackened() -> None:
    """The pattern spans a gap that the first pass closes with a word that it matches as well."""
    concept = Concept("code", (PatternDetector([r"secret", r"x\*+y"]),))
    assert Redacting(concept).rewrite(["xsecrety"]) == ["********"]


def test_what_cannot_be_blackened_is_not_returned() -> None:
    concept = Concept.from_patterns("stars", [r"\*+|secret"])
    with pytest.raises(ReleaseError, match=r"1 of 2 texts .* nothing was returned") as caught:
        Redacting(concept).rewrite(["my secret", "open"])
    assert "my" not in str(caught.value).split("texts")[0]


def test_given_spans_are_used_and_checked() -> None:
    rewriter = Redacting(Concept.from_spans("drug", [[{"start": 0, "end": 2}]]))
    assert rewriter.needs_spans
    with raises("E-INPUT", "spans"):
        rewriter.rewrite(["ab cd"])
    assert rewriter.rewrite(["ab cd"], spans=[[Span(0, 2, "x")]]) == ["** cd"]
    assert rewriter.rewrite(["ab cd"], spans=[[Span(1, 4, "x"), Span(0, 2, "x")]]) == ["****d"]
    for wrong in ([[Span(0, 9, "x")]], []):
        with pytest.raises(InvalidInputError):
            rewriter.rewrite(["ab cd"], spans=wrong)


def test_a_concept_of_labels_names_nothing_to_rewrite() -> None:
    with raises("E-CONCEPT", "concept"):
        Redacting(Concept.from_labels("mood", ["a", "b"])).rewrite(["x", "y"])


def test_too_few_words_or_members_are_refused() -> None:
    texts = ["take aspirin now"] * 3 + [f"take aspirin {i}" for i in range(30)]
    matches = CONCEPT.find(texts)
    with raises("E-CONCEPT", "texts"):
        ReplacingAtRandom.of(matches, CONCEPT)
    with raises("E-CONCEPT", "texts"):
        ReplacingByMembers.of(matches, CONCEPT)


def test_made_up_members_are_repeatable_and_unknown_types_refused() -> None:
    state = random.getstate()
    members = made_up_members(["PERSON", "EMAIL_ADDRESS"], count=20, seed=1)
    assert random.getstate() == state
    assert members == made_up_members(["EMAIL_ADDRESS", "PERSON"], count=20, seed=1)
    assert set(members) == {"PERSON", "EMAIL_ADDRESS"}
    assert all("@" in one for one in members["EMAIL_ADDRESS"])
    assert members != made_up_members(["PERSON", "EMAIL_ADDRESS"], count=20, seed=2)
    with raises("E-CONCEPT", "members") as caught:
        made_up_members(["PERSON", "term"])
    assert "'term'" not in str(caught.value)
    with raises("E-INPUT", "locales"):
        made_up_members(["PERSON"], locales=["xx_XX"])


SAVED = [
    lambda: Concept("drug", (TermDetector(["Aspirin", "vitamin D", "ﬁsh oil"], label="x"),)),
    lambda: Concept("drug", (TermDetector(["IT", "US"], case_sensitive=True),)),
    lambda: Concept.from_terms("accents", ["Bóx", "St. John's"], accent_sensitive=True),
    lambda: Concept.from_patterns("code", [r"\d+ ?mg", r"(?i)abc"], time_limit=1.0),
    lambda: Concept.combined("both", [CONCEPT, Concept.from_patterns("code", [r"\d+"])]),
    lambda: Concept.from_entities("mail", ["EMAIL_ADDRESS"]),
]
PROBE = [
    "Aspirin and VITAMIN  D, fish oil",
    "IT is it; US and us",
    "10 mg ABC",
    "to a@b.org",
    "box bo\u0301x",
    "St.John's",
]


@pytest.mark.slow
@pytest.mark.parametrize("make", SAVED, ids=["terms", "case", "accents", "patterns", "both", "entities"])
def test_a_saved_concept_finds_the_same(make: Callable[[], Concept]) -> None:
    concept = make()
    record = json.loads(json.dumps(concept_record(concept, owner="test")))
    again = concept_from_record(record)
    assert again.detect(PROBE) == concept.detect(PROBE)
    assert any(concept.detect(PROBE))
    assert concept_record(again, owner="test") == record


@pytest.mark.parametrize(
    "concept",
    [
        Concept("place", (Places(),)),
        Concept.from_spans("x", [[]]),
        Concept("x", spans_column="spans"),
        Concept.from_labels("x", ["a"]),
    ],
)
def test_other_concepts_are_not_saved(concept: Concept) -> None:
    with raises("E-CONCEPT", "concept"):
        concept_record(concept, owner="test")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "model", "name": "x"},
        {"kind": "patterns", "patterns": ["a"], "time_limit": 1e9, "label": "x"},
        {"kind": "terms", "terms": ["a"], "case_sensitive": 1, "label": "x"},
        {"kind": "terms", "terms": ["a"], "case_sensitive": True, "accent_sensitive": 0, "label": "x"},
        {"kind": "terms"},
    ],
)
def test_wrong_records_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        concept_from_record({"name": "x", "detectors": [wrong]})


def test_reprs_hold_no_text(rewriters: dict[str, Rewriter]) -> None:
    shown = " ".join(map(repr, rewriters.values()))
    assert not any(word in shown for word in (*DRUGS, *WORDS))


@pytest.mark.parametrize(
    ("member", "original", "expected"),
    [
        ("oslo", "Paris", "Oslo"),
        ("oslo", "PARIS", "OSLO"),
        ("Oslo", "paris", "Oslo"),
        ("new york", "Paris", "New york"),
        ("Chile", "Africa's", "Chile's"),
        ("Chile's", "Africa's", "Chile's"),
        ("norway", "USA’s", "NORWAY’s"),
        ("nine", "7", "nine"),
    ],
)
def test_a_surrogate_keeps_case_and_possessive(member: str, original: str, expected: str) -> None:
    assert _written_like(member, original) == expected
