"""The process behind a `StoreApart`: it opens the store, and answers until nobody asks any more."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vecveil.databases.apart_messages import OWNER, batch_of, receive, record_of, send
from vecveil.databases.store import Batch
from vecveil.errors import StoreError, VecveilError, message

__all__ = ["main"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class _Served:
    """The store of this process, and where its rows were read to."""

    def __init__(self, opening: Mapping[str, Any]) -> None:
        from vecveil.databases.locating import store_of

        self.store = store_of(opening["kind"], opening["where"], opening["collection"])
        if opening["function"] is not None:
            self.store.name_function(opening["function"])
        self._reading: tuple[tuple[int, str], Iterator[Batch]] | None = None

    def answer(self, asked: dict[str, Any], content: bytes) -> tuple[Any, bytes]:
        """Return what a request asks for."""
        doing = asked.pop("do")
        if doing == "batch":
            return self._next(asked["size"], asked["after"])
        if doing == "write":
            self.store.write(batch_of(asked["batch"], content))
            return None, b""
        if doing == "info":
            return asdict(self.store.info()), b""
        if doing == "normalises":
            return self.store.normalises, b""
        if doing not in ("exists", "create", "read", "rows_at_once"):
            raise StoreError.of(OWNER, "request", "one that is known", "another")
        done = getattr(self.store, doing)(**asked)
        return record_of(done) if isinstance(done, Batch) else (done, b"")

    def _next(self, size: int, after: str) -> tuple[Any, bytes]:
        reading, self._reading = self._reading, None  # after an error it begins anew
        if reading is None or reading[0] != (size, after):
            reading = (size, after), self.store.batches(size, after=after)
        found = next(reading[1], None)
        if found is None:
            return None, b""
        self._reading = (size, found.cursor), reading[1]
        return record_of(found)


def main(parent: int, *, dies: bool) -> None:
    """Answer until there are no more requests, or whoever asks is gone.

    Args:
        parent: the process that asks.
        dies: the thread that began this process lasts as long as that one does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    if sys.platform == "linux" and dies:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    opening = receive(source)
    served: _Served | None = None
    while opening is not None and (request := receive(source)) is not None:
        asked, content = request
        number, blob = asked.pop("number"), b""
        said: dict[str, Any]
        try:
            served = served or _Served(opening[0])
            value, blob = served.answer(asked, content)
            said = {"value": value}
        except VecveilError as error:
            said = {"error": type(error).__name__, "text": str(error)}
        except Exception as error:
            text = message(OWNER, "request", "answered by the database", type(error).__name__)
            said = {"error": "StoreError", "text": text}
        send(answers, {"number": number, **said}, blob)
    if served is not None:
        served.store.close()


def _end_with(parent: int) -> None:
    """End this process when the one that asks is gone."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
