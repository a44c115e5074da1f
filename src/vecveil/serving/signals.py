"""What a process does with signals that has others answer for it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from vecveil.runtime import inherited_variables

__all__ = ["Asked", "child_environment", "signals_to_stop"]

Asked = Callable[[], int]
"""Returns how many signals have asked to stop."""


@contextmanager
def child_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables, and hold Ctrl-C back, for a process that is started in the block."""
    resource_tracker.ensure_running()  # else it is started in the block, and lets Ctrl-C through again
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with inherited_variables(variables):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextmanager
def signals_to_stop() -> Iterator[Asked]:
    """Give what counts the signals that ask to stop; after the block the first takes its usual course."""
    asked: list[int] = []
    former: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not the main thread
        # Inherited as ignored, it would keep from us that a worker has ended.
        former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                former[number] = signal.signal(number, lambda number, frame: asked.append(number))
    try:
        yield lambda: len(asked)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if asked:
        signal.raise_signal(asked[0])
