"""Threads: how many, a pool for work on rows, room for them, and one thread for torch where that is fastest."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from vecveil.errors import MemoryLimitError, message

__all__ = ["check_room", "in_chunks", "one_thread", "thread_count"]

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_local = threading.local()
_blocks = 0  # of one_thread, that are open in any thread
_default = 1  # threads of torch before the first of them


def thread_count() -> int:
    """Return how many threads noise is drawn on: VECVEIL_THREADS, OMP_NUM_THREADS, or the cores there are."""
    for variable in ("VECVEIL_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(variable, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _forget() -> None:
    # The parent's threads do not exist in a forked child.
    global _pool, _lock, _blocks, _local
    _pool, _lock, _blocks, _local = None, threading.Lock(), 0, threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="vecveil")
        return _pool


def in_chunks(rows: int, chunk: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of rows, several at once where there are cores.

    ``work`` must not call `in_chunks` itself. Its first exception is raised once all have ended.
    """
    pieces = [(start, min(start + chunk, rows)) for start in range(0, rows, chunk)]
    if len(pieces) < 2 or thread_count() == 1:
        for start, stop in pieces:
            work(start, stop)
        return
    futures = [_threads().submit(work, start, stop) for start, stop in pieces]
    try:
        errors = [future.exception() for future in futures]
    except BaseException:  # Ctrl-C: let nothing write on after the caller has given up
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()
        raise
    for error in errors:
        if error is not None:
            raise error


def check_room(needed: int, *, owner: str) -> None:
    """Refuse to begin where a limit on the memory of this process leaves less than ``needed`` bytes.

    Libraries that run out of it in a thread of their own end the process and say nothing. Where there is no limit, the
    system itself decides what it can give, and nothing is checked.

    Raises:
        MemoryLimitError: less is left.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, needed).close()  # addresses alone: no page of it is touched
    except (OSError, MemoryError, ValueError):
        raise MemoryLimitError(
            message(owner, "memory", f"at least {needed >> 20:,} MiB", f"less, under a limit of {limit >> 20:,} MiB",
                    "Nothing was begun.", "Raise the limit of this process (ulimit -v).")
        ) from None  # fmt: skip


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside the block, and on as many as before after it.

    Blocks may be nested and may overlap in several threads: torch's number is one for each thread, and what new
    threads start with is what it was before the first of the blocks.
    """
    global _blocks, _default
    import torch

    depth = getattr(_local, "depth", 0)
    with _lock:
        if _blocks == 0:
            _default = torch.get_num_threads()
        _blocks += 1
    if depth == 0:
        torch.set_num_threads(1)
    _local.depth = depth + 1
    try:
        yield
    finally:
        _local.depth = depth
        with _lock:
            _blocks -= 1
            if depth == 0:
                torch.set_num_threads(_default)
