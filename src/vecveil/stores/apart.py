"""A store in a process of its own: what the database writes there holds nothing but what was sent to it.

Chroma saves memory that it never set in the files of its index, when it is written and when it is read: in a process
that has seen clean rows these are, now and then, texts and clean vectors. So its folders are opened by one that sees
nothing but what is in them.

    python -m vecveil.stores.apart      the process: requests on stdin, answers on stdout
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import numpy as np

from vecveil import errors
from vecveil.errors import InvalidInputError, StoreError, VecveilError, message
from vecveil.stores.store import Batch, StoreInfo, VectorStore

__all__ = ["StoreApart"]

_OWNER = "StoreApart"
_SECONDS = 30.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class StoreApart(VectorStore):
    """Hands everything on to a store in another process, which begins with the first request.

    Args:
        kind, where, collection: of that store.
    """

    kind: ClassVar[str] = "apart"

    def __init__(
        self,
        kind: str,
        where: str,
        collection: str | None,
    ) -> None:
        self._opening: dict[str, Any] = {
            "kind": kind,
            "where": where,
            "collection": collection,
            "function": None,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"StoreApart({self._opening['kind']!r})"

    def name_function(self, function: Any) -> None:
        """Let the collection name an embedding function, for Chroma; the other process makes it anew."""
        self.close()
        kind = type(function)
        self._opening["function"] = {
            "module": kind.__module__,
            "class": kind.__name__,
            "config": function.get_config(),
        }

    @classmethod
    def open(cls, where: str, collection: str | None) -> Self:
        """Return the store at ``KIND:WHERE``."""
        kind, _, rest = where.partition(":")
        return cls(kind, rest, collection)

    def info(self) -> StoreInfo:
        """Return what the store says about itself."""
        return StoreInfo(**self._ask("info")[0])

    @property
    def normalises(self) -> bool:
        """Whether it keeps directions only."""
        return bool(self._ask("normalises")[0])

    def rows_at_once(self, batch: int, total: int) -> int:
        """Return how many rows it should be handed."""
        return int(self._ask("rows_at_once", batch=batch, total=total)[0])

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        """Yield all rows."""
        while True:
            said, content = self._ask("batch", size=size, after=after)
            if said is None:
                return
            rows = _batch(said, content)
            yield rows
            after = rows.cursor

    def exists(self) -> bool:
        """Return whether it is there."""
        return bool(self._ask("exists")[0])

    def create(self, dimension: int, *, metric: str | None = None) -> None:
        """Make it."""
        self._ask("create", dimension=dimension, metric=metric)

    def write(self, batch: Batch) -> None:
        """Write rows."""
        said, content = _record(batch)
        self._ask("write", content, batch=said)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids``."""
        return _batch(*self._ask("read", ids=list(ids)))

    def close(self) -> None:
        """End the process; what it was doing is done first."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _ask(self, doing: str, content: bytes = b"", **given: Any) -> tuple[Any, bytes]:
        """Return the answer to a request."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, {"do": doing, **given}, content)
            answer = _receive(process.stdout)
        except OSError:
            answer = None
        except BaseException:  # Ctrl-C in between: what comes next would be the answer to this
            self.close()
            raise
        if answer is None:
            self.close()
            raise StoreError(
                message(_OWNER, "process", "running as long as the store is open", "one that ended",
                        fix="Run again: what was done stays done.")
            )  # fmt: skip
        said, blob = answer
        if "error" in said:
            kind = getattr(errors, said["error"], StoreError)
            raise (kind if issubclass(kind, VecveilError) else StoreError)(said["text"])
        return said["value"], blob

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            package = str(Path(errors.__file__).parents[1])
            path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vecveil.stores.apart"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
            assert self._process.stdin is not None
            _send(self._process.stdin, self._opening)
        return self._process


def _record(batch: Batch) -> tuple[dict[str, Any], bytes]:
    vectors = np.ascontiguousarray(batch.vectors, dtype="<f4")
    said = {
        "ids": list(batch.ids),
        "fields": [dict(row) for row in batch.fields],
        "shape": list(vectors.shape),
        "cursor": batch.cursor,
    }
    return said, vectors.tobytes()


def _batch(said: Mapping[str, Any], content: bytes) -> Batch:
    vectors = np.frombuffer(content, dtype="<f4").reshape(said["shape"]).astype(np.float32)
    return Batch(tuple(said["ids"]), vectors, tuple(said["fields"]), said["cursor"])


def _send(to: IO[bytes], said: Mapping[str, Any], content: bytes = b"") -> None:
    text = json.dumps(said, default=_plain).encode()
    to.write(len(text).to_bytes(8, "little") + len(content).to_bytes(8, "little") + text)
    to.write(content)
    to.flush()


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError(
        message(_OWNER, "fields", "texts, numbers, true or false, or lists of these", type(value).__name__,
                "They are sent to another process.", "Leave the field out, or write it as text.")
    )  # fmt: skip


def _receive(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(16)
    if len(head) < 16:
        return None
    sizes = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    text, content = (source.read(size) for size in sizes)
    if (len(text), len(content)) != sizes:
        return None
    return dict(json.loads(text)), content


class _Served:
    """The store of this process, and where its rows were read to."""

    def __init__(self, opening: Mapping[str, Any]) -> None:
        from vecveil.stores.locating import in_this_process

        behind = "" if opening["collection"] is None else f"#{opening['collection']}"
        self.store = in_this_process(f"{opening['kind']}:{opening['where']}{behind}")
        if opening["function"] is not None:
            about = opening["function"]
            kind = getattr(importlib.import_module(about["module"]), about["class"])
            self.store.name_function(kind.build_from_config(about["config"]))
        self._reading: tuple[tuple[int, str], Iterator[Batch]] | None = None

    def answer(self, asked: dict[str, Any], content: bytes) -> tuple[Any, bytes]:
        """Return what a request asks for."""
        doing = asked.pop("do")
        if doing == "batch":
            return self._next(asked["size"], asked["after"])
        if doing == "write":
            self.store.write(_batch(asked["batch"], content))
            return None, b""
        if doing == "info":
            return asdict(self.store.info()), b""
        if doing == "normalises":
            return self.store.normalises, b""
        if doing not in ("exists", "create", "read", "rows_at_once"):
            raise StoreError(message(_OWNER, "request", "one that is known", "another"))
        done = getattr(self.store, doing)(**asked)
        return _record(done) if isinstance(done, Batch) else (done, b"")

    def _next(self, size: int, after: str) -> tuple[Any, bytes]:
        if self._reading is None or self._reading[0] != (size, after):
            self._reading = (size, after), self.store.batches(size, after=after)
        found = next(self._reading[1], None)
        if found is None:
            self._reading = None
            return None, b""
        self._reading = (size, found.cursor), self._reading[1]
        return _record(found)


def main() -> None:
    """Answer until there are no more requests, or whoever asks is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    opening = _receive(source)
    served: _Served | None = None
    while opening is not None and (request := _receive(source)) is not None:
        blob = b""
        said: dict[str, Any]
        try:
            served = served or _Served(opening[0])
            value, blob = served.answer(*request)
            said = {"value": value}
        except VecveilError as error:
            said = {"error": type(error).__name__, "text": str(error)}
        except Exception as error:
            text = message(_OWNER, "request", "answered by the database", type(error).__name__)
            said = {"error": "StoreError", "text": text}
        _send(answers, said, blob)
    if served is not None:
        served.store.close()


if __name__ == "__main__":
    main()
