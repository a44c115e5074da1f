"""A process that records in a ledger is killed at random moments: what it was told is recorded, is."""

from __future__ import annotations

import random
import time
from pathlib import Path

from harness.faults import MOMENTS, WarmProcess, left_over, seed
from vecveil import Ledger

BATCH = 40


def test_what_was_acknowledged_is_there(warm: WarmProcess, tmp_path: Path) -> None:
    """One ledger lives through several kills, the first of which may come before it is made."""
    rng = random.Random(seed("ledger"))
    place = tmp_path / "place"
    place.mkdir()
    for moment in range(MOMENTS):
        if moment % 5 == 0:
            path, whole, further = place / f"{moment}.ledger", 0, 0
        child = warm.start(path, BATCH, whole, cwd=place, task="record")
        time.sleep(rng.uniform(0, 0.3))
        child.kill()
        done = child.wait()
        assert done.code == -9, done.err
        said = done.out.split("\n")[:-1]
        acknowledged = int(said[-1]) + 1 if said else whole
        with Ledger(path, cap=1) as ledger:
            ledger.verify()
            batches = ledger.total - further
            assert batches in (acknowledged * BATCH, (acknowledged + 1) * BATCH)
            whole = batches // BATCH
            assert set(ledger.summary().histogram) <= {1}
            assert all(ledger.count(f"{number} {BATCH - 1}") == 1 for number in range(whole)[-5:])
            # A journal that was never begun stays until the next writing.
            ledger.record([f"after {moment}"], protector="a1b2c3", epsilon=1.0)
            further += 1
            ledger.verify()
        assert left_over(place) == []
