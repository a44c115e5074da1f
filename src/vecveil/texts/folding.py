"""Fold texts, so that spellings which encoders see as equal are equal, and map offsets back.

The rules are those of BERT's tokenizer, plus the compatibility forms that other tokenizers unify:

- control, format, private-use and other invisible characters are left out;
- a run of whitespace is one space;
- apostrophes are ``'``, hyphens and dashes ``-``;
- characters are decomposed (NFD), full-width letters, ligatures and superscript digits replaced by plain ones;
- case and accents are ignored, unless the caller keeps them.

`fold` returns the form in which terms are matched, `plain` the form that other detectors read, `canonical` the form in
which words are counted. `offsets` maps folded characters to their origin, `original` a match to its span.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded in UTF-8
# Control and format characters except whitespace, fillers, surrogates, private use, U+FFFD, and the marks that
# select a glyph (variation selectors, the grapheme joiner).
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ufffd\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff"
)
UNSEEN = re.compile(f"[{_INVISIBLE}]")
_TAIL = re.compile(rf"\s[\s{_INVISIBLE}]*\Z")
_RUN = re.compile(r"(?: \s|[^\S ])\s*")  # whitespace that is not exactly one space
# BERT drops these, other tokenizers take them for spaces.
_PAGE_BREAKS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_APOSTROPHES = re.compile("[`´ʼ‘’‛′＇]")
_HYPHENS = re.compile("[‐‑‒–—―−﹣－]")
_LETTERS = re.compile("[^\\W\x00-\x7f]+|[\u3371-\u33df\uff01-\uff5e]+")  # digits, units in one character, full width
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character class of the scripts written without spaces (Thai, Lao, Burmese, Khmer, kana, CJK ideographs), in which any
character may begin or end a word."""
SPACELESS = re.compile(f"[{UNSPACED}]")
# Characters that may join the one before them when they are composed, in addition to marks: jamo and half-width signs.
_JOINING = "\u1160-\u11ff\u3131-\u318e\ud7b0-\ud7ff\uff9e-\uffdc"


@lru_cache(maxsize=8)
def _characters(categories: str, further: str = "") -> str:
    """Return a pattern of the characters in some categories or in the character class ``further``."""
    # Made with the first text outside ASCII: the search takes 20 ms.
    basic, other = "", ""
    for i in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(i)) in categories:
            basic, other = (basic + chr(i), other) if i < 0x10000 else (basic, other + chr(i))
    # A class with ranges beyond the basic plane is a hundred times slower.
    return f"(?:[{basic}{further}]|(?=[\U00010000-\U0010ffff])[{other}])"


@lru_cache(maxsize=1)
def _accents() -> re.Pattern[str]:
    return re.compile(_characters("Mn", "\u1734") + "+")


@lru_cache(maxsize=1)
def clusters() -> re.Pattern[str]:
    """Return the pattern of a character and those that may be composed with it."""
    return re.compile(f"(?s).(?:{_characters('Mn Mc Me')}|[{_JOINING}]|{UNSEEN.pattern})*")


def without_surrogates(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD; offsets stay the same."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def fold(text: str, *, case_sensitive: bool = False, accent_sensitive: bool = True, lines: bool = False) -> str:
    """Return ``text`` decomposed (NFD), without the differences that the module lists.

    ``lines`` folds a run of whitespace that contains a line break to a line break instead of a space.
    """
    # Before the ASCII test: NUL and other control characters are ASCII.
    text = UNSEEN.sub("", text)
    if text.isascii():
        folded = (text if case_sensitive else text.lower()).replace("`", "'")
    else:
        folded = unicodedata.normalize("NFD", text)
        if not unicodedata.is_normalized("NFKD", folded):
            # Letters and digits only: a trade mark sign must not become letters of the word before it.
            folded = _LETTERS.sub(lambda run: "".join(map(_unified, run[0])), folded)
        if not accent_sensitive:
            folded = _accents().sub("", folded)
        # Decomposed before: casefolding must see base letters and marks apart (Unicode D145).
        folded = unicodedata.normalize("NFD", folded if case_sensitive else folded.casefold())
        folded = _HYPHENS.sub("-", _APOSTROPHES.sub("'", folded))
    return _RUN.sub(_line_or_space, folded) if lines else _RUN.sub(" ", folded)


@lru_cache(maxsize=4096)
def _unified(char: str) -> str:
    """Return the plain form of a letter, digit or full-width sign; a fraction or "(1)" in one character stays."""
    form = unicodedata.normalize("NFKD", char)
    whole = "\uff01" <= char <= "\uff5e"  # full width, punctuation too
    whole = whole or all(piece.isalnum() or piece in "\u3099\u309a" for piece in form)  # the marks of half-width kana
    return form if whole else unicodedata.normalize("NFD", char)


def _line_or_space(run: re.Match[str]) -> str:
    return "\n" if "\n" in run[0] or "\r" in run[0] or "\u2028" in run[0] or "\u2029" in run[0] else " "


def plain(text: str) -> str:
    """Return ``text`` folded for detectors that read texts: composed (NFC), with its case, accents and lines."""
    folded = fold(text, case_sensitive=True, lines=True)
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def canonical(text: str) -> str:
    """Return the counted form of a term: folded, composed (NFC), ends stripped."""
    folded = fold(text).strip()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def offsets(text: str, *, case_sensitive: bool = False, accent_sensitive: bool = True) -> list[int]:
    """Return for each character of ``fold(text)`` its offset in ``text``, and ``len(text)`` at the end.

    The offsets never decrease. A folded run of whitespace maps to the first character of the run. Folding may reorder
    combining marks; their offsets stay in the order of the text, because no word begins or ends between them.
    """
    # The same steps as in `fold`, one character at a time: decomposition never merges characters.
    pieces = ((i, _folded(char, case_sensitive, accent_sensitive)) for i, char in enumerate(text))
    return [*_origins(pieces), len(text)]


@lru_cache(maxsize=16384)
def _folded(char: str, case_sensitive: bool, accent_sensitive: bool) -> str:
    return fold(char, case_sensitive=case_sensitive, accent_sensitive=accent_sensitive)


def plain_offsets(text: str) -> list[int]:
    """Return for each character of ``plain(text)`` its offset in ``text``, and ``len(text)`` at the end."""
    pieces = ((match.start(), plain(match[0])) for match in clusters().finditer(text))
    return [*_origins(pieces), len(text)]


def _origins(pieces: Iterator[tuple[int, str]]) -> Iterator[int]:
    before = ""
    for i, piece in pieces:
        for char in piece:
            if not (char.isspace() and before.isspace()):
                yield i
            before = char


def original(text: str, origin: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """Return the span of ``text`` that was folded to the characters from ``start`` to ``end``.

    It includes invisible characters and accents inside and behind the match, but no whitespace behind it.
    """
    first, last = origin[start], origin[end - 1]
    # One character may have become several: the span ends before the next that has a different origin.
    while origin[end] == last:
        end += 1
    stop = origin[end]
    tail = _TAIL.search(text, last + 1, stop)
    return first, tail.start() if tail else stop


def without_page_breaks(text: str) -> tuple[str, list[int]] | None:
    """Return ``text`` without vertical tabs, form feeds and similar, and its offsets; None if it has none."""
    if not _PAGE_BREAKS.search(text):
        return None
    origin = [i for i, char in enumerate(text) if not _PAGE_BREAKS.match(char)]
    return "".join(text[i] for i in origin), [*origin, len(text)]


def is_mark(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char)[0] == "M"
