"""Detect regular expressions, with limits on their compiled size and on the time per text."""

from __future__ import annotations

import contextlib
import re
import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.concepts.matching import Span
from vecveil.texts.folding import plain
from vecveil.validation import check_positive, check_sequence

LARGEST_PATTERN = 100_000
"""Maximum number of elements: more than any hand-written pattern has, compiled within a second."""

_COUNT = re.compile(r"\{\s*(\d{1,20})")
_OTHER_SYNTAX = re.compile(r"\(\?(?:#|[A-Za-z0-9\-]*[xV])")
"""Comments, and flags that change what parentheses and brackets mean."""
_NAMED = re.compile(r"\\[NpP]\{[^}]*\}")
"""A character or a property by its name, which may contain spaces."""
_SET = re.compile(r"\[\^?(?!\])")


def unrolled_size(pattern: str) -> int:
    """Return an upper bound of the number of elements of ``pattern`` with its repetitions written out."""
    # The cheap bound first: every count multiplies, whether or not groups enclose it.
    counts = [max(1, int(digits)) for digits in _COUNT.findall(pattern)]
    every = len(pattern)
    for count in counts:
        every = min(every * count, 10**30)  # the cap keeps the integers small
    if every <= LARGEST_PATTERN or _OTHER_SYNTAX.search(pattern):
        return every
    return _nested_size(pattern)


def _nested_size(pattern: str) -> int:
    sums = [0]  # of the groups that are open
    last = 0  # the size of the element that a count would repeat
    i = 0
    while i < len(pattern):
        letter = pattern[i]
        count = _COUNT.match(pattern, i) if letter == "{" else None
        if count is not None:
            # x{1000} is a thousand copies of its element, one of which was counted already.
            more = last * (max(1, int(count[1])) - 1)
            sums[-1] += more
            last += more
            i = count.end()
            continue
        if letter == "(":
            sums.append(0)
            last = 0
        elif letter == ")":
            last = sums.pop() + 1
            if not sums:  # unbalanced: it does not compile
                sums.append(0)
            sums[-1] += last
        else:
            if letter == "\\":
                i += 1
            elif letter == "[":
                i = _end_of_set(pattern, i)
            last = 1
            sums[-1] += 1
        i += 1
    return sum(sums)


def _end_of_set(pattern: str, start: int) -> int:
    i = start + 1
    i += pattern[i : i + 1] == "^"
    i += pattern[i : i + 1] == "]"  # the first one stands for itself
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i


def over_lines(pattern: str) -> str:
    """Return ``pattern`` in NFC that also matches plain characters, and line breaks for spaces.

    A pattern with comments, flags for them, or named classes in brackets is only normalised.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    if (pattern.isascii() and " " not in pattern) or "[:" in pattern or _OTHER_SYNTAX.search(pattern):
        return pattern
    pieces: list[str] = []
    i = 0
    while i < len(pattern):
        end = i + 1
        if named := _NAMED.match(pattern, i):
            end = named.end()
        elif pattern[i] == "\\":
            end = i + 2
        elif pattern[i] == "[":
            end = _end_of_set(pattern, i) + 1
        piece = pattern[i:end]
        forms = {char: plain(char) for char in piece if not char.isascii()}
        if piece in (" ", "\\ "):
            piece = "[ \n]"
        elif start := _SET.match(piece):
            single = [form for char, form in forms.items() if len(form) == 1 and form != char]
            further = "\\n" * (" " in [*piece, *single]) + "".join(map(re.escape, single))
            piece = f"{start[0]}{further}{piece[start.end() :]}"
        elif (form := forms.get(piece, piece)) not in ("", piece):
            form = "[ \n]" if form == " " else re.escape(form)
            piece = f"(?:{piece}|{form})"
        pieces.append(piece)
        i = end
    return "".join(pieces)


class PatternDetector:
    """Finds matches of regular expressions, in the syntax of the ``regex`` package.

    Patterns are case-sensitive unless they begin with ``(?i)``, and match inside words unless they use ``\\b``. A space
    in a pattern also matches a line break, and a typographic character its plain form. A concept applies patterns to
    texts as written and in plain form (see `Detector`), so ``400 mg`` matches with any kind of space.

    Args:
        patterns: At least one pattern; none may match the empty string.
        time_limit: Seconds for all patterns together on one text; beyond it ``detect`` raises. Raise it for very long
            texts; lower it to fail sooner on slow patterns.

    Attributes:
        patterns: The patterns as written; they are text of the concept.
    """

    rescans = True  # see TermDetector.rescans
    lines = True  # its patterns say where a match may cross a line

    def __init__(
        self,
        patterns: Iterable[str],
        *,
        time_limit: float = 2.0,
        label: str = "pattern",
        owner: str = "PatternDetector",
    ) -> None:
        with optional_import("Finding patterns", "regex", "concepts"):
            import regex
        given = check_sequence(patterns, "a sequence of strings", owner=owner, param="patterns")
        self.time_limit = check_positive(time_limit, owner=owner, param="time_limit")
        self.label = label
        self._owner = owner
        self.patterns: tuple[str, ...] = ()
        self._patterns: list[Any] = []
        for i, pattern in enumerate(given):
            if not isinstance(pattern, str):
                raise InvalidInputError(
                    f"`patterns` has a {type(pattern).__name__} at position {i}; it takes strings.", param="patterns"
                )
            # Compiling has no time limit, and regex expands counted repetitions into gigabytes.
            if unrolled_size(pattern) > LARGEST_PATTERN:
                raise InvalidInputError(
                    f"The pattern at position {i} has more than {LARGEST_PATTERN:,} elements with its repetitions "
                    "written out. Lower the counts in braces.",
                    param="patterns",
                )
            try:
                compiled = regex.compile(pattern)
                with contextlib.suppress(regex.error):
                    compiled = regex.compile(over_lines(pattern))
            except (regex.error, RecursionError, OverflowError, MemoryError, ValueError) as error:
                place = getattr(error, "pos", None)
                where = "" if place is None else f", wrong at its character {place}"
                raise InvalidInputError(
                    f"The pattern at position {i} does not compile{where}. Use the syntax of the Python package regex.",
                    param="patterns",
                ) from None
            self.patterns += (pattern,)
            self._patterns.append(compiled)
            # A pattern that matches the empty string would match everywhere; removal would never end.
            try:
                empty = compiled.match("", timeout=self.time_limit)
            except TimeoutError:
                raise self._too_slow(i, None) from None
            if empty is not None:
                raise self._matches_nothing(i)
        if not self._patterns:
            raise InvalidInputError("Give at least one of `patterns`.", param="patterns")

    def __len__(self) -> int:
        return len(self._patterns)

    def __repr__(self) -> str:
        return f"PatternDetector({len(self)} patterns, time_limit={self.time_limit:g})"

    def describe(self) -> dict[str, Any]:
        return {"kind": "patterns", "patterns": len(self), "time_limit": self.time_limit}

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the matches in each text; raise `InvalidInputError` beyond the time limit and for an empty match."""
        return [self._spans(row, text) for row, text in enumerate(texts)]

    def _spans(self, row: int, text: str) -> list[Span]:
        spans: list[Span] = []
        deadline = time.monotonic() + self.time_limit
        for i, pattern in enumerate(self._patterns):
            # All patterns share one limit per text; a negative limit would be an error.
            left = max(deadline - time.monotonic(), 1e-3)
            try:
                for match in pattern.finditer(text, timeout=left):
                    start, end = match.span()
                    if start == end:
                        raise self._matches_nothing(i)
                    spans.append(Span(start, end, self.label))
            except TimeoutError:
                raise self._too_slow(i, row) from None
        return spans

    def _matches_nothing(self, i: int) -> InvalidInputError:
        return InvalidInputError(
            f"The pattern at position {i} matches the empty string. Use + instead of *, and let lookarounds "
            "enclose something.",
            param="patterns",
        )

    def _too_slow(self, i: int, row: int | None) -> InvalidInputError:
        where = "" if row is None else f" on the text in row {row}"
        return InvalidInputError(
            f"The pattern at position {i} takes more than {self.time_limit:g} seconds{where}: it probably "
            "backtracks without end, as nested repetitions do. Simplify it, or make its repetitions possessive "
            "(++ and *+).",
            param="patterns",
        )
