"""Texts that an encoder reads only in part: cut them to its window, or split them into windows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecveil.concepts.concept import Concept
from vecveil.concepts.matching import Span, remove, removed_again
from vecveil.concepts.pairs import ConceptMatches, Indices, build_matches
from vecveil.errors import ConceptError

ReadLengths = Callable[[Sequence[str]], list[int]]
"""Function from texts to the number of leading characters of each that the encoder reads."""

SPLIT = "Split long texts (in a fit long_texts='split', --long-texts split), or take an encoder with a longer window."
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+|(?<=[。！？])")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
    """Matches in what the encoder reads.

    Attributes:
        matches: of the windows.
        source: the text of each window.
        report: counts for a record; empty if the encoder reads every text to its end.
    """

    matches: ConceptMatches
    source: Indices
    report: dict[str, Any]

    @property
    def warning(self) -> str:
        """The report as a sentence; empty without long texts."""
        if not self.report:
            return ""
        many, unread = self.report["texts"], self.report["beyond"]
        if self.report["split"]:
            return f"{many} texts are longer than the encoder reads; they were split into windows."
        sentence = f"The encoder reads {many} of {self.report['of']} texts only in part; what it does not read was cut."
        if unread:
            sentence += f" {unread} of them hold the concept only in that part: they count as texts without it."
        return f"{sentence} {SPLIT}"


def within_window(
    concept: Concept, matches: ConceptMatches, read: ReadLengths | None, *, split: bool, min_texts: int, owner: str
) -> Windows:
    """Return the matches in the part of each text that the encoder reads, or in windows of long texts.

    A window ends between sentences, else between words, and never within a span.

    Args:
        read: of the encoder; None for one whose window is unknown.
        split: False cuts what lies beyond the window.

    Raises:
        ConceptError: fewer than ``min_texts`` texts hold the concept where the encoder reads it.
    """
    texts = matches.texts
    lengths = [len(text) for text in texts] if read is None else read(texts)
    long = [i for i, text in enumerate(texts) if text[lengths[i] :].strip()]
    if read is None or not long:
        return Windows(matches, np.arange(len(texts)), {})
    pieces = [[(0, len(text))] for text in texts]
    unfinished = {i: 0 for i in long}
    for i in long:
        pieces[i] = []
    while unfinished:
        rests = [texts[i][start:] for i, start in unfinished.items()]
        following = {}
        for (i, start), rest, length in zip(unfinished.items(), rests, read(rests), strict=True):
            end = len(texts[i])
            if rest[length:].strip():
                end = start + max(1, length)
                end = _border(texts[i], start, end, matches.spans[i], sentences=split)
                if split:
                    following[i] = end
            pieces[i].append((start, end))
        unfinished = following
    source = [i for i, parts in enumerate(pieces) for _ in parts]
    windows, spans = [], []
    for i, parts in enumerate(pieces):
        for start, end in parts:
            windows.append(texts[i][start:end])
            inside = (span for span in matches.spans[i] if start <= span.start and span.end <= end)
            spans.append(tuple(replace(span, start=span.start - start, end=span.end - start) for span in inside))
    labels = None if matches.labels is None else [matches.labels[i] for i in source]
    rests = [remove(text, row) for text, row in zip(windows, spans, strict=True) if row]
    rests = removed_again(concept.detectors, rests)
    holding = {i for i, row in zip(source, spans, strict=True) if row}
    before = [i for i in long if matches.spans[i]]
    beyond = sum(i not in holding for i in before)
    report = {"texts": len(long), "of": len(texts), "beyond": beyond, "split": split, "windows": len(windows)}
    try:
        found = build_matches(matches.name, windows, spans, rests, labels, min_texts=min_texts, owner=owner)
    except ConceptError as error:
        if not beyond:
            raise
        raise ConceptError(
            f"{owner}: {len(holding)} of {len(texts)} texts hold the concept {matches.name!r} in the part that the "
            f"encoder reads, and {beyond} only beyond it; at least {min_texts} must. {SPLIT}",
            code="E-CONCEPT-WINDOW",
            param="texts",
        ) from error
    return Windows(found, np.asarray(source), report)


def _border(text: str, start: int, end: int, spans: Sequence[Span], *, sentences: bool) -> int:
    """Return where the window from ``start`` ends: at most at ``end``, between sentences or words, in no span."""
    taken = [span for span in spans if span.start < end < span.end]
    end = taken[0].start if taken and taken[0].start > start else end
    for kind in (_SENTENCE, _SPACE) if sentences else (_SPACE,):
        if kind is _SPACE and text[end].isspace():
            break
        # The second half alone: a short window would hold too little beside the concept.
        places = [m.end() for m in kind.finditer(text, (start + end) // 2, end) if m.end() <= end]
        places = [place for place in places if not any(s.start < place < s.end for s in spans)]
        if places:
            return places[-1]
    return end
