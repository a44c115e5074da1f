"""On random Unicode text the matcher agrees with a slow one without automaton and offsets."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vecveil.concepts import Concept, TermDetector, merge_spans, redact, remove
from vecveil.concepts.folding import canonical, fold, is_boundary, offsets, words

ALPHABET = (
    "abBsStTiIßẞİıéÉe\u0301\u0323\u0307\u0345ᾳᾴſﬁﬃŉǰΐΣσςΆ한\u1112\u1161がか\u3099東京का"
    " \t\u00a0\n\u2000-‐'’+._5²½①😀≠\u0338\ud800"
)
TEXT = st.text(alphabet=ALPHABET, max_size=14) | st.text(max_size=14)
TERMS = st.lists(st.text(alphabet=ALPHABET, min_size=1, max_size=4), min_size=1, max_size=8)
# Few words, many phrases: matches overlap, touch and enclose one another.
WORD = st.sampled_from(["a", "ab", "ß", "é", "e\u0301", "\u0301"])
PHRASE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
PHRASES = st.lists(PHRASE, min_size=1, max_size=6)
SENTENCE = st.lists(WORD | st.just("ss-A"), max_size=6).map("  ".join)
CASES = st.tuples(TERMS, TEXT) | st.tuples(PHRASES, SENTENCE)


def usable(term: str) -> bool:
    return any(unicodedata.category(char)[0] not in "PZC" for char in fold(term).strip())


def slow_spans(terms: list[str], text: str, *, case_sensitive: bool) -> set[tuple[int, int]]:
    """Try every stretch of the text: is it a term, is it whole, does none enclose it?

    Where a stretch begins and ends in the folded text comes from folding what is before it.
    """

    def folded(part: str) -> str:
        return fold(part, case_sensitive=case_sensitive)

    keys = {folded(term).strip() for term in terms}
    whole = folded(text)
    hits = set()
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            ends = text[start], text[end - 1]
            if any(char.isspace() or not fold(char) for char in ends):  # unseen ones are in no word
                continue
            before, inside = len(folded(text[:start])), folded(text[start:end])
            after = before + len(inside)
            if (
                inside in keys
                and whole[before:after] == inside
                and whole == folded(text[:start]) + inside + folded(text[end:])
                and is_boundary(whole, before)
                and is_boundary(whole, after)
            ):
                hits.add((start, end))
    return {
        (a, b) for a, b in hits if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in hits)
    }


@settings(max_examples=1000, deadline=None)
@given(CASES, st.booleans())
@example((["ss"], "ß \u0301ss"), False)
@example((["ﬁ"], "ﬁ fi FI"), False)
@example((["\u0323\u0301"], "\u0301\u0323"), False)
@example((["a b", "b c"], "a b c"), False)
@example((["5"], "\x1b5"), False)
def test_agrees_with_trying_every_stretch(
    case: tuple[list[str], str], case_sensitive: bool
) -> None:
    terms, text = case
    terms = [term for term in terms if usable(term)] or ["a"]
    spans = TermDetector(terms, case_sensitive=case_sensitive).detect([text])[0]
    found = {(s.start, s.end) for s in spans}
    assert found == slow_spans(terms, text, case_sensitive=case_sensitive)


@settings(max_examples=500, deadline=None)
@given(TEXT, st.booleans())
def test_each_folded_character_has_its_origin(text: str, case_sensitive: bool) -> None:
    folded = fold(text, case_sensitive=case_sensitive)
    origin = offsets(text, case_sensitive=case_sensitive)
    assert len(origin) == len(folded) + 1
    assert origin[-1] == len(text)
    assert origin == sorted(origin)
    assert set(origin[:-1]) <= set(range(len(text)))
    before = ""  # the last character that can be seen
    for i, char in enumerate(
        text
    ):  # none vanishes but whitespace behind whitespace, and what nobody sees
        if not fold(char):
            continue
        assert i in origin[:-1] or (char.isspace() and before.isspace())
        before = char


@settings(max_examples=500, deadline=None)
@given(TERMS, TEXT)
def test_a_span_says_its_term(terms: list[str], text: str) -> None:
    terms = [term for term in terms if usable(term)] or ["a"]
    allowed = {canonical(term) for term in terms}
    for span in TermDetector(terms).detect([text])[0]:
        assert 0 <= span.start < span.end <= len(text)
        assert canonical(text[span.start : span.end]) == span.term
        assert span.term in allowed


@settings(max_examples=300, deadline=None)
@given(TEXT)
def test_folding_is_idempotent_and_composition_blind(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert canonical(canonical(text)) == canonical(text)
    decomposed = unicodedata.normalize("NFD", text)
    assert canonical(decomposed) == canonical(unicodedata.normalize("NFC", decomposed))
    assert all(" " not in word and any(map(str.isalnum, word)) for word in words(canonical(text)))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab cß-", min_size=1, max_size=5), min_size=1, max_size=5),
    st.text("ab cß-.,(", max_size=25),
)
def test_removal_leaves_no_term(terms: list[str], text: str) -> None:
    terms = [term for term in terms if usable(term)] or ["a"]
    concept = Concept.from_terms("x", terms)
    texts = [text, f"{terms[0]} zzz"]  # the second makes sure that something is found
    for rest in concept.find(texts, min_texts=1, show_progress=False).negatives():
        assert concept.detect([rest]) == [[]]


@settings(max_examples=300, deadline=None)
@given(TERMS, TEXT)
def test_rewriting_touches_spans_only(terms: list[str], text: str) -> None:
    terms = [term for term in terms if usable(term)] or ["a"]
    spans = merge_spans(text, TermDetector(terms).detect([text])[0])
    hidden = {i for s in spans for i in range(s.start, s.end)}
    kept = "".join(char for i, char in enumerate(text) if i not in hidden)
    removed, redacted = remove(text, spans), redact(text, spans)
    assert "".join(removed.split()) == "".join(kept.split())
    assert remove(removed, []) == removed
    assert "  " in text or "  " not in removed
    assert len(redacted) == len(text)
    assert all(redacted[i] == ("*" if i in hidden else char) for i, char in enumerate(text))
    assert redact(redacted, spans) == redacted


def test_the_slow_matcher_notices_a_wrong_one() -> None:
    """Negative control: without the whole-word rule, or with shifted offsets, the sets differ."""
    found = {(s.start, s.end) for s in TermDetector(["art"]).detect(["party ßart art"])[0]}
    assert found == slow_spans(["art"], "party ßart art", case_sensitive=False) == {(11, 14)}
    folded = fold("party ßart art")
    careless = {(i, i + 3) for i in range(len(folded)) if folded.startswith("art", i)}
    assert careless == {(1, 4), (8, 11), (12, 15)}
    assert careless != found
