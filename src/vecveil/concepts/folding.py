"""Fold case, Unicode composition, whitespace, apostrophes and hyphens of texts.

Two strings that fold to the same string are canonical caseless matches (Unicode 3.13, D145), with
runs of whitespace equal to one space, typographic apostrophes and hyphens equal to ``'`` and ``-``, and
control and format characters (soft hyphens, zero-width characters) left out. Folding may change the
length (ß, İ, ligatures, accents); :func:`offsets` maps folded characters to their origin.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_RUN = re.compile(r"(?: \s|[^\S ])\s*")  # whitespace that is not exactly one space
_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded in UTF-8
_PLAIN = {"’": "'", "‐": "-", "‑": "-"}
# Control and format characters (categories Cc and Cf) except whitespace. Encoders drop them, so a
# term with one inside must still match.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
# Scripts written without spaces: any character may begin or end a word.
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


def without_surrogates(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD; offsets stay the same."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def fold(text: str, *, case_sensitive: bool = False) -> str:
    """Return ``text`` decomposed (NFD), casefolded, with single spaces and no invisible characters."""
    # Before the ASCII test: NUL and other control characters are ASCII.
    text = _UNSEEN.sub("", text)
    if text.isascii():
        folded = text if case_sensitive else text.lower()
    else:
        folded = without_surrogates(text)
        for typographic, plain in _PLAIN.items():
            folded = folded.replace(typographic, plain)
        # Decompose first: casefolding must see base letters and marks apart (Unicode D145).
        folded = unicodedata.normalize("NFD", folded)
        if not case_sensitive:
            folded = unicodedata.normalize("NFD", folded.casefold())  # casefolding can yield composed characters
    return _RUN.sub(" ", folded)


def offsets(text: str, *, case_sensitive: bool = False) -> list[int]:
    """Return for each character of ``fold(text)`` its offset in ``text``, and ``len(text)`` at the end.

    The offsets never decrease. A folded run of whitespace points to the first character of the run.
    Among combining marks, which folding may reorder, the offsets stay in the order of the text: no
    word begins or ends between them.
    """
    result: list[int] = []
    spaces = False
    for i, char in enumerate(without_surrogates(text)):
        if _UNSEEN.match(char):
            continue
        if char.isspace():
            if not spaces:
                result.append(i)
            spaces = True
        else:
            spaces = False
            # The same steps as in `fold`, one character at a time: NFD never merges characters.
            pieces = unicodedata.normalize("NFD", char)
            if not case_sensitive:
                pieces = unicodedata.normalize("NFD", pieces.casefold())
            result.extend([i] * len(pieces))
    result.append(len(text))
    return result


def canonical(text: str) -> str:
    """Return the counted form of a term: folded, composed (NFC), ends stripped."""
    folded = fold(text).strip()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def is_boundary(folded: str, position: int) -> bool:
    """Return whether a word may begin or end before ``folded[position]``.

    True unless both neighbours belong to words. A combining mark belongs to its base letter; in
    scripts without spaces every character is a word.
    """
    if position <= 0 or position >= len(folded):
        return True
    char = folded[position]
    # A combining mark belongs to the letter before it.
    if _is_mark(char):
        return False
    if not _joins(char):
        return True
    # Skip the marks to reach their letter.
    before = position - 1
    while before and _is_mark(folded[before]):
        before -= 1
    return not _joins(folded[before])


def _is_mark(char: str) -> bool:
    return not char.isascii() and unicodedata.category(char)[0] == "M"


def _joins(char: str) -> bool:
    return (char.isalnum() or char == "_") and (char.isascii() or not _SPACELESS.match(char))


@lru_cache(maxsize=65536)
def words(term: str) -> tuple[str, ...]:
    """Return the words of a canonical ``term``: letters, digits, marks and inner apostrophes.

    Words without a letter or digit are dropped.
    """
    kept = [char if char.isalnum() or char in "_'" or _is_mark(char) else " " for char in term]
    pieces = (word.strip("'_") for word in "".join(kept).split())
    return tuple(word for word in pieces if any(char.isalnum() for char in word))
