"""Spans: find them with detectors, merge overlapping ones, and remove or replace them in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vecveil.concepts.folding import canonical, original, plain, plain_offsets, whole_characters
from vecveil.errors import InvalidInputError
from vecveil.runtime import progress


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of characters ``text[start:end]`` that belongs to a concept.

    Attributes:
        start: Offset of the first character.
        end: Offset behind the last character.
        label: Class of the match, for example ``"term"`` or ``"PERSON"``.
        term: The match in canonical form (``vecveil.concepts.folding.canonical``); it is text, so the
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
    form `vecveil.concepts.folding.plain`, and once more on one line. Optional attributes that are True change this:
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
    for start in progress(starts, f"finding {name}", show=show_progress, unit="block"):
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
