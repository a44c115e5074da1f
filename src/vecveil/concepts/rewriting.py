"""Texts without their spans: removed with the whitespace tidied, blackened, or with other words in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vecveil.concepts.spans import Span

__all__ = ["redact", "remove", "replace"]

_CLOSING = frozenset(",.;:!?)]}…”»%、。，；：！？）」』】")
_OPENING = frozenset("([{“«（「『【")


def remove(text: str, spans: Iterable[Span]) -> str:
    """Return ``text`` without its spans, tidied where they were.

    Where a span stood, one space (or line break, if there was one) remains of the whitespace on
    both sides; none before closing punctuation that followed the span, none behind a bracket that
    opened before it. Whitespace elsewhere stays, except at the ends of the text.

    Args:
        spans: Sorted and not overlapping, as ``merge_spans`` returns them.
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
    """Return both sides of a removed span joined."""
    head, tail = left.rstrip(), right.lstrip()
    before, after = left[len(head) :], right[: len(right) - len(tail)]
    if not tail:  # nothing but whitespace: the next seam, or the end, decides
        return head + (before + after if not (before and after) else _one(before + after))
    if before and after:
        return head + _one(before + after) + tail
    if before and tail[0] in _CLOSING:
        return head + tail
    if after and head and head[-1] in _OPENING:
        return head + tail
    return left + right


def _one(whitespace: str) -> str:
    return "\n" if "\n" in whitespace else " "


def redact(text: str, spans: Iterable[Span]) -> str:
    """Return ``text`` with every character of its spans replaced by ``*``; the length stays.

    Args:
        spans: Sorted and not overlapping, as ``merge_spans`` returns them.
    """
    return replace(text, spans, lambda span: "*" * (span.end - span.start))


def replace(text: str, spans: Iterable[Span], words: Callable[[Span], str]) -> str:
    """Return ``text`` with ``words(span)`` in place of each span; nothing else changes.

    Args:
        spans: Sorted and not overlapping, as ``merge_spans`` returns them.
    """
    pieces: list[str] = []
    position = 0
    for span in spans:
        pieces += [text[position : span.start], words(span)]
        position = span.end
    return "".join([*pieces, text[position:]])
