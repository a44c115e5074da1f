"""Spans: where in a text a concept sits, and how several finds become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vecveil.concepts.folding import canonical
from vecveil.errors import InvalidInputError

__all__ = ["Detector", "Span", "checked_spans", "merge_spans"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of characters ``text[start:end]`` that belongs to a concept.

    Attributes:
        start: Offset of the first character.
        end: Offset behind the last character.
        label: The class of what was found, for example ``"term"`` or ``"PERSON"``.
        term: What was found in canonical form (``vecveil.concepts.folding.canonical``); it is text,
            so the repr leaves it out.
    """

    start: int
    end: int
    label: str
    term: str = field(default="", repr=False)


@runtime_checkable
class Detector(Protocol):
    """Anything that finds spans: one list per text, in the order of the texts."""

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text; they may overlap and come in any order."""
        ...


def merge_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Return ``spans`` sorted, with overlapping ones united, so that none overlaps another.

    A union takes the label of its longest part (the first of equals). Spans that only touch stay
    apart. Every span that comes out has its ``term``.
    """
    spans = list(spans)
    if len(spans) == 1 and spans[0].term:
        return spans
    merged: list[Span] = []
    longest = 0
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        length = span.end - span.start
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            label = span.label if length > longest else last.label
            longest = max(longest, length)
            if span.end > last.end:
                merged[-1] = Span(last.start, span.end, label)
            elif label != last.label:
                merged[-1] = Span(last.start, last.end, label, last.term)
        else:
            merged.append(span)
            longest = length
    return [
        s if s.term else Span(s.start, s.end, s.label, canonical(text[s.start : s.end]))
        for s in merged
    ]


def checked_spans(found: Any, texts: Sequence[str], *, owner: str) -> list[list[Span]]:
    """Return what a detector found, checked: a list for each text, every span inside its text."""
    if not isinstance(found, list) or len(found) != len(texts):
        size = f"{len(found)} lists" if isinstance(found, list) else type(found).__name__
        raise InvalidInputError.of(
            owner, "detect", f"returning a list of {len(texts)} lists, one a text", size
        )
    for row, (spans, text) in enumerate(zip(found, texts, strict=True)):
        for span in spans:
            if not isinstance(span, Span):
                got = f"{type(span).__name__} in row {row}"
                raise InvalidInputError.of(owner, "detect", "returning Span objects", got)
            if (
                0 <= span.start < span.end <= len(text)
                and type(span.start) is type(span.end) is int
            ):
                continue
            check_range(span.start, span.end, len(text), owner=owner, param="detect", row=row)
    return found


def check_range(
    start: Any, end: Any, length: int | None, *, owner: str, param: str, row: int
) -> None:
    """Raise unless both are integers with 0 ≤ start < end ≤ length (None: not known yet)."""
    for value in (start, end):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise InvalidInputError.of(owner, param, "spans whose start and end are integers",
                                       f"{type(value).__name__} in row {row}")  # fmt: skip
    if not 0 <= start < end or (length is not None and end > length):
        known = "" if length is None else f", length {length}"
        raise InvalidInputError.of(owner, param, "spans with 0 ≤ start < end ≤ length of the text",
                                   f"start {start}, end {end}{known} in row {row}",
                                   "Offsets count characters (code points), not bytes.")  # fmt: skip
