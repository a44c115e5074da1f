"""One process of a sealed index, to be killed: ``python index_process.py ROLE FOLDER LOG SEED``.

A writer notes each change before and after it in its log, so that whoever kills it knows what must be there.
"""

from __future__ import annotations

import json
import random
import sys

import numpy as np

from vecveil.errors import StoreError
from vecveil.search import SealedIndex, log

IDS = 12


def write(index: SealedIndex, role: str, log_file: str, draw: random.Random) -> None:
    with open(log_file, "a", encoding="utf-8") as said:
        for serial in range(10**6):
            ids = draw.sample([f"{role}-{i}" for i in range(IDS)], 3)
            text = f"{role} {draw.getrandbits(64)}"
            change = draw.choice(["add", "add", "add", "delete", "forget"])
            for state in ("begun", "done"):
                if state == "done" and change == "add":
                    index.add([text] * 3, ids=ids, vectors=np.full((3, 8), serial + 1.0))
                elif state == "done":
                    getattr(index, change)(ids)
                said.write(json.dumps([state, ids, text if change == "add" else None]) + "\n")
                said.flush()


def main() -> None:
    role, folder, log_file, seed = sys.argv[1:]
    log._MOST_APPENDS = 8
    draw = random.Random(seed)
    index = SealedIndex(f"{folder}/notes", f"{folder}/search.keys", max_staleness=0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if role.startswith("writer"):
        write(index, role, log_file, draw)
    while True:
        if role == "reader":
            got = index.get()
            assert len(set(got.ids)) == len(got.ids)
        elif draw.random() < 0.8:
            index.compact()
        else:
            try:
                index.reseal()
            except StoreError as error:
                if error.code != "E-INDEX-BUSY":
                    raise


if __name__ == "__main__":
    main()
