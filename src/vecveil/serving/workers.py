"""Several processes on one port: one alone answers as many requests a second as one processor core has time for.

Each is a whole server (`vecveil.serving.worker`). They share the port, the files of ledgers and the figures of
``/metrics``. This process answers nobody: it starts another where one ends, and they end with it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING, Any

from vecveil.environment import inherited_variables
from vecveil.errors import VecveilError
from vecveil.serving.logs import event
from vecveil.serving.metrics import SHARED_FOLDER, forget_process
from vecveil.serving.settings import ServeSettings
from vecveil.serving.worker import work

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

__all__ = ["run_workers"]

_TURN = 0.2
"""Seconds: how soon a signal is acted upon."""
_STEADY = 60.0
"""Seconds: what ran for so long is started again at once, else after a pause that grows up to as much."""
_PATIENCE = 10.0
"""Seconds beyond those that requests get, until a process that does not end is killed."""


def run_workers(
    settings: ServeSettings, address: socket.socket, *, on_listening: Callable[[str, int], None]
) -> None:
    """Serve until a signal says to stop.

    Args:
        settings: with the number of workers.
        address: bound; no worker listens on it itself where the system can share connections out (Linux).
        on_listening: told the base URL and the number of policies, once all workers listen.

    Raises:
        VecveilError: a worker cannot start; then none runs.
    """
    with (
        tempfile.TemporaryDirectory(prefix="vecveil-figures-") as figures,
        _signals() as stopped,
    ):
        workers = _Workers(settings, address, figures)
        try:
            workers.start(1)  # alone: what cannot be used is found once, and said once
            workers.wait_until_listening(stopped)
            for number in range(2, settings.workers + 1):
                workers.start(number)
            workers.wait_until_listening(stopped)
            if not stopped():
                on_listening(*workers.told())
                workers.tend(stopped)
        finally:
            workers.stop()


@dataclass(eq=False)
class _Worker:
    number: int
    process: SpawnProcess
    words: connection.Connection
    started: float
    told: tuple[str, int] | None = None
    failure: Exception | None = None

    def read(self) -> None:
        """Take in what it has said."""
        with suppress(EOFError, OSError):
            while self.words.poll():
                said = self.words.recv()
                if isinstance(said, Exception):
                    self.failure = said
                else:
                    self.told = said

    def close(self) -> int | None:
        """Forget an ended process and return its exit code."""
        self.process.join()
        code = self.process.exitcode
        self.words.close()
        self.process.close()
        return code


class _Workers:
    """The processes, and what becomes of them."""

    def __init__(self, settings: ServeSettings, address: socket.socket, figures: str) -> None:
        self._settings, self._address, self._figures = settings, address, figures
        self._context = multiprocessing.get_context("spawn")  # a fork would copy held locks
        self._environment = {SHARED_FOLDER: figures}
        if "OMP_NUM_THREADS" not in os.environ:  # encoders would each take all cores
            share = (os.cpu_count() or 1) // settings.workers
            self._environment["OMP_NUM_THREADS"] = str(max(1, share))
        if _shares_out():
            # After it was bound, so that another server on this address was refused.
            address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._running: dict[int, _Worker] = {}
        self._due: dict[int, float] = {}
        self._pauses: dict[int, float] = {}

    def start(self, number: int) -> None:
        """Start the worker of that number."""
        mine, theirs = self._context.Pipe(duplex=False)
        with theirs, self._socket() as listening, _inherited(self._environment):
            process = self._context.Process(
                target=work,
                args=(self._settings, listening, theirs),
                name=f"vecveil-serve-{number}",
            )
            process.start()
        self._running[number] = _Worker(number, process, mine, time.monotonic())

    def wait_until_listening(self, stopped: Callable[[], bool]) -> None:
        """Return once all that were started listen, or when ``stopped`` says so.

        Raises:
            Exception: what keeps one of them from that.
        """
        while not stopped() and not all(one.told for one in self._running.values()):
            for one in self._ended():
                if stopped():
                    return
                raise one.failure or VecveilError(
                    f"serve: a worker ended while it started (exit code {one.process.exitcode}); "
                    "-9 often means that there was too little memory for so many."
                )

    def told(self) -> tuple[str, int]:
        """Return what a worker that listens has said."""
        return next(one.told for one in self._running.values() if one.told)

    def tend(self, stopped: Callable[[], bool]) -> None:
        """Start again what ends, until ``stopped`` says to stop."""
        while not stopped():
            for one in self._ended():
                if stopped():  # they were told to stop, too
                    return
                self._start_later(one)
            now = time.monotonic()
            for number in [number for number, due in self._due.items() if due <= now]:
                del self._due[number]
                self.start(number)

    def stop(self) -> None:
        """End all: requests that are being answered get their time, then a process is killed."""
        for one in self._running.values():
            one.process.terminate()
        until = time.monotonic() + self._settings.limits.shutdown_seconds + _PATIENCE
        for one in self._running.values():
            one.process.join(max(0.0, until - time.monotonic()))
            if one.process.is_alive():
                event("worker is killed", level=logging.ERROR, worker=one.number)
                one.process.kill()
            one.close()
        self._running.clear()

    def _socket(self) -> socket.socket:
        """Return a socket for one worker, bound to the address."""
        address = self._address
        if not _shares_out():
            return address.dup()
        one = socket.socket(address.family, address.type, address.proto)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(address.getsockname())
        return one

    def _ended(self) -> list[_Worker]:
        """Wait a moment; return those that have ended."""
        workers = list(self._running.values())
        silent: list[Any] = [one.words for one in workers if not one.told]
        connection.wait([*silent, *(one.process.sentinel for one in workers)], _TURN)
        ended = [one for one in workers if not one.process.is_alive()]
        for one in workers:
            one.read()
        return ended

    def _start_later(self, one: _Worker) -> None:
        steady = time.monotonic() - one.started > _STEADY
        pause = 0.0 if steady else self._pauses.get(one.number, 1.0)
        self._pauses[one.number] = 1.0 if steady else min(2 * pause, _STEADY)
        # Our own sentence alone: those of others may hold data.
        said = {"message": str(one.failure)} if isinstance(one.failure, VecveilError) else {}
        forget_process(int(one.process.pid or 0), self._figures)
        code = one.close()
        event(
            "worker ended",
            level=logging.ERROR,
            worker=one.number,
            exit=code,
            again_in_seconds=pause,
            **said,
        )
        del self._running[one.number]
        self._due[one.number] = time.monotonic() + pause


def _shares_out() -> bool:
    """Return whether the system shares connections out between sockets on one address, elsewhere one may get all."""
    return sys.platform == "linux"


@contextmanager
def _inherited(environment: dict[str, str]) -> Iterator[None]:
    """Set variables, and hold Ctrl-C back, for a process that is started in the block."""
    masks = hasattr(signal, "pthread_sigmask")
    if masks:
        resource_tracker.ensure_running()  # else it is started in the block, and lets Ctrl-C through again
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with inherited_variables(environment):
            yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Give what tells whether a signal has asked to stop; after the block it takes its usual course."""
    asked: list[int] = []
    former: dict[int, Any] = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:  # as nohup sets it
            continue
        with suppress(ValueError):  # not the main thread
            former[number] = signal.signal(number, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if asked:
        signal.raise_signal(asked[0])
