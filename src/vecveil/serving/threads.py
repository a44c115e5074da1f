"""Run what waits for files, key services and storage on a bounded pool of threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from vecveil.serving.errors import SERVER, ApiError

T = TypeVar("T")


class FileThreads:
    """A bounded pool of threads for work that waits: key store, key provider, ledger and storage.

    They are not those that all requests need, and end with the process: what hangs delays neither other requests nor
    the end of the server.

    Args:
        threads: most of them; further work waits.
        seconds: longest time for waiting and working.
    """

    def __init__(self, threads: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(threads), seconds

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``.

        Raises:
            ApiError: 503 if it is not there in time. Work that has begun is then not interrupted.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
                return await self._started(work)
        except TimeoutError:
            text = "Key store, ledger or storage does not answer in time; nothing was released. Try again."
            raise ApiError(503, text, kind=SERVER, code="files_busy", retry_after=1.0) from None

    def _started(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def finish(pass_on: Callable[[Any], None], outcome: Any) -> None:
            self._free.release()
            if not result.done():
                pass_on(outcome)

        def job() -> None:
            outcome: tuple[Callable[[Any], None], Any]
            try:
                outcome = result.set_result, work()
            except Exception as error:
                outcome = result.set_exception, error
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(finish, *outcome)

        try:
            threading.Thread(target=job, name="vecveil-files", daemon=True).start()
        except BaseException:
            self._free.release()
            raise
        return result
