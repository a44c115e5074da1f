"""An index that is opened before a fork, as by gunicorn --preload, Celery or multiprocessing; in a folder, over S3."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vecveil.index import SealedIndex, sealed_index
from vecveil.keys import KeyFile

CHILDREN = 6


def forked(work: Callable[[], Any]) -> int:
    """Run ``work`` in a fork; return its process id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # one that hangs is killed
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def ended(child: int) -> None:
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture(params=["folder", "s3"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> SealedIndex:
    KeyFile.create(tmp_path / "search.keys", "first")
    location, options = str(tmp_path / "notes"), {}
    if request.param == "s3":
        location = f"s3://bucket/{tmp_path.name}"
        options = {"storage_options": request.getfixturevalue("s3_options"), "cache": tmp_path / "cache"}
    return SealedIndex(location, tmp_path / "search.keys", max_staleness=0, **options)


def test_children_and_parent_lose_no_row(index: SealedIndex) -> None:
    """In turn and at once: all rows, updates and deletions of all children are there."""
    adds = 20 if index._log.storage.local else 6  # a write over S3 is several requests
    index.add(["old", "x"], ids=["shared", "x"], vectors=np.ones((2, 8)))
    assert index.search(np.ones(8)).ids

    def work(number: int) -> None:
        for i in range(adds):
            index.add([f"{number} {i}"], ids=[f"{number}-{i}"], vectors=np.full((1, 8), 1.0 + i))
        index.add([f"new {number}"], ids=["shared"], vectors=np.ones((1, 8)))
        index.delete([f"{number}-0", "x"])
        assert index.search(np.ones(8), top=3).ids

    for number in range(CHILDREN // 2):
        ended(forked(lambda number=number: work(number)))  # type: ignore[misc]
    together = [forked(lambda n=number: work(n)) for number in range(CHILDREN // 2, CHILDREN)]  # type: ignore[misc]
    index.add(["parent"], ids=["parent"], vectors=np.ones((1, 8)))
    for child in together:
        ended(child)
    got = index.get()
    assert set(got.ids) == {f"{n}-{i}" for n in range(CHILDREN) for i in range(1, adds)} | {"shared", "parent"}
    assert str(dict(zip(got.ids, got.texts, strict=True))["shared"]).startswith("new ")


def test_a_child_searches_with_threads_of_its_own(index: SealedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent has searched with its pool and with codes, and a thread holds its locks at the fork."""
    monkeypatch.setattr(sealed_index, "_ONE_THREAD", 100)
    X = np.random.default_rng(0).standard_normal((30_000, 16)).astype(np.float32)
    for start in (0, 15_000):
        part = X[start : start + 15_000]
        index.add(["text"] * len(part), ids=[f"{start + i}" for i in range(len(part))], vectors=part)
    index.compact()
    assert index.search(X[7]).ids[0] == "7"
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with index._log._changing, index._log._loading, index._building:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = forked(lambda: [index.search(X[8], where={"year": {"exists": False}}).texts, index.refresh()])
    due = time.monotonic() + 90
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < due:
        time.sleep(0.05)
    release.set()
    thread.join()
    assert status == (child, 0)
