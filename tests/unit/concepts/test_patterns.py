"""Patterns: what compiles is found, what never ends is stopped, what is empty is refused."""

from __future__ import annotations

import pytest

from harness.errors import raises
from vecveil.concepts import PatternDetector
from vecveil.errors import InvalidInputError


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
    with pytest.raises(
        InvalidInputError
    ) as error:  # without a limit it takes longer than anybody waits
        detector.detect(["aaaaab", "ab" * 200 + "!"])
    assert "row 1, in the pattern at position 1" in str(error.value)
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
