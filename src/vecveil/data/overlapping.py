"""Reading the next piece and writing the last one while this one is worked on; never more than one of each waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

__all__ = ["ahead", "behind"]

T = TypeVar("T")
P = ParamSpec("P")


@contextmanager
def ahead(pieces: Iterator[T]) -> Iterator[Iterator[T]]:
    """Yield an iterator of the same pieces, the next of which is taken from ``pieces`` in a thread.

    An exception of ``pieces`` is raised where its piece would have come.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="vecveil-read") as thread:

        def taken() -> Iterator[T]:
            end = object()
            waiting: Future[T | object] = thread.submit(next, pieces, end)
            while (piece := waiting.result()) is not end:
                waiting = thread.submit(next, pieces, end)
                yield piece  # type: ignore[misc]

        yield taken()


@contextmanager
def behind(work: Callable[P, None]) -> Iterator[Callable[P, None]]:
    """Yield a function that does ``work`` in a thread, one call after the other.

    It waits for the call before; an exception is raised by the next call, or at the end of the block.
    """
    last: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="vecveil-write") as thread:

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            nonlocal last
            if last is not None:
                last.result()
            last = thread.submit(work, *args, **kwargs)

        yield call
        if last is not None:
            last.result()
