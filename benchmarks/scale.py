"""Protecting up to ten million vectors from Parquet to Parquet, beside copying the same files.

    python benchmarks/scale.py [--rows 100000 1000000 10000000] [--engine local] [--folder DIR]

Makes unit vectors of 384 float32 values in files of at most a million rows, and then, each in a process of its own and
by turns, (a) copies the files with pyarrow, batch by batch, doing nothing, once as pyarrow does it by itself and once
with the writer's options that vecveil has (no dictionaries for vectors, which are faster); (b) protects them into a
folder with `laplace` and with `subspace`. Speeds are rows over seconds on the clock of the process without its start
(imports, and for Ray its start, are told apart); the peak is VmHWM of the process, so it needs Linux. The exponent is
the slope of log(processor seconds) over log(rows).

Needs about 3.2 KB of disk a row in DIR, which is removed afterwards. Writes ``benchmarks/results/scale.json``; a row of
the same size and engine replaces its last run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "scale.json"
DIMENSION = 384
FILE_ROWS = 1_000_000
BATCH = 65_536
GIVEN = {"rank": 80, "kept": 128, "flattening": 0.6, "pairs": True}
METHODS = ("laplace", "subspace")
COPIES = ("copy", "copy without dictionaries")
ROUNDS = {100_000: 5, 1_000_000: 3}
"""Of which the median counts; larger sizes are run once."""


def make_protectors(folder: Path) -> None:
    """Save one protector of each method, fitted on made-up pairs."""
    from protect import synthetic_pairs

    import vecveil

    pairs = synthetic_pairs(4_000, DIMENSION)
    vecveil.fit_pairs(*pairs, method="laplace", noise_to_signal=0.25, show_progress=False).save(
        folder / "laplace.vecveil"
    )
    vecveil.fit_pairs(*pairs, noise_to_signal=0.25, show_progress=False, **GIVEN).save(folder / "subspace.vecveil")


def make_input(folder: Path, rows: int) -> None:
    """Write ``rows`` unit vectors with ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    rng = np.random.Generator(np.random.SFC64(rows))
    for first in range(0, rows, FILE_ROWS):
        last = min(first + FILE_ROWS, rows)
        kind = pa.list_(pa.float32(), DIMENSION)
        schema = pa.schema([("id", pa.int64()), ("embedding", kind)])
        name = folder / f"{first // FILE_ROWS:03d}.parquet"
        with pq.ParquetWriter(name, schema, use_dictionary=["id"]) as writer:
            for start in range(first, last, BATCH):
                count = min(BATCH, last - start)
                X = rng.standard_normal((count, DIMENSION), dtype=np.float32)
                X /= np.linalg.norm(X, axis=1, keepdims=True)
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), DIMENSION)
                ids = pa.array(np.arange(start, start + count))
                writer.write_table(pa.Table.from_arrays([ids, vectors], schema=schema))


def copy(source: Path, target: Path, *, dictionaries: bool) -> None:
    """Read and write batches, doing nothing with them."""
    import pyarrow.parquet as pq

    target.mkdir()
    for path in sorted(source.iterdir()):
        with pq.ParquetFile(path) as read:
            options: dict[str, Any] = {} if dictionaries else {"use_dictionary": ["id"]}
            with pq.ParquetWriter(target / path.name, read.schema_arrow, **options) as writer:
                for batch in read.iter_batches(BATCH):
                    writer.write_batch(batch)


def work(case: str, folder: Path, source: Path, target: Path, engine: str) -> dict[str, Any]:
    """Do one case in this process and return what it took."""
    started, used = time.perf_counter(), time.process_time()
    own = 0.0
    if case in COPIES:
        import pyarrow  # noqa: F401

        started, used = time.perf_counter(), time.process_time()
        copy(source, target, dictionaries=case == "copy")
    else:
        from vecveil.gateway.bulk import BulkJob, protect_files
        from vecveil.gateway.bulk.running import run_here

        run = run_here
        job = BulkJob.of(folder / f"{case}.vecveil")
        if engine == "ray":
            import ray

            from vecveil.gateway.ray import run_on_ray

            ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
            run = run_on_ray
        own = time.perf_counter() - started
        started, used = time.perf_counter(), time.process_time()
        manifest = protect_files([source], target, job, engine=run, show_progress=False)
        assert manifest.complete
    return {
        "seconds": time.perf_counter() - started,
        "start_seconds": own,
        "processor_seconds": time.process_time() - used,
        "peak_mib": _peak_mib(),
    }


def _peak_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measured(case: str, folder: Path, source: Path, engine: str, target: Path | None = None) -> dict[str, Any]:
    """Return what one case took in a process of its own."""
    target = folder / "out" if target is None else target
    words = [sys.executable, __file__, "--case", case, "--folder", str(folder), "--source", str(source)]
    words += ["--target", str(target), "--engine", engine]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    shutil.rmtree(target)
    os.sync()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rows: int, folder: Path, engine: str) -> dict[str, Any]:
    """Return all cases for one size, run by turns."""
    source = folder / "in"
    make_input(source, rows)
    os.sync()
    size = sum(path.stat().st_size for path in source.iterdir())
    cases = (*COPIES, *METHODS)
    runs: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
    measured(COPIES[0], folder, source, engine)  # so that no case is the first to read the files
    for _ in range(ROUNDS.get(rows, 1)):
        for case in cases:
            runs[case].append(measured(case, folder, source, engine))
            print(rows, case, runs[case][-1], file=sys.stderr, flush=True)
    shutil.rmtree(source)
    middle = {case: sorted(found, key=lambda one: one["seconds"])[len(found) // 2] for case, found in runs.items()}
    return {
        "rows": rows,
        "engine": engine,
        "dimension": DIMENSION,
        "input_bytes": size,
        "rounds": ROUNDS.get(rows, 1),
        "cases": {
            case: {
                **one,
                "rows_per_second": rows / one["seconds"],
                **{f"of_{other.replace(' ', '_')}": middle[other]["seconds"] / one["seconds"] for other in COPIES},
            }
            for case, one in middle.items()
        },
    }


def exponents(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the slope of log(processor seconds) over log(rows) for each case of the local engine."""
    local = [record for record in records if record["engine"] == "local"]
    if len(local) < 2:
        return {}
    x = np.log([record["rows"] for record in local])
    return {
        case: float(np.polyfit(x, np.log([one["cases"][case]["processor_seconds"] for one in local]), 1)[0])
        for case in (*COPIES, *METHODS)
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--folder", type=Path, help="where the files go [default: a temporary one]")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(work(given.case, given.folder, given.source, given.target, given.engine)))
        return
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sizes": []}
    for rows in given.rows:
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="vecveil-scale-") as name:
            make_protectors(Path(name))
            found = measure(rows, Path(name), given.engine)
        kept = [one for one in known["sizes"] if (one["rows"], one["engine"]) != (found["rows"], found["engine"])]
        sizes = sorted([*kept, found], key=lambda one: (one["engine"], one["rows"]))
        known = {
            **known,
            "schema": "vecveil.bench.scale/1",
            "cores": os.cpu_count(),
            "sizes": sizes,
            "exponents": exponents(sizes),
        }
        write_text(RESULTS, json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
