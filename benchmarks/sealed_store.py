"""A million sealed rows in one database, beside the same database without protection and without sealing.

    python benchmarks/sealed_store.py [--rows 100000 1000000] [--folder DIR]

Unit vectors of 384 float32 values with texts of about 120 characters go into LanceDB through the same adapter, in
batches of 10,000, each case in a process of its own: (a) clean vectors with readable texts, (b) vectors protected by
`subspace`, without texts, (c) `ProtectedCollection`: protected vectors and sealed blobs. Then 50 queries ask for the
ten nearest rows; (c) fetches 200 candidates and ranks them exactly. LanceDB compares a query with every row (no
index). Peaks are VmHWM of the process, so it needs Linux.

Needs about 6 KB of disk a row in DIR, which is removed afterwards. Writes benchmarks/results/sealed-store.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from protect import synthetic_pairs

import vecveil
from vecveil.io import write_text
from vecveil.stores.lancedb import LanceStore
from vecveil.stores.store import Batch

RESULTS = Path(__file__).parent / "results" / "sealed-store.json"
DIMENSION, BATCH, QUERIES, CANDIDATES = 384, 10_000, 50, 200
CASES = ("clean", "protected", "sealed")


def batches(rows: int) -> Iterator[tuple[list[str], np.ndarray, list[str]]]:
    """Yield ids, unit vectors and texts."""
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        X = np.random.default_rng([7, start]).standard_normal((count, DIMENSION), np.float32)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        numbers = range(start, start + count)
        texts = [f"Note {i}: " + "the patient came back and was seen again; " * 2 + f"see {i * 7}." for i in numbers]
        yield [str(i) for i in numbers], X, texts


def measured(case: str, rows: int, folder: Path) -> dict[str, float | int | str]:
    """Write the rows of one case, search them, and return the figures."""
    protector, store = vecveil.load(folder / "p.vecveil"), LanceStore(str(folder / case), "notes")
    collection = vecveil.ProtectedCollection(
        store, protector, str(folder / "search.keys"), name="notes", candidates=CANDIDATES
    )
    seconds = 0.0
    first = np.empty((0, DIMENSION), np.float32)
    for ids, X, texts in batches(rows):
        first = X[:QUERIES] if not len(first) else first
        start = time.perf_counter()
        if case == "sealed":
            collection.add(texts, ids=ids, vectors=X)
        else:
            stored = X if case == "clean" else protector.protect(X)
            fields = tuple({"text": text} if case == "clean" else {} for text in texts)
            if not store.exists():
                store.create(DIMENSION, metric="cosine")
            store.write(Batch(tuple(ids), stored, fields))
        seconds += time.perf_counter() - start
    queries = first + 0.02 * np.random.default_rng(1).standard_normal(first.shape, np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found, times = 0, []
    for number, query in enumerate(queries):
        start = time.perf_counter()
        if case == "sealed":
            ids = collection.search(query, top=10).ids
        else:
            asked = query if case == "clean" else protector.protect(query[None])[0]
            ids = [match.id for match in store.search(asked, 10)]
        times.append(time.perf_counter() - start)
        found += ids[0] == str(number)
    written = sum(path.stat().st_size for path in (folder / case).rglob("*") if path.is_file())
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    return {
        "case": case,
        "rows": rows,
        "rows_per_second": rows / seconds,
        "milliseconds_a_search": 1e3 * float(np.median(times)),
        "bytes_a_row": written / rows,
        "peak_mib": peak / 1024,
        "first_is_the_exact_nearest": found / QUERIES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="Where to write [default: the system's temporary folder].")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measured(given.case, given.rows[0], given.folder)))
        return
    results = []
    for rows in given.rows:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            vecveil.KeyFile.create(f"{folder}/search.keys", "bench")
            vecveil.fit_pairs(
                *synthetic_pairs(4_000, DIMENSION),
                noise_to_signal=0.25,
                show_progress=False,
                rank=80,
                kept=128,
                flattening=0.6,
            ).save(f"{folder}/p.vecveil")
            for case in CASES:
                command = [sys.executable, __file__, "--case", case, "--rows", str(rows), "--folder", folder]
                printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                results.append(json.loads(printed.splitlines()[-1]))
                print(json.dumps(results[-1]))
    write_text(RESULTS, json.dumps({"schema": "vecveil.bench.sealed-store/1", "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
