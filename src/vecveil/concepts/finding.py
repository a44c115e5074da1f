"""Runs the detectors of a concept over texts, a block at a time."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.concepts.rewriting import remove
from vecveil.concepts.spans import Detector, Span, checked_spans, merge_spans
from vecveil.runtime import progress

__all__ = ["detect_all", "removed_again"]

_CHUNK = 512  # texts between two moves of the progress bar


def detect_all(
    name: str,
    detectors: Sequence[Detector],
    texts: Sequence[str],
    show_progress: bool | None,
) -> list[list[Span]]:
    """Return the spans of each text, sorted, overlapping ones united.

    Args:
        name: of the concept, for the progress bar.
    """
    found: list[list[Span]] = [[] for _ in texts]
    whole = [d for d in detectors if getattr(d, "positional", False)]
    for detector in whole:
        _add(found, detector, texts, 0)
    piecewise = [d for d in detectors if d not in whole]
    starts = range(0, len(texts), _CHUNK) if piecewise else range(0)
    for start in progress(starts, f"finding {name}", show=show_progress, unit="block"):
        chunk = texts[start : start + _CHUNK]
        for detector in piecewise:
            _add(found, detector, chunk, start)
    return [merge_spans(text, spans) for text, spans in zip(texts, found, strict=True)]


def removed_again(detectors: Sequence[Detector], rests: list[str]) -> list[str]:
    """Return ``rests`` after removing what the first removal has joined into a new match."""
    repeatable = tuple(d for d in detectors if getattr(d, "rescans", False))
    todo = list(range(len(rests))) if repeatable else []
    while todo:  # ends: every round makes its texts shorter
        spans = detect_all("", repeatable, [rests[i] for i in todo], show_progress=False)
        for i, row in zip(todo, spans, strict=True):
            rests[i] = remove(rests[i], row)
        todo = [i for i, row in zip(todo, spans, strict=True) if row]
    return rests


def _add(found: list[list[Span]], detector: Detector, texts: Sequence[str], start: int) -> None:
    spans = checked_spans(detector.detect(texts), texts, owner=type(detector).__name__)
    for row, items in enumerate(spans, start):
        found[row].extend(items)
