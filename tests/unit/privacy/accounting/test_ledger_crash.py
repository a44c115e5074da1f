"""A ledger survives kills, forks, and many processes and threads that record at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.command_line import environment
from harness.fresh_process import in_fresh_process
from vecveil.privacy.accounting.ledger import Ledger, transaction

P = "a1b2c3"
HAMMER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from vecveil.privacy.accounting.ledger import Ledger
from vecveil.errors import LedgerCapError

ledger = Ledger(sys.argv[1], cap=20)
def some(thread):
    taken = 0
    for k in range(20):
        try:
            ledger.record(["a", "b", f"own {k}"], protector=sys.argv[2], epsilon=1.0)
            taken += 1
        except LedgerCapError:
            pass
    return taken
with ThreadPoolExecutor(3) as pool:
    print(sum(pool.map(some, range(3))))
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment(), stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_processes_and_threads_never_exceed_the_cap(tmp_path: Path) -> None:
    """Four processes of three threads each race to make one ledger and to fill it up."""
    path = tmp_path / "releases.ledger"
    processes = [start(HAMMER, path, f"p{i}") for i in range(4)]
    taken = []
    for process in processes:
        with process:
            assert process.stdout is not None
            taken.append(int(process.stdout.read()))
        assert process.returncode == 0
    ledger = Ledger(path)
    ledger.verify()
    assert sum(taken) == 20  # of 240 batches that all hold "a" and "b"
    assert (ledger.count("a"), ledger.count("b"), ledger.total) == (20, 20, 60)
    assert ledger.summary().most_releases == 20
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
def test_control_without_a_cap_the_same_race_exceeds_it(tmp_path: Path) -> None:
    path = tmp_path / "releases.ledger"
    with start(HAMMER.replace("cap=20", "cap=100"), path, "p") as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == 60
    assert Ledger(path).count("a") == 60


def _record_in_child(ledger: Ledger, name: str) -> None:
    for _ in range(10):
        ledger.record([name, "shared"], protector=P, epsilon=1.0)


@pytest.mark.slow
@in_fresh_process
def test_one_object_may_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    """Threads record all the while, so that forks fall into their transactions."""
    ledger = Ledger(tmp_path / "releases.ledger")
    stop = threading.Event()
    rounds: list[int] = []

    def keep_recording() -> None:
        while not stop.is_set():
            ledger.record(["thread"], protector=P, epsilon=1.0)
            rounds.append(1)

    children = []
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(keep_recording) for _ in range(2)]
        try:
            for i in range(6):
                children.append(os.fork())
                if children[-1] == 0:
                    code = 1
                    try:
                        _record_in_child(ledger, f"child {i}")
                        code = 0
                    finally:
                        os._exit(code)
                time.sleep(0.01)
            codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        finally:
            stop.set()
        for future in futures:
            future.result()
    assert codes == [0] * 6
    ledger.verify()
    assert ledger.count("shared") == 60
    assert [ledger.count(f"child {i}") for i in range(6)] == [10] * 6
    assert ledger.count("thread") == len(rounds)
    assert ledger.total == 120 + len(rounds)


@in_fresh_process
def test_a_fork_waits_for_a_transaction_and_frees_the_lock_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "releases.ledger"
    ledger = Ledger(path)
    inside, go = threading.Event(), threading.Event()
    ended: list[float] = []

    def hold() -> None:
        with transaction(ledger._path):
            inside.set()
            go.wait(60)
            time.sleep(0.1)
            ended.append(time.monotonic())

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    go.set()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger.record(["a"], protector=P, epsilon=1.0)
            code = 0
        finally:
            os._exit(code)
    assert ended  # the fork came after the transaction
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with ThreadPoolExecutor(1) as pool:  # free for other threads of the parent
        assert pool.submit(ledger.count, "a").result(timeout=60) == 1
