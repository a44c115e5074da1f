"""A store in a process of its own: what the database writes there holds nothing but what was sent to it.

Chroma saves memory that it never set in the files of its index, when it is written and when it is read: in a process
that has seen clean rows these are, now and then, texts and clean vectors. So its folders are opened by one that sees
nothing but what is in them and what is written to them: no key, no protector, and none of the environment that a
database has no use for. Requests go to its stdin, answers come from its stdout (`vecveil.databases.apart_process`).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from vecveil import errors
from vecveil.databases.apart_messages import OWNER, batch_of, receive, record_of, send
from vecveil.databases.store import Batch, StoreInfo, VectorStore
from vecveil.errors import StoreError, VecveilError

__all__ = ["StoreApart"]

_SECONDS = 30.0
_ENVIRONMENT = re.compile(
    r"PATH|HOME|USER|LANG|LC_.*|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|LD_LIBRARY_PATH|DYLD_.*|PYTHON.*|VIRTUAL_ENV|XDG_.*"
    r"|OMP_.*|OPENBLAS_.*|MKL_.*|CHROMA_(?!CLIENT_AUTH).*|ANONYMIZED_TELEMETRY"
)
_PROGRAM = """
import sys
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from vecveil.databases.apart_process import main
main(int(sys.argv[2]), dies=sys.argv[3] == "dies")
"""


class StoreApart(VectorStore):
    """Hands everything on to a store in another process, which begins with the first request.

    Threads may share it: their requests are answered one after another.

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
        self._one = threading.RLock()
        self._asked = 0

    def __repr__(self) -> str:
        return f"StoreApart({self._opening['kind']!r})"

    def name_function(self, function: Any) -> None:
        """Let the collection name an embedding function of ours, for Chroma; the other process gets its names alone.

        Args:
            function: a `vecveil.integrations.chroma.ProtectedEmbeddingFunction`.
        """
        self.close()
        self._opening["function"] = function.get_config()

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
            rows = batch_of(said, content)
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
        said, content = record_of(batch)
        self._ask("write", content, batch=said)

    def read(self, ids: Sequence[str]) -> Batch:
        """Return the rows of ``ids``."""
        return batch_of(*self._ask("read", ids=list(ids)))

    def close(self) -> None:
        """End the process; what it is doing is done first, if that takes no longer than half a minute."""
        with self._one:
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
        with self._one:
            answer = None
            self._asked += 1
            try:
                process = self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                send(process.stdin, {"do": doing, "number": self._asked, **given}, content)
                answer = receive(process.stdout)
            except OSError:
                pass
            except BaseException:  # Ctrl-C in between: what comes next would be the answer to this
                self.close()
                raise
            if answer is None or answer[0].get("number") != self._asked:
                self.close()
                answer = None
        if answer is None:
            raise StoreError.of(OWNER, "process", "running as long as the store is open", "one that ended",
                                fix="Run again: what was done stays done.")  # fmt: skip
        said, blob = answer
        if "error" in said:
            raise _error(said["error"], said["text"])
        return said["value"], blob

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            package = str(Path(errors.__file__).parents[1])
            # The system ends a process with the thread that began it: only with one that lasts is that asked for.
            lasts = threading.current_thread() is threading.main_thread()
            self._process = subprocess.Popen(
                # -P: nothing is imported from the current folder, which may be anybody's.
                [sys.executable, "-P", "-c", _PROGRAM, package, str(os.getpid()), "dies" if lasts else ""],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if _ENVIRONMENT.fullmatch(name)},
            )  # fmt: skip
            assert self._process.stdin is not None
            send(self._process.stdin, self._opening)
        return self._process


def _error(name: str, text: str) -> VecveilError:
    kind = getattr(errors, name, StoreError)
    kind = kind if isinstance(kind, type) and issubclass(kind, VecveilError) else StoreError
    error: VecveilError = kind.__new__(kind)  # some take more than a text
    Exception.__init__(error, text)
    return error
