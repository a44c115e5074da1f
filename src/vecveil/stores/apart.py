"""Run a store in a subprocess, so that the database writes no memory of this process into its files.

Chroma writes uninitialised memory into its index files, on writes and on reads. In a process with clean rows these
bytes are sometimes texts and clean vectors. `StoreApart` therefore opens Chroma's folders in a subprocess that
receives only the data to store: no key, no protector, and only the environment variables that a database needs.
Messages are lines of JSON, not pickles: code from an untrusted Chroma folder stays in the subprocess.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, ClassVar, Self

import numpy as np

from vecveil import errors
from vecveil.errors import InvalidInputError, StoreError, VecveilError
from vecveil.stores.locations import store_of
from vecveil.stores.store import Batch, Match, Missing, StoreInfo, VectorStore, Where

_OWNER = "StoreApart"
_ROWS = 200  # of another table, in an answer
_CLOSE_SECONDS = 30.0  # for a running request to finish
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>
# An allowlist: variables may hold noise keys and passwords. Chroma's client credentials are for servers only.
_ENVIRONMENT = re.compile(
    r"PATH|HOME|USER|LANG|LC_.*|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|LD_LIBRARY_PATH|DYLD_.*|PYTHON.*|VIRTUAL_ENV|XDG_.*"
    r"|OMP_.*|OPENBLAS_.*|MKL_.*|CHROMA_(?!CLIENT_AUTH).*|ANONYMIZED_TELEMETRY"
)
# The parent's package comes first on the path, so that both processes run the same version.
_PROGRAM = """
import sys
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from vecveil.stores.apart import serve
serve(int(sys.argv[2]), dies=sys.argv[3] == "dies")
"""


class StoreApart(VectorStore):
    """A store in a subprocess, which starts with the first request. Thread-safe."""

    kind: ClassVar[str] = "apart"

    def __init__(self, kind: str, where: str, collection: str | None, options: Mapping[str, str] | None = None) -> None:
        self._opening = {"kind": kind, "where": where, "collection": collection, "options": dict(options or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._requests = 0

    def __repr__(self) -> str:
        return f"StoreApart({self._opening['kind']!r})"

    @classmethod
    def open(cls, where: str, collection: str | None, **options: str) -> Self:
        kind, _, rest = where.partition(":")
        return cls(kind, rest, collection, options)

    def info(self) -> StoreInfo:
        return StoreInfo(**self._request("info"))

    @property
    def normalises(self) -> bool:
        return bool(self._request("normalises"))

    def batches(self, size: int = 1000, *, after: str = "") -> Iterator[Batch]:
        # One request per batch, by cursor: other requests may come in between, and a new subprocess can continue.
        while True:
            record = self._request("batch", size=size, after=after)
            if record is None:
                return
            rows = _batch_of(record)
            yield rows
            after = rows.cursor

    def ids(self) -> Iterator[list[str]]:
        first = True
        while (names := self._request("ids", first=first)) is not None:
            yield names
            first = False

    def beside(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield name and rows of the tables beside the collection, in parts."""
        first = True
        while (part := self._request("beside", first=first)) is not None:
            yield part[0], part[1]
            first = False

    def exists(self) -> bool:
        return bool(self._request("exists"))

    def compact(self) -> str:
        return str(self._request("compact"))

    def files(self) -> list[str]:
        return list(self._request("files"))

    def create(self, dimension: int, *, metric: str | None = None, filter_fields: Sequence[str] = ()) -> None:
        self._request("create", dimension=dimension, metric=metric, filter_fields=list(filter_fields))

    def write(self, batch: Batch) -> None:
        self._request("write", batch=_record_of(batch))

    def read(self, ids: Sequence[str], *, missing: Missing = "raise") -> Batch:
        return _batch_of(self._request("read", ids=list(ids), missing=missing))

    def search(self, vector: Any, k: int = 10, where: Where | None = None) -> list[Match]:
        values = np.asarray(vector, dtype=np.float64).tolist()
        beside = None if where is None else {name: list(strings) for name, strings in where.items()}
        return [Match(*hit) for hit in self._request("search", vector=values, k=k, where=beside)]

    def delete(self, ids: Sequence[str]) -> None:
        self._request("delete", ids=list(ids))

    def close(self) -> None:
        """End the subprocess; a running request gets 30 seconds to finish."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()  # the end of its input ends the subprocess
        try:
            process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _request(self, method: str, **arguments: Any) -> Any:
        """Return the subprocess's answer, or raise its error."""
        answer = None
        with self._lock:
            self._requests += 1
            try:
                process = self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                _send(process.stdin, {"method": method, "number": self._requests, **arguments})
                answer = _receive(process.stdout)
            except OSError:
                pass  # the subprocess ended; reported below
            except BaseException:  # after Ctrl-C the pipe still holds the answer to this request
                self.close()
                raise
            if answer is None or answer["number"] != self._requests:
                self.close()
                raise StoreError.of(
                    _OWNER,
                    "process",
                    "running as long as the store is open",
                    "one that ended",
                    fix="Repeat the command; finished work is kept.",
                )
        if "error" in answer:
            raise _error(*answer["error"])
        return answer["value"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            package = str(Path(errors.__file__).parents[1])
            # Linux signals the subprocess when the thread that started it ends, so only the main thread asks for it.
            lasts = threading.current_thread() is threading.main_thread()
            self._process = subprocess.Popen(
                # -P: do not import from the current folder, which may be writable by others.
                [sys.executable, "-P", "-c", _PROGRAM, package, str(os.getpid()), "dies" if lasts else ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C goes to the parent alone, which decides
                env={name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)},
            )
            assert self._process.stdin is not None
            _send(self._process.stdin, self._opening)
        return self._process


def _error(name: str, text: str, code: str = "", param: str = "", owner: str = "") -> VecveilError:
    # The name comes from the subprocess, which is not trusted: only our own errors are raised.
    kind = getattr(errors, name, StoreError)
    kind = kind if isinstance(kind, type) and issubclass(kind, VecveilError) else StoreError
    error: VecveilError = kind.__new__(kind)  # some constructors require more arguments
    VecveilError.__init__(error, text, code=code, param=param)
    error.owner = str(owner)
    return error


def _record_of(batch: Batch) -> dict[str, Any]:
    return {
        "ids": batch.ids,
        "fields": [dict(row) for row in batch.fields],
        "shape": batch.vectors.shape,
        "vectors": base64.b64encode(batch.vectors.astype("<f4").tobytes()).decode(),
        "cursor": batch.cursor,
    }


def _batch_of(record: Mapping[str, Any]) -> Batch:
    vectors = np.frombuffer(base64.b64decode(record["vectors"]), dtype="<f4").astype(np.float32)
    fields = tuple(record["fields"])
    return Batch(tuple(record["ids"]), vectors.reshape(record["shape"]), fields, record["cursor"])


def _send(stream: IO[bytes], record: Mapping[str, Any]) -> None:
    stream.write(json.dumps(record, default=_plain).encode() + b"\n")
    stream.flush()


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError.of(
        _OWNER,
        "fields",
        "texts, numbers, true or false, or lists of these",
        type(value).__name__,
        "They are sent to another process.",
        "Leave the field out, or write it as text.",
    )


def _receive(stream: IO[bytes]) -> dict[str, Any] | None:
    """Return the next message, or None at the end of the stream or for a partial message."""
    line = stream.readline()
    return dict(json.loads(line)) if line.endswith(b"\n") else None


class _Served:
    """The subprocess's store and its open iterator over batches."""

    def __init__(self, opening: Mapping[str, Any]) -> None:
        self.store = store_of(opening["kind"], opening["where"], opening["collection"], opening["options"])
        self._reading: tuple[tuple[int, str], Iterator[Batch]] | None = None
        self._listing: Iterator[list[str]] = iter(())
        self._beside: Iterator[tuple[str, list[Any]]] = iter(())

    def answer(self, request: dict[str, Any]) -> Any:
        method = request.pop("method")
        if method == "batch":
            return self._next(request["size"], request["after"])
        if method == "ids":
            self._listing = self.store.ids() if request["first"] else self._listing
            return next(self._listing, None)
        if method == "beside":
            self._beside = _parts(self.store) if request["first"] else self._beside
            return next(self._beside, None)
        if method == "write":
            self.store.write(_batch_of(request["batch"]))
            return None
        if method == "info":
            return asdict(self.store.info())
        if method == "normalises":
            return self.store.normalises
        if method not in ("exists", "compact", "files", "create", "read", "search", "delete"):
            raise StoreError.of(_OWNER, "request", "a known method", "another")
        value = getattr(self.store, method)(**request)
        return _record_of(value) if isinstance(value, Batch) else value

    def _next(self, size: int, after: str) -> dict[str, Any] | None:
        # Continue the open iterator if it stopped at this cursor: a new one may have to seek from the first row.
        reading, self._reading = self._reading, None  # None if `next` raises
        if reading is None or reading[0] != (size, after):
            reading = (size, after), self.store.batches(size, after=after)
        batch = next(reading[1], None)
        if batch is None:
            return None
        self._reading = (size, batch.cursor), reading[1]
        return _record_of(batch)


def _parts(store: VectorStore) -> Iterator[tuple[str, list[Any]]]:
    for name, rows in store.beside():
        left = iter(rows)
        while part := list(itertools.islice(left, _ROWS)):
            yield name, part


def serve(parent: int, *, dies: bool) -> None:
    """Answer the requests of the process ``parent`` until it closes the pipe or ends.

    Args:
        parent: process id.
        dies: the starting thread lives as long as ``parent``, so the kernel may end this process with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where the parent's process group is this one's too
    if sys.platform == "linux" and dies:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print to stdout must not mix with answers
    opening = _receive(requests)
    served: _Served | None = None
    while opening is not None and (request := _receive(requests)) is not None:
        answer: dict[str, Any] = {"number": request.pop("number")}
        try:
            served = served or _Served(opening)
            answer["value"] = served.answer(request)
        except Exception as error:
            # Messages of other errors may quote rows: only the type is sent.
            if not isinstance(error, VecveilError):
                error = StoreError.of(_OWNER, "request", "answered by the database", type(error).__name__)
            answer["error"] = [type(error).__name__, str(error), error.code, error.param, error.owner]
        _send(answers, answer)
    if served is not None:
        served.store.close()


def _end_with(parent: int) -> None:
    """End this process when ``parent`` has ended."""
    # Portable fallback for prctl: an orphan gets another parent id.
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
