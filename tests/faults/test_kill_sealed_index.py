"""Processes of a sealed index are killed at random moments: no acknowledged write is lost, none comes twice or back.

Two writers, one process that compacts and renews keys, and two readers work on one folder at once; one of them is
killed and started again. ``VECVEIL_FAULT_MOMENTS=300 pytest tests/faults/test_kill_sealed_index.py`` kills 300 times.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from harness import index_process
from harness.command_line import environment
from harness.faults import MOMENTS, seed
from vecveil.randomness import NoiseKeys
from vecveil.search import SealedIndex

ROLES = ("writer1", "writer2", "keeper", "reader", "reader")


def start(role: str, folder: Path, number: int) -> subprocess.Popen[str]:
    arguments = [role, str(folder), str(folder / f"{role}.log"), str(number)]
    process = subprocess.Popen(
        [sys.executable, index_process.__file__, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.stderr.read() if process.stderr else ""
    return process


def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    draw = random.Random(seed("sealed index"))
    NoiseKeys.create(tmp_path / "search.keys", "first")
    SealedIndex(tmp_path / "notes", tmp_path / "search.keys").add(None, ids=["first"], vectors=np.ones((1, 8)))
    running = [start(role, tmp_path, number) for number, role in enumerate(ROLES)]
    try:
        for moment in range(MOMENTS):
            time.sleep(draw.uniform(0.05, 0.5))
            failed = [process for process in running if process.poll() is not None]
            assert not failed, failed[0].stderr.read() if failed[0].stderr else ""
            victim = draw.randrange(len(running))
            running[victim].kill()
            running[victim].communicate()
            running[victim] = start(ROLES[victim], tmp_path, moment + 100)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    index = SealedIndex(tmp_path / "notes", tmp_path / "search.keys")
    index.compact()
    got = index.get()
    assert len(set(got.ids)) == len(got.ids)
    found = dict(zip(got.ids, got.texts, strict=True))
    assert "first" in found
    written = 0
    for role in ("writer1", "writer2"):
        possible: dict[str, set[str | None]] = {f"{role}-{i}": {None} for i in range(index_process.IDS)}
        for line in (tmp_path / f"{role}.log").read_text(encoding="utf-8").splitlines():
            state, ids, text = json.loads(line)
            written += state == "done"
            for name in ids:
                possible[name] = {text} if state == "done" else possible[name] | {text}
        for name, texts in possible.items():
            assert found.get(name) in texts, name
    assert written >= MOMENTS
