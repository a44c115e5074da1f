"""Calls timed in turn, so that what slows the machine down slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["interleaved", "relative_to"]

Clock = Callable[[], float]


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    *,
    repeats: int,
    loops: int = 1,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of one call, ``repeats`` times for each name.

    Each is called once before. Every round times all of them, beginning with another one than the round before.

    Args:
        loops: calls that are timed together; more for calls that take microseconds.
    """
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        calls[name]()
    for turn in range(repeats):
        start = turn % len(names)
        for name in (*names[start:], *names[:start]):
            call = calls[name]
            began = clock()
            for _ in range(loops):
                call()
            seconds[name].append((clock() - began) / loops)
    return seconds


def relative_to(seconds: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Return for each name the median and least seconds, and median and range of its ratio to ``base`` in one round.

    The least is what the call costs where nothing else runs; the others say what it cost here.
    """
    found = {}
    for name, own in seconds.items():
        ratios = [one / other for one, other in zip(own, seconds[base], strict=True)]
        found[name] = {
            "seconds": statistics.median(own), "least": min(own), "ratio": statistics.median(ratios),
            "low": min(ratios), "high": max(ratios),
        }  # fmt: skip
    return found
