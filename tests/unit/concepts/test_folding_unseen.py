"""Characters that nobody sees and that encoders drop hide no term."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from vecveil.concepts import Concept
from vecveil.concepts.folding import _UNSEEN, fold, offsets


@pytest.mark.parametrize("unseen", ["\u00ad", "\u200b", "\u200d", "\x00", "\ufeff", "\u2060"])
def test_a_term_with_one_inside_is_found(unseen: str) -> None:
    text = f"She took as{unseen}pirin daily."
    ((span,),) = Concept.from_terms("drug", ["aspirin"]).detect([text])
    assert text[span.start : span.end] == f"as{unseen}pirin"


def test_a_listed_term_may_have_one_too() -> None:
    ((span,),) = Concept.from_terms("drug", ["as\u00adpirin"]).detect(["Aspirin helps."])
    assert (span.start, span.end) == (0, 7)


def test_whitespace_is_not_among_them() -> None:
    assert fold("a\tb\nc") == "a b c"
    assert [detected for detected in Concept.from_terms("x", ["b"]).detect(["a\tb\nc"])[0]]


def test_every_control_and_format_character_is_among_them() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        if category != "Cn":  # assigned in this version of Unicode
            unseen = category in ("Cc", "Cf") and not char.isspace()
            assert bool(_UNSEEN.match(char)) == unseen, hex(code)


def test_offsets_agree_with_the_folded_text() -> None:
    text = "\u200bA\u00adb\x00 \u200d c\ufeff"
    assert len(offsets(text)) == len(fold(text)) + 1
    assert [text[i] for i in offsets(text)[:-1]] == ["A", "b", " ", "c"]
