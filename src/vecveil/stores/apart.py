"""Run a store in a subprocess, so that the database cannot write memory of this process to its files.

Chroma writes uninitialised memory to its index files, on writes and on reads. In a process with clean rows these bytes
may be texts and clean vectors. The subprocess of `StoreApart` receives only the data to store: no key, no protector,
and only the environment variables that a database needs. Messages are lines of JSON, not pickles: code from an
untrusted Chroma folder stays in the subprocess.
"""

from __future__ import annotations

import base64
import contextlib
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

_ROWS = 200  # of another table, in an answer
_CLOSE_SECONDS = 30.0  # for a running request to finish
# An allowlist: variables may contain noise keys and passwords. Chroma's client credentials are for servers only.
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
serve(int(sys.argv[2]))
"""


class StoreApart(VectorStore):
    """A store in a subprocess, which starts with the first request. Thread-safe."""

    kind: ClassVar[str] = "apart"

    def __init__(self, kind: str, where: str, collection: str | None, options: Mapping[str, str] | None = None) -> None:
        self._opening = [kind, where, collection, dict(options or {})]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)

    def __repr__(self) -> str:
        return f"StoreApart({self._opening[0]!r})"

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
        # By cursor: other requests may come in between, and a new subprocess can continue.
        number = next(self._numbers)
        while (record := self._request("batches", number, size=size, after=after)) is not None:
            yield (rows := _batch_of(record))
            after = rows.cursor

    def ids(self) -> Iterator[list[str]]:
        number = next(self._numbers)
        while (names := self._request("ids", number)) is not None:
            yield names

    def beside(self) -> Iterator[tuple[str, list[Any]]]:
        number = next(self._numbers)
        while (part := self._request("beside", number)) is not None:
            yield part[0], part[1]

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
        for pipe in filter(None, (process.stdin, process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()  # the end of its input ends the subprocess
        try:
            process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _request(self, method: str, reading: int = 0, /, **arguments: Any) -> Any:
        """Return the subprocess's answer, or raise its error; ``reading`` is the number of an iterator."""
        answer = None
        with self._lock:
            number = next(self._numbers)
            try:
                process = self._running()
                _send(process.stdin, [number, method, reading, arguments])
                answer = _receive(process.stdout)
            except OSError:
                pass  # the subprocess ended; reported below
            except BaseException:  # after Ctrl-C the pipe still contains the answer to this request
                self.close()
                raise
            if answer is None or answer[0] != number:
                self.close()
                raise StoreError(
                    "The subprocess with the database ended. Repeat the command; finished work is kept.",
                    param="process",
                )
        if answer[2] is not None:
            raise _error(*answer[2])
        return answer[1]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            package = str(Path(errors.__file__).parents[1])
            self._process = subprocess.Popen(
                # -P: do not import from the current folder, which may be writable by others.
                [sys.executable, "-P", "-c", _PROGRAM, package, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C goes only to the parent, which decides
                env={name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)},
            )
            _send(self._process.stdin, self._opening)
        return self._process


def _error(name: str, text: str, code: str = "", param: str = "") -> VecveilError:
    # The name comes from the subprocess, which is not trusted: only our own errors are raised.
    kind = getattr(errors, name, StoreError)
    kind = kind if isinstance(kind, type) and issubclass(kind, VecveilError) else StoreError
    error: VecveilError = kind.__new__(kind)  # some constructors require more arguments
    VecveilError.__init__(error, text, code=code, param=param)
    return error


def _record_of(batch: Batch) -> list[Any]:
    vectors = base64.b64encode(batch.vectors.astype("<f4").tobytes()).decode()
    return [batch.ids, vectors, batch.vectors.shape, batch.fields, batch.cursor]


def _batch_of(record: Sequence[Any]) -> Batch:
    ids, vectors, shape, fields, cursor = record
    X = np.frombuffer(base64.b64decode(vectors), dtype="<f4").astype(np.float32).reshape(shape)
    return Batch(tuple(ids), X, tuple(fields), cursor)


def _send(stream: IO[bytes] | None, record: Sequence[Any]) -> None:
    assert stream is not None
    stream.write(json.dumps(record, default=_plain).encode() + b"\n")
    stream.flush()


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise InvalidInputError(
        f"A field contains a {type(value).__name__}. Chroma takes texts, numbers, booleans and lists of these.",
        param="fields",
    )


def _receive(stream: IO[bytes] | None) -> list[Any] | None:
    """Return the next message, or None at the end of the stream or for a partial message."""
    assert stream is not None
    line = stream.readline()
    return list(json.loads(line)) if line.endswith(b"\n") else None


class _Served:
    """The subprocess's store, and its last iterator of each kind."""

    def __init__(self, opening: Sequence[Any]) -> None:
        self.store = store_of(*opening)
        self._open: dict[str, tuple[int, Iterator[Any]]] = {}

    def answer(self, method: str, reading: int, arguments: dict[str, Any]) -> Any:
        if method in ("batches", "ids", "beside"):
            # Continue the last iterator if possible: a new one may have to seek from the first row.
            number, rows = self._open.pop(method, (0, iter(())))  # none is left if `next` raises
            if number != reading:
                rows = _parts(self.store) if method == "beside" else getattr(self.store, method)(**arguments)
            if (value := next(rows, None)) is not None:
                self._open[method] = reading, rows
        elif method == "write":
            return self.store.write(_batch_of(arguments["batch"]))
        elif method == "normalises":
            return self.store.normalises
        else:
            value = getattr(self.store, method)(**arguments)
        if isinstance(value, StoreInfo):
            return asdict(value)
        return _record_of(value) if isinstance(value, Batch) else value


def _parts(store: VectorStore) -> Iterator[tuple[str, list[Any]]]:
    for name, rows in store.beside():
        left = iter(rows)
        while part := list(itertools.islice(left, _ROWS)):
            yield name, part


def serve(parent: int) -> None:
    """Answer the requests of the process ``parent`` until it closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # if both processes share a process group
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    opening = _receive(requests)
    served: _Served | None = None
    while opening is not None and (request := _receive(requests)) is not None:
        number, *asked = request
        value, failure = None, None
        try:
            served = served or _Served(opening)
            value = served.answer(*asked)
        except Exception as error:
            # Messages of other errors may quote rows: only the type is sent.
            if not isinstance(error, VecveilError):
                error = StoreError(f"The database failed ({type(error).__name__}).", param="request")
            failure = [type(error).__name__, str(error), error.code, error.param]
        _send(answers, [number, value, failure])
    if served is not None:
        served.store.close()


def _end_with(parent: int) -> None:
    """End this process when ``parent`` has ended; an orphan gets another parent id."""
    while os.getppid() == parent:
        time.sleep(0.05)
    os._exit(1)
