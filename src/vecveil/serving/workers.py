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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from vecveil.errors import VecveilError
from vecveil.serving.logs import event
from vecveil.serving.metrics import forget_process
from vecveil.serving.settings import ServeSettings
from vecveil.serving.signals import Asked, child_environment, signals_to_stop
from vecveil.serving.worker import Listening, work

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

__all__ = ["pause_before_next", "run_workers", "share_of_cores"]

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
        address: bound; it keeps the port for the workers' sockets, and nobody else gets it.
        on_listening: told the base URL and the number of policies, once all workers listen.

    Raises:
        VecveilError: a worker cannot start; then none runs.
    """
    with (
        signals_to_stop() as asked,  # the outer one: a signal takes its course when all is tidied up
        tempfile.TemporaryDirectory(
            prefix="vecveil-figures-", ignore_cleanup_errors=True
        ) as figures,
    ):
        workers = _Workers(settings, address, figures)
        try:
            workers.start(1)  # alone: what cannot be used is found once, and said once
            workers.wait_until_listening(asked)
            for number in range(2, settings.workers + 1):
                if not asked():
                    workers.start(number)
            workers.wait_until_listening(asked)
            if not asked():
                told = workers.told()
                on_listening(told.url, told.policies)
                workers.tend(asked)
        finally:
            workers.stop(asked)


def share_of_cores(workers: int) -> int:
    """Return how many threads the encoder of each worker gets: all that this process may use, divided."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (usable or 1) // workers)


def pause_before_next(ran: float, last: float) -> float:
    """Return the seconds until an ended worker is started again.

    Args:
        ran: seconds that it ran.
        last: the pause before it was started; 0 for none.
    """
    return 0.0 if ran > _STEADY else min(max(1.0, 2 * last), _STEADY)


@dataclass(eq=False)
class _Worker:
    number: int
    process: SpawnProcess
    words: connection.Connection
    started: float
    told: Listening | None = None
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
        self._variables: dict[str, str] = {}
        if "OMP_NUM_THREADS" not in os.environ:  # encoders would each take all cores
            self._variables["OMP_NUM_THREADS"] = str(share_of_cores(settings.workers))
        if _shares_out():
            # After it was bound and claimed: sockets of ours may join it, another server's may not.
            address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._running: dict[int, _Worker] = {}
        self._due: dict[int, float] = {}
        self._pauses: dict[int, float] = {}
        self._identity: str | None = None

    def start(self, number: int) -> None:
        """Start the worker of that number.

        Raises:
            OSError: the system has no further process, file or memory.
        """
        os.makedirs(
            self._figures, mode=0o700, exist_ok=True
        )  # cleaners of temporary folders pass by
        mine, theirs = self._context.Pipe(duplex=False)
        try:
            with theirs, self._socket() as listening, child_environment(self._variables):
                process = self._context.Process(
                    target=work,
                    args=(self._settings, listening, theirs),
                    kwargs={
                        "number": number,
                        "figures": self._figures,
                        "identity": self._identity,
                    },
                    name=f"vecveil-serve-{number}",
                    daemon=True,  # a program that ends without stopping the server ends it, too
                )
                process.start()
        except BaseException:
            mine.close()
            raise
        self._running[number] = _Worker(number, process, mine, time.monotonic())

    def wait_until_listening(self, asked: Asked) -> None:
        """Return once all that were started listen, or when it is asked to stop.

        Raises:
            Exception: what keeps one of them from that.
        """
        while not asked() and not all(one.told for one in self._running.values()):
            for one in self._ended():
                if asked():
                    return
                code = one.process.exitcode
                memory = (
                    "; the system may have had too little memory for so many" if code == -9 else ""
                )
                raise one.failure or VecveilError(
                    f"serve: a worker ended while it started (exit code {code}{memory})."
                )
        self._identity = self.told().identity if not asked() else None

    def told(self) -> Listening:
        """Return what a worker that listens has said."""
        return next(one.told for one in self._running.values() if one.told)

    def tend(self, asked: Asked) -> None:
        """Start again what ends, until it is asked to stop."""
        while not asked():
            for one in self._ended():
                if asked():  # they were told to stop, too
                    return
                self._start_later(one)
            now = time.monotonic()
            for number in [number for number, due in self._due.items() if due <= now]:
                del self._due[number]
                try:
                    self.start(number)
                except OSError as error:  # the others go on
                    self._put_off(number, 0.0, reason=error.strerror or type(error).__name__)

    def stop(self, asked: Asked) -> None:
        """End all: requests that are being answered get their time, then a process is killed.

        A second signal ends them at once, as uvicorn has it.
        """
        for one in self._running.values():
            one.process.terminate()
        until = time.monotonic() + self._settings.limits.shutdown_seconds + _PATIENCE
        hurried = False
        while time.monotonic() < until:
            alive = [one for one in self._running.values() if one.process.is_alive()]
            if not alive:
                break
            if asked() > 1 and not hurried:
                hurried = True
                for one in alive:
                    with suppress(ProcessLookupError):
                        os.kill(one.process.pid or 0, signal.SIGINT)
            connection.wait([one.process.sentinel for one in alive], _TURN)
        for one in self._running.values():
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
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(address.getsockname())
        except BaseException:
            one.close()
            raise
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
        ran, failure = time.monotonic() - one.started, one.failure
        # Our own sentences alone: those of others may hold data.
        said = {"message": str(failure)} if isinstance(failure, VecveilError) else {}
        if failure is not None and not said:
            said = {"exception": type(failure).__name__}
        forget_process(one.number, self._figures)
        del self._running[one.number]
        self._put_off(one.number, ran, exit=one.close(), **said)

    def _put_off(self, number: int, ran: float, **fields: Any) -> None:
        pause = pause_before_next(ran, self._pauses.get(number, 0.0))
        self._pauses[number] = pause
        self._due[number] = time.monotonic() + pause
        event("worker ended", level=logging.ERROR, worker=number, **fields, again_in_seconds=pause)


def _shares_out() -> bool:
    """Return whether the system shares connections out between sockets on one address; elsewhere one may get all."""
    return sys.platform == "linux"
