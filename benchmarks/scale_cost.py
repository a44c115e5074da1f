"""What a thousand million vectors would cost, reckoned from measured runs, and whether such reckoning is right.

    python benchmarks/scale_cost.py [--rows 1000000] [--folder DIR]

Reads ``benchmarks/results/scale.json`` (from scale.py) for the seconds that a row takes. Then checks the model on this
machine: protects ``--rows`` vectors in many parts with one worker, takes the times of its parts, simulates what several
sizes and numbers of workers would take, and runs those. Workers are processes on one thread each that take the next
part from a list, as on a cluster. Writes ``benchmarks/results/scale-cost.json``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scale import DIMENSION, METHODS, make_input, make_protectors
from scale import RESULTS as SCALE

from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "scale-cost.json"
ROWS = 1_000_000_000
CORES = (2, 64, 1024)
PART_BYTES = 2**25
"""Small parts, so that there are many of them at the sizes that fit here."""


def makespan(parts: Sequence[float], workers: int) -> float:
    """Return the seconds until the last part is done, each given to whoever is free first."""
    free = [0.0] * workers
    for seconds in parts:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def row_cost(sizes: Sequence[dict[str, Any]], case: str) -> dict[str, float]:
    """Return processor seconds and bytes for a row: the slope between the two largest sizes."""
    local = sorted((one for one in sizes if one["engine"] == "local"), key=lambda one: one["rows"])
    small, large = local[-2:]
    rows = large["rows"] - small["rows"]
    seconds = [one["cases"][case]["processor_seconds"] for one in (small, large)]
    return {"processor_seconds": (seconds[1] - seconds[0]) / rows, "bytes": large["input_bytes"] / large["rows"]}


def reckoned(sizes: Sequence[dict[str, Any]], rows: int = ROWS) -> list[dict[str, Any]]:
    """Return the cost of ``rows`` vectors for each method and number of cores."""
    found = []
    for case in METHODS:
        one = row_cost(sizes, case)
        total = rows * one["processor_seconds"]
        part = 2**28 / one["bytes"] * one["processor_seconds"]  # the longest that one core is waited for
        found += [
            {
                "method": case,
                "rows": rows,
                "cores": cores,
                "core_hours": total / 3600,
                "hours": (total / cores + part) / 3600,
                "terabytes_read": rows * one["bytes"] / 1e12,
                "terabytes_written": rows * one["bytes"] / 1e12,
            }
            for cores in CORES
        ]
    return found


def worker(folder: Path, source: Path, target: Path, method: str, index: int, of: int) -> None:
    """Protect parts from the common list until none is left, and tell how long each took."""
    from vecveil.bulk import BulkJob, plan
    from vecveil.bulk.job import PartWorker
    from vecveil.bulk.places import Folder

    parts = plan([str(source)], part_bytes=PART_BYTES)
    work = PartWorker(BulkJob.of(folder / f"{method}.vecveil"), Folder(str(target)), "bench", {})
    times = []
    print("ready", flush=True)
    sys.stdin.readline()
    for part in parts:
        try:  # whoever makes the mark has the part
            os.close(os.open(target / f"_{part.index}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        started = time.perf_counter()
        work(part)
        times.append(time.perf_counter() - started)
    print(json.dumps(times), flush=True)


def together(folder: Path, source: Path, method: str, workers: int) -> tuple[float, list[float]]:
    """Return seconds from the start signal to the last part, and the times of all parts."""
    target = folder / "out"
    target.mkdir()
    environment = {**os.environ, "VECVEIL_THREADS": "1", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--folder", str(folder), "--source", str(source), "--method", method]
    children = [
        subprocess.Popen(
            [*words, "--worker", str(i), "--of", str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for i in range(workers)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    started = time.perf_counter()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    times: list[float] = []
    for child in children:
        assert child.stdout is not None
        times += json.loads(child.stdout.readline())
        child.wait()
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    os.sync()
    return seconds, times


def checked(folder: Path, rows: int) -> list[dict[str, Any]]:
    """Return predicted and measured times: from one worker and half of the rows to all of them, and to two workers."""
    found = []
    make_protectors(folder)
    make_input(folder / "half", rows // 2)
    make_input(folder / "whole", rows)
    for method in METHODS:
        together(folder, folder / "half", method, 1)  # so that the files have been read once
        _, times = together(folder, folder / "half", method, 1)
        cases = (("whole", rows, 1), ("half", rows // 2, 2), ("whole", rows, 2))
        for name, size, workers in cases:
            count = -(-size * len(times) // (rows // 2))
            predicted = makespan((times * count)[:count], workers)
            seconds, _ = together(folder, folder / name, method, workers)
            found.append(
                {"method": method, "rows": size, "workers": workers, "predicted_seconds": predicted, "seconds": seconds}
            )
            print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Reckon, check and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--method", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.folder, given.source, given.folder / "out", given.method, given.worker, given.of)
        return
    sizes = json.loads(SCALE.read_text())["sizes"]
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="vecveil-cost-") as name:
        check = checked(Path(name), given.rows)
    record = {
        "schema": "vecveil.bench.scale-cost/1",
        "dimension": DIMENSION,
        "reckoned": reckoned(sizes),
        "check": check,
    }
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
