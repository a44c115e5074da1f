"""Match texts: terms of a list, words, and the spans that detectors return."""

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
from vecveil.texts.folding import (
    SPACELESS,
    UNSEEN,
    UNSPACED,
    canonical,
    clusters,
    fold,
    is_mark,
    offsets,
    original,
    plain,
    plain_offsets,
    without_page_breaks,
    without_surrogates,
)
from vecveil.validation import check_sequence

_BY_SCRIPT = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")


def free_space(terms: Iterable[str]) -> re.Pattern[str] | None:
    """Return the pattern of a space in a folded text beside a sign of ``terms`` that is a token by itself.

    Such a space separates nothing: tokenizers give "St.John's" and "St. John 's" the same tokens. A sign is punctuation
    or a character of a script without spaces; None if no term has one.
    """
    signs = {char for term in terms for char in term if _is_sign(char)}
    if not signs:
        return None
    unspaced = any(map(SPACELESS.match, signs))
    inside = re.escape("".join(sorted(sign for sign in signs if not SPACELESS.match(sign))))
    inside += UNSPACED if unspaced else ""
    return re.compile(f" (?:(?=[{inside}])|(?<=[{inside}] ))")


def _is_sign(char: str) -> bool:
    if char.isascii():
        return not (char.isalnum() or char.isspace())
    return unicodedata.category(char)[0] == "P" or SPACELESS.match(char) is not None


def is_boundary(folded: str, position: int) -> bool:
    """Return whether a word may begin or end before ``folded[position]``: unless both neighbours belong to words.

    A combining mark belongs to its base letter; in scripts without spaces every character is a word.
    """
    if position <= 0 or position >= len(folded):
        return True
    char = folded[position]
    # A combining mark belongs to the letter before it.
    if is_mark(char):
        return False
    if not _joins(char):
        return True
    # Skip the marks to reach their letter.
    before = position - 1
    while before and is_mark(folded[before]):
        before -= 1
    return not _joins(folded[before])


def _joins(char: str) -> bool:
    return char.isalnum() and (char.isascii() or not SPACELESS.match(char))


def whole_characters(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span grown over the marks and invisible characters that belong to its first and last character."""
    if text.isascii():
        return start, end
    while start and is_mark(text[start]):
        start -= 1
    while end < len(text) and (is_mark(text[end]) or UNSEEN.match(text[end])):
        end += 1
    return start, end


@lru_cache(maxsize=65536)
def words(term: str) -> tuple[str, ...]:
    """Return the words of a canonical ``term``: letters, digits, marks and inner apostrophes."""
    kept = [char if char.isalnum() or char == "'" or is_mark(char) else " " for char in term]
    pieces = (word.strip("'") for word in "".join(kept).split())
    return tuple(word for word in pieces if any(char.isalnum() for char in word))


class WordSplitter:
    """Splits canonical texts into words, and finds ``known`` words inside scripts that are written without spaces.

    Between known words, such a script yields the overlapping pairs of its characters. A word that differs from a known
    one only by accents, or by a part before or behind an apostrophe ("aspirin's"), counts as the known one.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = frozenset(known)
        self._unaccented = {fold(word, accent_sensitive=False): word for word in sorted(self._known)}
        self._sizes = sorted({len(word) for word in self._known if SPACELESS.search(word)}, reverse=True)

    def __call__(self, text: str) -> list[str]:
        result: list[str] = []
        for word in words(text):
            if word in self._known:
                result.append(word)
            elif not word.isascii() and SPACELESS.search(word):
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
        characters = clusters().findall(part)
        if not SPACELESS.match(part) or len(characters) == 1:
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
        term: The match in canonical form (``canonical``); it is text, so the repr omits it.
    """

    start: int
    end: int
    label: str
    term: str = field(default="", repr=False)


@runtime_checkable
class Detector(Protocol):
    """Protocol of detectors: one list of spans per text, in the order of the texts.

    A text with typographic spaces, line breaks or invisible characters is passed to a detector again in its `plain`
    form, and a third time on one line. Optional attributes change this when True: ``lines`` omits the form on one line,
    and ``folds`` both. ``positional`` is for spans that belong to texts by position: ``detect`` gets all texts at once,
    as written.
    """

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text; they may overlap and come in any order."""
        ...


def merge_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Return ``spans`` sorted, with overlapping ones merged; every result has its ``term``.

    A span grows over the marks and invisible characters of its first and last character. A merged span takes the label
    of its longest part (the first of equals).
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
            # The longest part labels the merged span; the earlier one wins a tie.
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
    """Return a detector's result after checking that it has a list per text and every span lies inside its text."""
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

    Of the whitespace on both sides of a span, one space remains (or a line break, if there was one); none before
    closing punctuation or behind an opening bracket. Other whitespace stays, except at the ends of the text.
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
    """Return ``text`` with every character of its sorted, disjoint spans replaced by ``*``."""
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
    """Return the spans of each text, sorted and merged; ``name`` labels the progress bar."""
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
    """Return ``rests`` without the new matches that the first removal joined."""
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
    """Map spans of a folded text to ``text``; drop those that only extend a known one beyond its line."""
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
    ``accent_sensitive``. Always equal are composed and decomposed characters, full-width and plain letters, any run of
    whitespace and one space, a space next to punctuation and none ("St. John 's", "St.John's"), and typographic and
    plain apostrophes and hyphens. Invisible characters are ignored. ``art`` matches in ``art's``, ``art-house`` and
    ``smart_art``, not in ``party``. Of nested matches the longest whole word counts.

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
        # Equal spellings of a term share one pattern; spans report the first spelling.
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
        return {"kind": "terms", "terms": len(self), "case_sensitive": self.case_sensitive}

    def keeping_accents(self) -> TermDetector:
        """Return the detector for an encoder that keeps accents; an explicit ``accent_sensitive`` stays."""
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
        # A page break may split a word.
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
    """Return start, negative end and number of each pattern that occurs in ``folded`` as whole words."""
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
        # Leftmost-longest matching would drop a term inside a longer one that is not a whole word.
        matchkind=ahocorasick_rs.MatchKind.Standard,
        store_patterns=False,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
