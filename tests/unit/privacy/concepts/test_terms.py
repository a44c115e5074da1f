"""Terms are found as whole words, in any case, composition and spacing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import Concept, TermDetector


def found(terms: list[str], text: str, **options: bool) -> list[str]:
    return [text[s.start : s.end] for s in TermDetector(terms, **options).detect([text])[0]]


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("aspirin", "Aspirin, ASPIRIN or aspirin's", ["Aspirin", "ASPIRIN", "aspirin"]),
        ("art", "party artful smart_art art-house", ["art", "art"]),
        ("c++", "C++. c++11 c+", ["C++", "c++"]),
        ("$", "costs $5", ["$"]),
        ("St. John's", "took st.\n  john’s wort", ["st.\n  john’s"]),
        ("new york", "New\u00a0York, new  york", ["New\u00a0York", "new  york"]),
        ("straße", "STRASSE Straße strasse", ["STRASSE", "Straße", "strasse"]),
        ("strasse", "in der Straße.", ["Straße"]),
        ("s", "ß ss s", ["s"]),
        ("İstanbul", "i̇stanbul İSTANBUL", ["i̇stanbul", "İSTANBUL"]),
        ("office", "the oﬃce oﬃcer", ["oﬃce"]),
        ("café", "cafe\u0301 CAFÉ cafe", ["cafe\u0301", "CAFÉ", "cafe"]),
        ("cafe\u0301", "café!", ["café"]),
        ("cafe", "café cafe\u0301 cafe", ["café", "cafe\u0301", "cafe"]),
        ("Crohn's disease", "crohn ʼs\ndisease Crohn´s disease", ["crohn ʼs\ndisease", "Crohn´s disease"]),
        ("co-trimoxazole", "co-\ntrimoxazole co − trimoxazole", ["co-\ntrimoxazole", "co − trimoxazole"]),
        ("H2O", "H₂O Ｈ２Ｏ h2o™", ["H₂O", "Ｈ２Ｏ", "h2o"]),
        ("aspirin", "as\x0cpirin aspirin\x0cPage", ["as\x0cpirin", "aspirin"]),
        ("aspirin", "as\u200bpirin\ufe0f.", ["as\u200bpirin\ufe0f"]),
        ("ά", "Ά α\u0301", ["Ά", "α\u0301"]),
        ("東京", "私は東京に住む", ["東京"]),
        ("か", "がか", ["が", "か"]),
        ("東京", "東 \n京 東-京", ["東 \n京"]),
        ("한국", "한국 한국어", ["한국"]),
        ("हिन्दी", "हिन्दी, हि", ["हिन्दी"]),
        ("co-op", "the co‑op", ["co‑op"]),
        ("😀", "nice😀day", ["😀"]),
        ("x", "\ud800 x", ["x"]),
        ("a\u0323\u0301", "a\u0301\u0323", ["a\u0301\u0323"]),
    ],
)
def test_what_counts_as_the_term(term: str, text: str, expected: list[str]) -> None:
    assert found([term], text) == expected


def test_accents_can_matter() -> None:
    assert found(["café"], "cafe\u0301 CAFÉ cafe", accent_sensitive=True) == ["cafe\u0301", "CAFÉ"]
    assert found(["か"], "がか", accent_sensitive=True) == ["か"]


@pytest.mark.parametrize(("keeps", "count"), [(True, 1), (False, 2), (None, 2)])
def test_accents_matter_as_they_do_to_the_encoder(keeps: bool | None, count: int) -> None:
    encoder = SimpleNamespace(keeps_accents=keeps)
    own, asked = (Concept.from_terms("x", ["résumé"], accent_sensitive=sensitive) for sensitive in (None, False))
    assert len(own.for_encoder(encoder).detect(["résumé resume"])[0]) == count
    assert len(asked.for_encoder(encoder).detect(["résumé resume"])[0]) == 2


def test_case_can_matter() -> None:
    assert found(["US"], "us US Us", case_sensitive=True) == ["US"]
    assert found(["US"], "us US Us") == ["us", "US", "Us"]
    assert found(["É"], "é É E\u0301", case_sensitive=True) == ["É", "E\u0301"]


def test_a_longer_candidate_inside_a_word_hides_nothing() -> None:
    assert found(["new york", "new yorkers club"], "new yorkers clubs") == []
    assert found(["new", "new york"], "new yorkers") == ["new"]
    assert found(["york", "new york"], "renew york") == ["york"]


def test_of_enclosing_matches_the_longest_counts_and_overlapping_ones_both() -> None:
    assert found(["york", "new york", "new"], "new york") == ["new york"]
    assert found(["new york", "york times"], "new york times") == ["new york", "york times"]


def test_the_term_is_canonical_and_the_repr_hides_it() -> None:
    detector = TermDetector(["Straße", "STRASSE", "Cafe\u0301"])
    spans = detector.detect(["STRASSE CAFÉ"])[0]
    assert [s.term for s in spans] == ["strasse", "café"]
    assert len(detector) == 2
    for shown in (repr(detector), repr(spans), str(detector.describe())):
        assert "stra" not in shown.lower()
        assert "caf" not in shown.lower()


@pytest.mark.parametrize(
    ("terms", "complaint"),
    [
        ("aspirin", "str"),
        (5, "int"),
        ([], "at least one"),
        (["ok", "  "], "position 1"),
        (["ok", " -. "], "position 1"),
        (["ok", False], "bool at position 1"),
        (["ok", 12], "int at position 1"),
    ],
)
def test_refused_terms(terms: object, complaint: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        TermDetector(terms)  # type: ignore[arg-type]
    assert complaint in str(error.value)
    assert "aspirin" not in str(error.value)


def test_accepted_terms_are_not_refused() -> None:
    assert len(TermDetector(["ok", "-5", "ß", "&co", "+"])) == 5
