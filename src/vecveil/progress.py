"""One progress bar for every long step, and the way to stop steps that run in other threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["progress", "stopping"]

T = TypeVar("T")

_stop: ContextVar[threading.Event | None] = ContextVar("vecveil_stop", default=None)


@contextlib.contextmanager
def stopping(event: threading.Event) -> Iterator[None]:
    """Let every `progress` of this thread raise KeyboardInterrupt once ``event`` is set.

    Ctrl-C reaches the main thread alone; this is how it is passed on to the others.
    """
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


def _heeding(items: Iterable[T], event: threading.Event) -> Iterator[T]:
    for item in items:
        if event.is_set():
            raise KeyboardInterrupt
        yield item


def progress(
    items: Iterable[T],
    description: str,
    *,
    total: int | None = None,
    show: bool | None = None,
    unit: str = "it",
    note: Callable[[], str] | None = None,
) -> Iterator[T]:
    """Yield from ``items`` while a bar on stderr moves.

    Args:
        show: True or False; None shows the bar on a terminal only.
        note: returns what stands behind the bar, asked after each item.
    """
    event = _stop.get()
    if event is not None:
        yield from _heeding(items, event)  # one of several at once: a bar would be torn
        return
    if show is None:
        show = sys.stderr.isatty()
    if show:
        try:
            from tqdm import tqdm
        except ImportError:
            show = False
    if not show:
        yield from items
        return
    # A terminal may not say its size (a recording, a service): tqdm would draw nothing there.
    size = {"dynamic_ncols": True} if _has_size() else {"ncols": 80, "nrows": 24}
    bar: Any = tqdm(items, desc=description, total=total, unit=unit, file=sys.stderr, **size)
    for item in bar:
        yield item
        if note is not None:
            bar.set_postfix_str(note(), refresh=False)


def _has_size() -> bool:
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError):
        return False
