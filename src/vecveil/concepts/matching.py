"""Match texts: which spellings are equal, the terms of a list, and the spans that detectors return.

Folding makes spellings equal which encoders see as equal, and maps offsets back. The rules are BERT's
tokenizer, and the compatibility forms that other tokenizers unify:

- control, format, private-use and other invisible characters are left out;
- a run of whitespace is one space;
- apostrophes are ``'``, hyphens and dashes ``-``;
- characters are decomposed (NFD), full-width letters, ligatures and superscript digits replaced by plain ones;
- upper and lower case are equal, and letters with and without accents are, unless the caller keeps them.

`fold` gives the form that terms are matched in, `plain` the form that other detectors read, `canonical` the form
that words are counted in. `offsets` maps folded characters to their origin, `original` a match to its span.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vecveil.errors import InvalidInputError, optional_import
from vecveil.runtime import progress
from vecveil.validation import check_sequence

_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded in UTF-8
# Control and format characters except whitespace, fillers, surrogates, private use, U+FFFD, and the marks that
# select a glyph (variation selectors, the grapheme joiner).
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ud800-\uf8ff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\ufffd\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff"
)
_UNSEEN = re.compile(f"[{_INVISIBLE}]")
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
_SPACELESS = re.compile(f"[{UNSPACED}]")
_BY_SCRIPT = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
# Characters that may join the one before them when they are composed, in addition to marks: jamo and half-width signs.
_JOINING = "\u1160-\u11ff\u3131-\u318e\ud7b0-\ud7ff\uff9e-\uffdc"


@lru_cache(maxsize=8)
def _characters(categories: str, further: str = "") -> str:
    """Return a pattern of the characters of some categories, and of those in the character class ``further``."""
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
def _clusters() -> re.Pattern[str]:
    """Return the pattern of a character and those that may be composed with it."""
    return re.compile(f"(?s).(?:{_characters('Mn Mc Me')}|[{_JOINING}]|{_UNSEEN.pattern})*")


def without_surrogates(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD; offsets stay the same."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def fold(text: str, *, case_sensitive: bool = False, accent_sensitive: bool = True, lines: bool = False) -> str:
    """Return ``text`` decomposed (NFD), with the differences that the module names removed.

    ``lines`` makes a run of whitespace with a line break in it a line break, not a space.
    """
    # Before the ASCII test: NUL and other control characters are ASCII.
    text = _UNSEEN.sub("", text)
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

    The offsets never decrease. A folded run of whitespace points to the first character of the run.
    Among combining marks, which folding may reorder, the offsets stay in the order of the text: no
    word begins or ends between them.
    """
    # The same steps as in `fold`, one character at a time: decomposition never merges characters.
    pieces = ((i, _folded(char, case_sensitive, accent_sensitive)) for i, char in enumerate(text))
    return [*_origins(pieces), len(text)]


@lru_cache(maxsize=16384)
def _folded(char: str, case_sensitive: bool, accent_sensitive: bool) -> str:
    return fold(char, case_sensitive=case_sensitive, accent_sensitive=accent_sensitive)


def plain_offsets(text: str) -> list[int]:
    """Return for each character of ``plain(text)`` its offset in ``text``, and ``len(text)`` at the end."""
    pieces = ((match.start(), plain(match[0])) for match in _clusters().finditer(text))
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

    Invisible characters and accents inside and behind the match belong to it, whitespace behind it does not.
    """
    first, last = origin[start], origin[end - 1]
    # One character may have become several: the span ends before the next that has a different origin.
    while origin[end] == last:
        end += 1
    stop = origin[end]
    tail = _TAIL.search(text, last + 1, stop)
    return first, tail.start() if tail else stop


def without_page_breaks(text: str) -> tuple[str, list[int]] | None:
    """Return ``text`` without vertical tabs, form feeds and the like, and its offsets; None if it has none."""
    if not _PAGE_BREAKS.search(text):
        return None
    origin = [i for i, char in enumerate(text) if not _PAGE_BREAKS.match(char)]
    return "".join(text[i] for i in origin), [*origin, len(text)]


def free_space(terms: Iterable[str]) -> re.Pattern[str] | None:
    """Return the pattern of a space in a folded text next to a sign of ``terms`` that is a token by itself.

    Tokenizers give "St.John's" and "St. John 's" the same tokens, so such spaces separate nothing. None if no term
    has such a sign: punctuation, or a character of a script without spaces.
    """
    signs = {char for term in terms for char in term if _is_sign(char)}
    if not signs:
        return None
    unspaced = any(map(_SPACELESS.match, signs))
    inside = re.escape("".join(sorted(sign for sign in signs if not _SPACELESS.match(sign))))
    inside += UNSPACED if unspaced else ""
    return re.compile(f" (?:(?=[{inside}])|(?<=[{inside}] ))")


def _is_sign(char: str) -> bool:
    if char.isascii():
        return not (char.isalnum() or char.isspace())
    return unicodedata.category(char)[0] == "P" or _SPACELESS.match(char) is not None


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
    return char.isalnum() and (char.isascii() or not _SPACELESS.match(char))


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span grown over the marks and invisible characters that belong to its first and last character."""
    if text.isascii():
        return start, end
    while start and _is_mark(text[start]):
        start -= 1
    while end < len(text) and (_is_mark(text[end]) or _UNSEEN.match(text[end])):
        end += 1
    return start, end


@lru_cache(maxsize=65536)
def words(term: str) -> tuple[str, ...]:
    """Return the words of a canonical ``term``: letters, digits, marks and inner apostrophes.

    Words without a letter or digit are dropped.
    """
    kept = [char if char.isalnum() or char == "'" or _is_mark(char) else " " for char in term]
    pieces = (word.strip("'") for word in "".join(kept).split())
    return tuple(word for word in pieces if any(char.isalnum() for char in word))


class WordSplitter:
    """Splits canonical texts into words, and finds known words inside scripts that are written without spaces.

    Between known words, such a script gives the overlapping pairs of its characters. A word that differs from a known
    one by accents alone, or by a part behind or before an apostrophe ("aspirin's"), counts as the known one.

    Args:
        known: canonical words.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = frozenset(known)
        self._unaccented = {fold(word, accent_sensitive=False): word for word in sorted(self._known)}
        self._sizes = sorted({len(word) for word in self._known if _SPACELESS.search(word)}, reverse=True)

    def __call__(self, text: str) -> list[str]:
        """Return the words of ``text``, in its order."""
        result: list[str] = []
        for word in words(text):
            if word in self._known:
                result.append(word)
            elif not word.isascii() and _SPACELESS.search(word):
                result += self._unspaced(word)
            else:
                bare = word if word.isascii() else fold(word, accent_sensitive=False)
                known = [self._unaccented[part] for part in (bare, *bare.split("'")) if part in self._unaccented]
                result += known or [word]
        return result

    def _unspaced(self, run: str) -> Iterator[str]:
        start = i = 0
        while i < len(run):
            size = next((n for n in self._sizes if run[i : i + n] in self._known), 0)
            if size:
                yield from _pairs(run[start:i])
                yield run[i : i + size]
                start = i + size
            i += size or 1
        yield from _pairs(run[start:])


def _pairs(run: str) -> Iterator[str]:
    """Yield pairs of adjacent characters of scripts without spaces, and the other words of ``run`` whole."""
    for part in _BY_SCRIPT.findall(run):
        characters = _clusters().findall(part)
        if not _SPACELESS.match(part) or len(characters) == 1:
            yield part
        else:
            yield from map("".join, pairwise(characters))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of characters ``text[start:end]`` that belongs to a concept.

    Attributes:
        start: Offset of the first character.
        end: Offset behind the last character.
        label: Class of the match, for example ``"term"`` or ``"PERSON"``.
        term: The match in canonical form (``canonical``); it is text, so the
            repr omits it.
    """

    start: int
    end: int
    label: str
    term: str = field(default="", repr=False)


@runtime_checkable
class Detector(Protocol):
    """Protocol of detectors: one list of spans per text, in the order of the texts.

    A text with typographic spaces, line breaks, invisible characters and the like is given to a detector again in the
    form `plain`, and once more on one line. Optional attributes that are True change this:
    ``lines`` leaves out the form on one line, and ``folds`` both. ``positional`` is for spans that belong to texts by
    position: ``detect`` gets all texts at once, as written.
    """

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text; they may overlap and come in any order."""
        ...


def merge_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Return ``spans`` sorted, with overlapping ones united; every result has its ``term``.

    A span grows over the marks and invisible characters of its first and last character. A union takes the label of
    its longest part (the first of equals).
    """
    spans = [_whole(text, span) for span in spans]
    # The common case: one match with its term already folded by its detector.
    if len(spans) == 1 and spans[0].term:
        return spans
    merged: list[Span] = []
    longest = 0
    # Sorted by start, a span overlaps the current union exactly if it starts before its end.
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        length = span.end - span.start
        # Spans that only touch stay apart: two adjacent terms are two mentions.
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            # The longest part names the union; the earlier one wins a tie.
            label = span.label if length > longest else last.label
            longest = max(longest, length)
            if span.end > last.end:
                merged[-1] = Span(last.start, span.end, label)
            elif label != last.label:
                merged[-1] = Span(last.start, last.end, label, last.term)
        else:
            merged.append(span)
            longest = length
    return [s if s.term else Span(s.start, s.end, s.label, canonical(text[s.start : s.end])) for s in merged]


def _whole(text: str, span: Span) -> Span:
    start, end = whole_characters(text, span.start, span.end)
    return span if (start, end) == (span.start, span.end) else Span(start, end, span.label, span.term)


def checked_spans(rows: Any, texts: Sequence[str], *, owner: str) -> list[list[Span]]:
    """Return a detector's result after checking it: a list for each text, every span inside its text."""
    if not isinstance(rows, list) or len(rows) != len(texts):
        size = f"{len(rows)} lists" if isinstance(rows, list) else type(rows).__name__
        raise InvalidInputError(
            f"{owner}.detect returned {size} for {len(texts)} texts; it must return a list of one list a text.",
            param="detect",
        )
    for row, (spans, text) in enumerate(zip(rows, texts, strict=True)):
        for span in spans:
            if not isinstance(span, Span):
                raise InvalidInputError(
                    f"{owner}.detect returned a {type(span).__name__} in row {row}; it must return Span objects.",
                    param="detect",
                )
            # The fast path for plain integers; check_range finds the exact fault of all others.
            if 0 <= span.start < span.end <= len(text) and type(span.start) is type(span.end) is int:
                continue
            check_range(span.start, span.end, len(text), owner=owner, param="detect", row=row)
    return rows


def check_range(start: Any, end: Any, length: int | None, *, owner: str, param: str, row: int) -> None:
    """Raise unless both are integers with 0 ≤ start < end ≤ length; None skips the length."""
    for value in (start, end):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise InvalidInputError(
                f"{owner}: a span in row {row} starts or ends at a {type(value).__name__}; both must be integers.",
                param=param,
            )
    if not 0 <= start < end or (length is not None and end > length):
        known = "" if length is None else f", length {length}"
        raise InvalidInputError(
            f"{owner}: a span needs 0 ≤ start < end ≤ length of the text; row {row} has start {start}, end "
            f"{end}{known}. Offsets count characters (code points), not bytes.",
            param=param,
        )


_CLOSING = frozenset(",.;:!?)]}…”»%、。，；：！？）」』】")
_OPENING = frozenset("([{“«（「『【")


def remove(text: str, spans: Iterable[Span]) -> str:
    """Return ``text`` without its sorted, disjoint spans, tidied at the seams.

    Where a span stood, one space (or line break, if there was one) remains of the whitespace on
    both sides; none before closing punctuation that followed the span, none behind a bracket that
    opened before it. Whitespace elsewhere stays, except at the ends of the text.
    """
    kept: list[str] = []
    position = 0
    for span in spans:
        kept.append(text[position : span.start])
        position = span.end
    if not kept:
        return text.strip()
    result = kept[0]
    for piece in [*kept[1:], text[position:]]:
        result = _seam(result, piece)
    return result.strip()


def _seam(left: str, right: str) -> str:
    head, tail = left.rstrip(), right.lstrip()
    before, after = left[len(head) :], right[: len(right) - len(tail)]
    if not tail:  # nothing but whitespace: the next seam, or the end, decides
        return head + (before + after if not (before and after) else _one(before + after))
    if before and after:
        return head + _one(before + after) + tail
    if before and tail[0] in _CLOSING:
        return head + tail
    # "(Anna Smith)" without its first name is "(Smith)", not "( Smith)".
    if after and head and head[-1] in _OPENING:
        return head + tail
    return left + right


def _one(whitespace: str) -> str:
    return "\n" if "\n" in whitespace else " "


def redact(text: str, spans: Iterable[Span]) -> str:
    """Return ``text`` with every character of its sorted, disjoint spans replaced by ``*``; the length stays."""
    return replace(text, spans, lambda span: "*" * (span.end - span.start))


def replace(text: str, spans: Iterable[Span], words: Callable[[Span], str]) -> str:
    """Return ``text`` with ``words(span)`` in place of each of its sorted, disjoint spans."""
    pieces: list[str] = []
    position = 0
    for span in spans:
        pieces += [text[position : span.start], words(span)]
        position = span.end
    return "".join([*pieces, text[position:]])


_CHUNK = 512  # texts per update of the progress bar


def detect_all(
    name: str, detectors: Sequence[Detector], texts: Sequence[str], show_progress: bool | None
) -> list[list[Span]]:
    """Return the spans of each text, sorted, overlapping ones united; ``name`` labels the progress bar."""
    rows: list[list[Span]] = [[] for _ in texts]
    # Given spans belong to texts by position, so their detector must see all texts at once.
    whole = [d for d in detectors if getattr(d, "positional", False)]
    for detector in whole:
        _add(rows, detector, texts, 0)
    piecewise = [d for d in detectors if d not in whole]
    starts = range(0, len(texts), _CHUNK) if piecewise else range(0)
    for start in progress(starts, f"Finding {name} in", show=show_progress, unit="block"):
        chunk = texts[start : start + _CHUNK]
        for detector in piecewise:
            _add(rows, detector, chunk, start)
    return [merge_spans(text, spans) for text, spans in zip(texts, rows, strict=True)]


def removed_again(detectors: Sequence[Detector], rests: list[str]) -> list[str]:
    """Return ``rests`` without the new matches that the first removal joined together."""
    # Given spans cannot match again: they belong to the original text.
    repeatable = tuple(d for d in detectors if getattr(d, "rescans", False))
    todo = list(range(len(rests))) if repeatable else []
    while todo:  # terminates: every round shortens its texts
        spans = detect_all("", repeatable, [rests[i] for i in todo], show_progress=False)
        for i, row in zip(todo, spans, strict=True):
            rests[i] = remove(rests[i], row)
        todo = [i for i, row in zip(todo, spans, strict=True) if row]
    return rests


def _add(rows: list[list[Span]], detector: Detector, texts: Sequence[str], start: int) -> None:
    owner = type(detector).__name__
    spans = [list(row) for row in checked_spans(detector.detect(texts), texts, owner=owner)]
    forms = [texts]
    if not (getattr(detector, "positional", False) or getattr(detector, "folds", False)):
        forms.append([plain(text) for text in texts])
        if not getattr(detector, "lines", False):
            forms.append([form.replace("\n", " ") for form in forms[1]])
    for i in range(1, len(forms)):
        # Most texts are in plain form already.
        new = [j for j, form in enumerate(forms[i]) if form and all(form != earlier[j] for earlier in forms[:i])]
        if new:
            folded = [forms[i][j] for j in new]
            again = checked_spans(detector.detect(folded), folded, owner=owner)
            for j, found in zip(new, again, strict=True):
                spans[j] += _placed(texts[j], found, spans[j])
    for row, own in enumerate(spans, start):
        rows[row] += own


def _placed(text: str, spans: list[Span], known: list[Span]) -> list[Span]:
    """Return the spans of a folded text in ``text``, without those that only lengthen a known one over its line."""
    if not spans:
        return []
    origin = plain_offsets(text)
    placed = [Span(*original(text, origin, span.start, span.end), span.label) for span in spans]
    begun = {(span.start, span.label) for span in known}
    # "Name: .*" ends with its line: on one line it would take the rest of the text.
    return [
        span
        for span in placed
        if (span.start, span.label) not in begun or len(text[span.start : span.end].splitlines()) == 1
    ]


# Translation table of bytes: 1 for the ASCII characters of words.
_JOINS = bytes(int(chr(i).isalnum()) if i < 128 else 0 for i in range(256))


class TermDetector:
    """Finds terms as whole words, in every spelling that gives an encoder the same tokens.

    Upper and lower case are equal unless ``case_sensitive``, letters with and without accents unless
    ``accent_sensitive``. Always equal are composed and decomposed characters, full-width and plain letters, any run
    of whitespace and one space, a space next to punctuation and none ("St. John 's", "St.John's"), and typographic and
    plain apostrophes and hyphens; invisible characters count for nothing. A match begins and ends at word boundaries
    (``is_boundary``): ``art`` is not found in ``party``, but in ``art's``, ``art-house`` and ``smart_art``; ``c++``
    is found in ``C++.``. Of nested matches the longest counts; a longer candidate that is not a whole word hides
    nothing.

    Args:
        terms: At least one term; duplicates count once.
        accent_sensitive: None ignores accents, unless `Concept.for_encoder` names an encoder that keeps them.

    Attributes:
        terms: The distinct terms as first written; they are text of the concept.
    """

    rescans = True  # results depend on the text alone, so texts after removal can be scanned again
    folds = True  # the detector folds spellings itself, so it gets each text as written

    def __init__(
        self,
        terms: Iterable[str],
        *,
        case_sensitive: bool = False,
        accent_sensitive: bool | None = None,
        label: str = "term",
        owner: str = "TermDetector",
    ) -> None:
        given = check_sequence(terms, "a sequence of strings", owner=owner, param="terms")
        self.case_sensitive = case_sensitive
        self.accent_sensitive = accent_sensitive
        self.label = label
        with optional_import("Finding terms", "ahocorasick_rs", "concepts"):
            import ahocorasick_rs  # noqa: F401
        written: list[tuple[str, str]] = []
        for i, term in enumerate(given):
            if not isinstance(term, str):
                raise InvalidInputError(
                    f"`terms` has a {type(term).__name__} at position {i}; it takes strings. In YAML, put quotes "
                    "around words like no, yes, on, null and around numbers.",
                    param="terms",
                )
            key = self._fold(term).strip()
            # A term of punctuation alone would match nearly everywhere.
            if all(unicodedata.category(char)[0] in "PZC" for char in key):
                raise InvalidInputError(f"The term at position {i} has no letter, digit or symbol.", param="terms")
            written.append((key, without_surrogates(term)))
        self._free_space = free_space(key for key, _ in written)
        # Two spellings of one term are one pattern; spans report the first spelling.
        folded: dict[str, str] = {}
        for key, term in written:
            key = self._free_space.sub("", key) if self._free_space else key
            folded.setdefault(key, term)
        if not folded:
            raise InvalidInputError("Give at least one of `terms`.", param="terms")
        self.terms = tuple(folded.values())
        self._keys = list(folded)
        self._terms = [canonical(term) for term in self.terms]

    def __len__(self) -> int:
        return len(self._terms)

    def __repr__(self) -> str:
        return f"TermDetector({len(self)} terms, case_sensitive={self.case_sensitive})"

    def describe(self) -> dict[str, Any]:
        """Return kind and counts, without any term."""
        return {"kind": "terms", "terms": len(self), "case_sensitive": self.case_sensitive}

    def keeping_accents(self) -> TermDetector:
        """Return the detector for an encoder that keeps accents; a given ``accent_sensitive`` stays."""
        if self.accent_sensitive is not None:
            return self
        return TermDetector(self.terms, case_sensitive=self.case_sensitive, accent_sensitive=True, label=self.label)

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the longest matches in each text, sorted; they may overlap but not nest."""
        return [self._spans(text) for text in texts]

    def _fold(self, text: str) -> str:
        return fold(text, case_sensitive=self.case_sensitive, accent_sensitive=bool(self.accent_sensitive))

    def _offsets(self, text: str) -> Sequence[int]:
        return offsets(text, case_sensitive=self.case_sensitive, accent_sensitive=bool(self.accent_sensitive))

    def _spans(self, text: str) -> list[Span]:
        matches = self._matches(text)
        # A page break inside a word hides it from people who read pages alone.
        if (joined := without_page_breaks(text)) is not None:
            whole, origin = joined
            matches += [(origin[start], -origin[-end - 1] - 1, term) for start, end, term in self._matches(whole)]
        # Sorted by start, longest first: a nested match ends at or before `reached`.
        matches.sort()
        spans: list[Span] = []
        reached = 0
        for start, minus_end, term in matches:
            end = -minus_end
            if end > reached:
                reached = end
                spans.append(Span(start, end, self.label, self._terms[term]))
        return spans

    def _matches(self, text: str) -> list[tuple[int, int, int]]:
        """Return start, negative end and term of every match in ``text``."""
        folded = self._fold(text)
        whole = _whole_words(self._matcher, folded)
        # ASCII folding keeps the length unless it collapsed whitespace: then offsets are equal.
        same = text.isascii() and len(folded) == len(text)
        matches = whole if same else []
        if whole and not same:
            origin = self._offsets(text)
            matches = [_in_text(text, origin, match) for match in whole]
        if self._free_space is None or (closed := self._free_space.sub("", folded)) == folded:
            return matches
        if further := _whole_words(self._sign_matcher, closed):
            gaps = {gap.start() for gap in self._free_space.finditer(folded)}
            origin = [i for place, i in enumerate(self._offsets(text)) if place not in gaps]
            matches = matches + [_in_text(text, origin, (a, b, self._with_sign[term])) for a, b, term in further]
        return matches

    @cached_property
    def _with_sign(self) -> list[int]:
        """The terms with a sign, next to which a text may have a space."""
        return [i for i, key in enumerate(self._keys) if free_space([key])]

    @cached_property
    def _matcher(self) -> Any:
        return _matcher(self._keys)

    @cached_property
    def _sign_matcher(self) -> Any:
        return _matcher([self._keys[i] for i in self._with_sign])


def _in_text(text: str, origin: Sequence[int], match: tuple[int, int, int]) -> tuple[int, int, int]:
    start, minus_end, term = match
    start, end = original(text, origin, start, -minus_end)
    return start, -end, term


def _whole_words(matcher: Any, folded: str) -> list[tuple[int, int, int]]:
    """Return start, negative end and number of each pattern that stands in ``folded`` as whole words."""
    candidates = matcher.find_matches_as_indexes(folded, overlapping=True)
    if not candidates:
        return []
    if folded.isascii():  # is_boundary for all candidates at once, on bytes
        # Padded by one byte on each side: position i of the text lies between joins[i] and joins[i + 1].
        joins = b"\0%b\0" % folded.encode("ascii").translate(_JOINS)
        return [
            (start, -end, term)
            for term, start, end in candidates
            if not (joins[start] and joins[start + 1]) and not (joins[end] and joins[end + 1])
        ]
    return [
        (start, -end, term)
        for term, start, end in candidates
        if is_boundary(folded, start) and is_boundary(folded, end)
    ]


def _matcher(patterns: list[str]) -> Any:
    with optional_import("Finding terms", "ahocorasick_rs", "concepts"):
        import ahocorasick_rs
    return ahocorasick_rs.AhoCorasick(
        patterns,
        # Leftmost-longest matching would drop a term inside a longer one that is no whole word.
        matchkind=ahocorasick_rs.MatchKind.Standard,
        store_patterns=False,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
