"""One process of a sealed index, to be killed; see `tests/faults/test_kill_sealed_index.py`.

A writer notes each change before and after it in its log, so that whoever kills it knows what must be there. Times are
of one clock for all processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.errors import StoreError
from vecveil.index import SealedIndex, log

IDS = 12


def write(index: SealedIndex, role: str, log_file: Path, draw: random.Random) -> None:
    """Change rows of its own and rows that the other writer changes too; a fork of it makes every fourth change."""
    with open(log_file, "a", encoding="utf-8") as said:
        while True:
            ids = draw.sample([*(f"{role}-{i}" for i in range(IDS)), *(f"shared-{i}" for i in range(IDS // 4))], 3)
            change = draw.choice(["add", "add", "add", "delete", "forget"])
            forked = draw.random() < 0.25 and os.fork()
            if forked:
                assert os.waitpid(forked, 0)[1] == 0, "a fork failed"
                continue
            serial = time.monotonic_ns()
            for state in ("begun", "done"):
                if state == "done" and change == "add":
                    index.add([str(serial)] * 3, ids=ids, vectors=np.full((3, 8), 1.0))
                elif state == "done":
                    getattr(index, change)(ids)
                text = str(serial) if change == "add" else None
                said.write(json.dumps([state, serial, time.monotonic_ns(), ids, text]) + "\n")
                said.flush()
            if forked == 0 and forked is not False:
                os._exit(0)


def read(index: SealedIndex) -> None:
    """Check that no row is there twice, and that none goes back to what it was."""
    newest: dict[str, int] = {}
    gone: set[str] = set()
    while True:
        got = index.get()
        assert len(set(got.ids)) == len(got.ids)
        found = dict(zip(got.ids, got.texts, strict=True))
        for name, text in found.items():
            if name.startswith("writer"):  # two writers change the others at once
                assert int(text or 0) >= newest.get(name, 0) + (name in gone), f"{name} came back"
                newest[name] = int(text or 0)
        gone = newest.keys() - found.keys()


def maintain(index: SealedIndex, draw: random.Random) -> None:
    """Compact and renew keys."""
    while True:
        if draw.random() < 0.8:
            index.compact()
        else:
            try:
                index.reseal()
            except StoreError as error:
                if error.code != "E-INDEX-BUSY":
                    raise


def main(role: str, folder: str, location: str, options: str, seed: str) -> None:
    """Work until it is killed; an error is printed."""
    log._MOST_APPENDS = 8
    draw = random.Random(seed)
    settings: dict[str, Any] = json.loads(options)
    with contextlib.suppress(BaseException):
        try:
            index = SealedIndex(location, f"{folder}/search.keys", max_staleness=0, **settings)
            if role.startswith("writer"):
                write(index, role, Path(folder, f"{role}.log"), draw)
            elif role == "reader":
                read(index)
            else:
                maintain(index, draw)
        except BaseException:
            traceback.print_exc()
            raise
