"""Threads, devices, memory limits, progress bars and the environment of subprocesses."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from vecveil.errors import InvalidInputError, MemoryLimitError, optional_import

T = TypeVar("T")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_local = threading.local()
_blocks = 0  # open blocks of one_thread, over all threads
_default = 1  # torch's number of threads before the first of these blocks
_blas_blocks = 0  # open blocks of one_blas_thread, over all threads
_blas_limits: Any = None
_limiter: ThreadPoolExecutor | None = None


def thread_count() -> int:
    """Return the number of threads for noise and encoding: VECVEIL_THREADS, OMP_NUM_THREADS, or the available cores."""
    for variable in ("VECVEIL_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(variable, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the block, where threadpoolctl is installed.

    The limit holds for the process. Blocks may overlap in several threads; the last one that ends restores the number.
    """
    global _blas_blocks, _blas_limits, _limiter
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with _lock:
        if _blas_blocks == 0:
            # threadpoolctl lets only the thread that set a limit change it, so one thread sets and restores all.
            _limiter = _limiter or ThreadPoolExecutor(1, thread_name_prefix="vecveil-blas")
            _blas_limits = _limiter.submit(threadpool_limits, limits=1, user_api="blas").result()
        _blas_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blas_blocks -= 1
            if _blas_blocks == 0 and _limiter is not None:
                _limiter.submit(_blas_limits.__exit__, None, None, None).result()


def _forget() -> None:
    # The parent's threads do not exist in a forked child.
    global _pool, _lock, _blocks, _blas_blocks, _limiter, _local
    _pool, _lock, _blocks, _blas_blocks, _limiter, _local = None, threading.Lock(), 0, 0, None, threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _threads() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="vecveil")
        return _pool


def in_chunks(rows: int, chunk: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(start, stop)`` for consecutive chunks of rows, in parallel on several cores.

    ``work`` must not call `in_chunks`. The first exception is raised after all chunks have ended.
    """
    pieces = [(start, min(start + chunk, rows)) for start in range(0, rows, chunk)]
    if len(pieces) < 2 or thread_count() == 1:
        for start, stop in pieces:
            work(start, stop)
        return
    futures = [_threads().submit(work, start, stop) for start, stop in pieces]
    try:
        errors = [future.exception() for future in futures]
    except BaseException:  # Ctrl-C: no chunk may write after the caller has stopped
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
    """Raise `MemoryLimitError` if a limit on this process leaves less than ``needed`` bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mmap.mmap(-1, needed).close()  # reserves addresses; no page is touched
    except (OSError, MemoryError, ValueError):
        raise MemoryLimitError(
            f"{owner} needs {needed >> 20:,} MiB of memory, and less is left under the limit of {limit >> 20:,} "
            "MiB. Nothing was started. Raise the limit of this process (ulimit -v).",
            param="memory",
        ) from None


def free_memory() -> int:
    """Return how many bytes of memory this process may still take, where the system says so; else 1 GiB."""
    free = [1 << 30]
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as file:
        free = [int(file.read().split("MemAvailable:")[1].split()[0]) << 10]
    limit, used = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"  # of a container
    with contextlib.suppress(OSError, ValueError), open(limit) as most, open(used) as now:  # "max" is no limit
        free.append(int(most.read()) - int(now.read()))
    return max(0, min(free))


def release_free_memory() -> None:
    """Return freed memory to the operating system, where the C library is glibc, which else keeps much of it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside the block and restore the number of threads after it.

    Blocks may be nested and may overlap in several threads: torch counts for each thread, and new threads start with
    the number from before the first block.
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


class DeviceMemoryWarning(UserWarning):
    """A device ran out of memory; the work continues with smaller batches, and results differ slightly."""


def import_torch(feature: str = "Learning", extra: str = "attacks") -> Any:
    """Return torch, or raise `MissingDependencyError` with the feature that needs it and the extra that installs it."""
    with optional_import(feature, "torch", extra):
        import torch
    return torch


def resolve_device(device: str, *, owner: str) -> str:
    """Return ``device``, or for ``"auto"`` CUDA if available, else the CPU.

    Raises:
        InvalidInputError: torch cannot allocate on the device.
    """
    torch = import_torch()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)  # torch.device accepts devices that this machine lacks
    except (RuntimeError, AssertionError, ImportError):
        raise InvalidInputError(
            f"`device`: this machine has no {str(device)[:40]!r}. Use 'auto' or 'cpu'.", param="device"
        ) from None
    return device


class Batches:
    """Batch size ``rows`` on a device, halved with a warning when the device runs out of memory."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def run(self, total: int, work: Callable[[int, int], T], *, undo: Callable[[], None] | None = None) -> list[T]:
        """Return ``work(start, stop)`` for consecutive batches of ``total`` rows.

        When the device runs out of memory, ``undo`` is called, the batch size halved, and all batches computed again. A
        single row that does not fit raises torch.OutOfMemoryError.
        """
        torch = import_torch()
        while True:
            pieces = [(i, min(i + self.rows, total)) for i in range(0, total, self.rows)]
            try:
                return [work(start, stop) for start, stop in pieces]
            except torch.OutOfMemoryError:
                if min(self.rows, total) <= 1:
                    raise
            self.rows = min(self.rows, total) // 2
            if undo is not None:
                undo()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            warnings.warn(
                f"The device ran out of memory; continuing with batches of {self.rows} rows.",
                DeviceMemoryWarning,
                stacklevel=2,
            )


_stop: ContextVar[threading.Event | None] = ContextVar("vecveil_stop", default=None)


@contextlib.contextmanager
def stopping(event: threading.Event) -> Iterator[None]:
    """Carry Ctrl-C, which only the main thread receives: end every `progress` of this thread once ``event`` is set."""
    token = _stop.set(event)
    try:
        yield
    finally:
        _stop.reset(token)


def _stoppable(items: Iterable[T], event: threading.Event) -> Iterator[T]:
    for item in items:
        if event.is_set():
            raise KeyboardInterrupt
        yield item


_HARMLESS = "\t\u200c\u200d"  # tab, and the joiners that scripts and emoji need


def printable(text: str) -> str:
    """Return ``text`` as one line that cannot control a terminal, with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in _HARMLESS or unicodedata.category(char) == "Zs" else repr(char)[1:-1]
        for char in text
    )


_at = _stage = ""


def stage(description: str) -> None:
    """Set the description of the current step for `status`, where no `progress` counts it."""
    global _stage
    _stage = description


def status() -> str:
    """Return the current step, such as ``"Encoding 1,200 of 3,000 texts"``: a `progress`, else a `stage`."""
    return _at or _stage


def _counted(items: Iterable[T], description: str, total: int | None, unit: str) -> Iterator[T]:
    global _at
    outer = _at
    unit = unit.strip().removesuffix("s")
    units = f"{unit}es" if unit.endswith("h") else f"{unit}s"
    try:
        for done, item in enumerate(items):
            _at = f"{description} {done:,}{'' if total is None else f' of {total:,}'} {units}"
            yield item
    finally:  # also where the loop around it ends early
        _at = outer


def progress(
    items: Iterable[T],
    description: str,
    *,
    total: int | None = None,
    show: bool | None = None,
    unit: str = "step",
    note: Callable[[], str] | None = None,
) -> Iterator[T]:
    """Yield from ``items`` while a bar on stderr moves.

    Args:
        show: None shows the bar on a terminal only.
        note: returns the text after the bar; called after each item.
    """
    event = _stop.get()
    if event is not None:
        yield from _stoppable(items, event)  # one of several threads: their bars would overwrite each other
        return
    if show is None:
        show = sys.stderr.isatty()
    if show:
        try:
            from tqdm import tqdm
        except ImportError:
            show = False
    if not show:
        yield from _counted(items, description, total, unit)
        return
    # Without a terminal size (a recording, a service) tqdm would draw nothing.
    size = {"dynamic_ncols": True} if _has_size() else {"ncols": 80, "nrows": 24}
    bar: Any = tqdm(items, desc=printable(description), total=total, unit=unit, file=sys.stderr, **size)
    for item in bar:
        yield item
        if note is not None:
            bar.set_postfix_str(note(), refresh=False)


def _has_size() -> bool:
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def inherited_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for subprocesses and restore them after the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
