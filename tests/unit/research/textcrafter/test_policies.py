"""Policies that several cells share are trained by one process while others wait."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

from harness.fresh_process import in_fresh_process
from research.textcrafter import defences


class _Slow:
    """Stands for a protector: saving leaves a line in a log and a file."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def save(self, path: Path) -> None:
        with self.log.open("a") as file:
            file.write("trained\n")
        time.sleep(0.3)  # without a lock the other process would be inside by now
        path.write_text("policy")


class _Applied:
    def __init__(self, log: Path) -> None:
        self.protector = _Slow(log)


def _worker(folder: Path, start: Any, found: Any) -> None:
    defences.load = lambda path: path.read_text()  # type: ignore[assignment,return-value]
    start.wait()
    found.put(defences.kept_policy(folder / "p.vecveil", lambda: _Applied(folder / "log")))  # type: ignore[arg-type,return-value]


@in_fresh_process
def test_of_two_processes_one_trains(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # nothing here uses torch
    start, found = context.Barrier(2), context.SimpleQueue()
    both = [context.Process(target=_worker, args=(tmp_path, start, found)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(30)
        assert one.exitcode == 0
    assert [found.get(), found.get()] == ["policy", "policy"]
    assert (tmp_path / "log").read_text() == "trained\n"
