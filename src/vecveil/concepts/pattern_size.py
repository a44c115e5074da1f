"""How large a regular expression becomes when it is compiled: ``(?:ab){1000}`` is written out a thousand times."""

from __future__ import annotations

import re

__all__ = ["LARGEST_PATTERN", "unrolled_size"]

LARGEST_PATTERN = 100_000
"""Elements; more than any pattern that people write, and compiled within a second."""

_COUNT = re.compile(r"\{\s*(\d{1,20})")
_OTHER_SYNTAX = re.compile(r"\(\?(?:#|[A-Za-z0-9\-]*[xV])")
"""Comments, and flags that change what parentheses and brackets mean."""


def unrolled_size(pattern: str) -> int:
    """Return a bound of the elements of ``pattern`` with all least counts written out.

    Counts multiply where groups enclose each other. Where comments or flags hide the groups, all do.
    """
    counts = [max(1, int(found)) for found in _COUNT.findall(pattern)]
    every = len(pattern)
    for count in counts:
        every = min(every * count, 10**30)
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
