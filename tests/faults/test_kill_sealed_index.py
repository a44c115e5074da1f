"""Processes of a sealed index are killed at random moments: no acknowledged write is lost, none comes twice or back.

Two writers, one process that compacts and renews keys, and two readers work on one folder, or over S3's API, at once;
one of them is killed and started again. ``VECVEIL_FAULT_MOMENTS=300 pytest tests/faults/test_kill_sealed_index.py``
kills 300 times each.
"""

from __future__ import annotations

import json
import math
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.faults import MOMENTS, Child, WarmProcess, seed
from vecveil.index import SealedIndex
from vecveil.keys import KeyFile

ROLES = ("writer1", "writer2", "keeper", "reader", "reader")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    with WarmProcess(tmp_path_factory.mktemp("said"), ("index_process", "pyarrow.parquet", "s3fs")) as warm:
        yield warm


@pytest.mark.parametrize("storage", ["folder", "s3"])
def test_killed_processes_lose_nothing(
    storage: str, tmp_path: Path, process: WarmProcess, request: pytest.FixtureRequest
) -> None:
    draw, logs = random.Random(seed("sealed index")), [tmp_path / f"{role}.log" for role in ROLES[:2]]
    location, options = str(tmp_path / "notes"), {}
    if storage == "s3":
        given = request.getfixturevalue("s3_options")
        location, options = f"s3://bucket/{tmp_path.name}", {"storage_options": given, "cache": str(tmp_path / "cache")}
    KeyFile.create(tmp_path / "search.keys", "first")
    index = SealedIndex(location, tmp_path / "search.keys", **options)
    index.add(None, ids=["first"], vectors=np.ones((1, 8)))

    def start(role: str, number: int) -> Child:
        arguments = (role, tmp_path, location, json.dumps(options), number)
        return process.start(*arguments, cwd=tmp_path, task="index")

    def kill(child: Child) -> None:
        child.kill()
        done = child.wait()
        assert done.code == -signal.SIGKILL and "Traceback" not in done.err, done.err  # noqa: PT018

    running = [start(role, number) for number, role in enumerate(ROLES)]
    try:
        for moment in range(MOMENTS):
            said = ended(logs)
            time.sleep(draw.uniform(0.05, 0.5))
            due = time.monotonic() + 60
            while ended(logs) == said:
                assert time.monotonic() < due, "the writers hang"
                time.sleep(0.01)
            victim = draw.randrange(len(running))
            kill(running.pop(victim))
            running.insert(victim, start(ROLES[victim], moment + 100))
    finally:
        while running:
            kill(running.pop())
    index = SealedIndex(location, tmp_path / "search.keys", **options)
    index.compact()
    got = index.get()
    assert len(set(got.ids)) == len(got.ids)
    found = dict(zip(got.ids, got.texts, strict=True))
    assert "first" in found
    check(found, logs)


def ended(logs: list[Path]) -> int:
    """How many changes have ended: their beginnings alone would let a slow machine end the test before a change."""
    return sum(log.read_bytes().count(b'["done"') for log in logs if log.exists())


def check(found: dict[Any, str | None], logs: list[Path]) -> None:
    """Compare the rows with what writers noted: a change outlives those that had ended when it began."""
    changes: dict[str, dict[int, list[Any]]] = {}
    for log in logs:
        for line in log.read_text(encoding="utf-8").splitlines():
            state, begun, now, ids, text = json.loads(line)
            for name in ids:
                changes.setdefault(name, {})[begun] = [text, now if state == "done" else math.inf]
    done = 0
    for name, made in changes.items():
        newest = max((begun for begun, (_, end) in made.items() if end < math.inf), default=0)
        done += sum(end < math.inf for _, end in made.values())
        possible = {text for text, end in made.values() if end >= newest} | ({None} if not newest else set())
        assert found.get(name) in possible, name
    assert done
