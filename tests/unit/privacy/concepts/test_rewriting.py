"""Removing spans tidies where they were and nowhere else; redacting keeps the length."""

from __future__ import annotations

import pytest

from vecveil.privacy.concepts import Span, merge_spans, remove


def spans_of(text: str, *parts: str) -> list[Span]:
    return merge_spans(text, [Span(text.index(p), text.index(p) + len(p), "x") for p in parts])


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("He took aspirin today.", ["aspirin"], "He took today."),
        ("He took aspirin.", ["aspirin"], "He took."),
        ("He took aspirin, then slept", ["aspirin"], "He took, then slept"),
        ("Aspirin helps", ["Aspirin"], "helps"),
        ("took aspirin", ["aspirin"], "took"),
        ("took aspirin ibuprofen now", ["aspirin", "ibuprofen"], "took now"),
        ("took aspirin ibuprofen.", ["aspirin", "ibuprofen"], "took."),
        ("a\naspirin\nb", ["aspirin"], "a\nb"),
        ("dose (aspirin 5 mg) daily", ["aspirin"], "dose (5 mg) daily"),
        ("dose (5 mg aspirin) daily", ["aspirin"], "dose (5 mg) daily"),
        ("aspirin/ibuprofen", ["aspirin"], "/ibuprofen"),
        ("two  spaces stay aspirin here", ["aspirin"], "two  spaces stay here"),
        ("spaced , aspirin , style", ["aspirin"], "spaced , , style"),
        ("aspirin", ["aspirin"], ""),
        (" ends are stripped ", [], "ends are stripped"),
        ("use aspirin .NET", ["aspirin"], "use .NET"),
    ],
)
def test_removal(text: str, parts: list[str], expected: str) -> None:
    assert remove(text, spans_of(text, *parts)) == expected


def test_merging_unites_overlaps_and_keeps_neighbours_apart() -> None:
    text = "new york times square"
    merged = merge_spans(text, [Span(4, 14, "b"), Span(0, 8, "a"), Span(14, 21, "c"), Span(1, 2, "d")])
    assert [(s.start, s.end, s.label, s.term) for s in merged] == [
        (0, 14, "b", "new york times"),
        (14, 21, "c", "square"),
    ]
