"""Patterns: what compiles is found, what never ends is stopped, what is empty is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.privacy.concepts import Concept, PatternDetector, Span, redact


def test_matches_of_all_patterns_are_spans() -> None:
    text = "MRN 12345 and 99 mg, mrn 7"
    spans = PatternDetector([r"(?i)\bMRN \d+", r"\d+ ?mg"]).detect([text, "nothing"])
    assert [text[s.start : s.end] for s in spans[0]] == ["MRN 12345", "mrn 7", "99 mg"]
    assert spans[1] == []


def test_a_pattern_that_does_not_compile_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidInputError) as error:
        PatternDetector([r"\d+", "(secret"])
    assert "position 1" in str(error.value)
    assert "its character 7" in str(error.value)
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__


@pytest.mark.parametrize("pattern", ["a*", "", "(x|)", "a?"])
def test_a_pattern_that_matches_the_empty_string_is_refused(pattern: str) -> None:
    with raises("E-INPUT", "patterns"):
        PatternDetector(["a+", pattern])


def test_an_empty_match_inside_a_text_is_refused_too() -> None:
    detector = PatternDetector([r"(?=b)", "a+"])
    assert detector.detect(["ccc"]) == [[]]
    with raises("E-INPUT", "patterns"):
        detector.detect(["aab"])


def test_catastrophic_backtracking_is_one_clear_error_in_time() -> None:
    detector = PatternDetector([r"x", r"(?:(a|aa|b|ab)+)+$"], time_limit=0.2)
    with pytest.raises(InvalidInputError) as error:  # without a limit it takes longer than anybody waits
        detector.detect(["aaaaab", "ab" * 200 + "!"])
    assert "on the text in row 1" in str(error.value)
    assert "0.2 seconds" in str(error.value)
    assert "ab" * 3 not in str(error.value)


def test_the_same_pattern_on_an_easy_text_passes() -> None:
    assert len(PatternDetector([r"(?:(a|aa|b|ab)+)+$"]).detect(["aabab"])[0]) == 1


@pytest.mark.parametrize("patterns", ["a+", [], ["a", 3]])
def test_refused_patterns(patterns: object) -> None:
    with raises("E-INPUT", "patterns"):
        PatternDetector(patterns)  # type: ignore[arg-type]


def test_the_repr_has_no_pattern() -> None:
    detector = PatternDetector(["secret"])
    assert "secret" not in repr(detector) + str(detector.describe())
    assert detector.describe()["patterns"] == 1


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "2"])
def test_refused_time_limits(limit: object) -> None:
    with raises("E-INPUT", "time_limit"):
        PatternDetector(["a"], time_limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\b\d+ ?mg\b", "400\u00a0mg 5\u202fmg 6\u2009mg", ["400\u00a0mg", "5\u202fmg", "6\u2009mg"]),
        (r"\b\d+ ?mg\b", "7  mg 8\r\nmg 9\nmg 10㎎", ["7  mg", "8\r\nmg", "9\nmg", "10㎎"]),
        (r"\d{4}[ -]\d{4}", "1234\n5678, 1234\u20115678", ["1234\n5678", "1234\u20115678"]),
        (r"\bMüller\b", "Mu\u0308ller Müller", ["Mu\u0308ller", "Müller"]),
        ("\\bMu\u0308ller\\b", "Mu\u0308ller Müller", ["Mu\u0308ller", "Müller"]),
        (r"\w+@\w+\.org", "a@exam\u200bple.org\ufe0f.", ["a@exam\u200bple.org\ufe0f"]),
        (r"a[^ ]+", "ab  c ad\ne", ["ab", "ad"]),
        ("Name: .+", "Name:\u00a0Anna  B\nlives", ["Name:\u00a0Anna  B"]),  # ends with its line
        (r"(?x) a \ b  # comment", "a\u00a0b", ["a\u00a0b"]),
        (r"[[:alpha:] ]+ \N{LATIN SMALL LETTER E WITH ACUTE}", "ab  e\u0301", ["ab  e\u0301"]),
        (r"\d{2}\n\d", "12\n3", ["12\n3"]),
        ("\u200b", "a\u200bb", ["\u200b"]),
        ("O\u2019B?rien|\ufb01x", "O'Brien O\u02bcrien fix \ufb01x", ["O'Brien", "O\u02bcrien", "fix", "\ufb01x"]),
        ("4\u00a0mg|5[\u202f\u2011]+mg", "4\u2009mg 4\nmg 5-mg 5\nmg", ["4\u2009mg", "4\nmg", "5-mg", "5\nmg"]),
        (r"\w+@\w+\.org", "a\uff20b\uff0eorg", ["a\uff20b\uff0eorg"]),
    ],
)
def test_a_concept_finds_patterns_in_what_the_encoder_reads(pattern: str, text: str, found: list[str]) -> None:
    concept = Concept.from_patterns("x", [pattern])
    assert [text[s.start : s.end] for s in concept.detect([text], show_progress=False)[0]] == found


class Doses:
    """A detector of the user: a dose, or the rest of a line behind a name."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        return [[Span(m.start(), m.end(), "x") for m in re.finditer(r"\d+ mg|Name: .+", text)] for text in texts]


def test_a_detector_of_the_user_reads_folded_texts_too() -> None:
    text = "5\u00a0mg, 400\nmg\u200b. Name:\u00a0A\nB"
    concept = Concept("x", (Doses(),))
    spans = concept.detect([text, "5 mg"], show_progress=False)
    assert [text[s.start : s.end] for s in spans[0]] == ["5\u00a0mg", "400\nmg\u200b", "Name:\u00a0A"]
    assert redact(text, spans[0]) == "****, *******. *******\nB"
