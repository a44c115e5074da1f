"""Peak memory of protecting a large table, each case in a process of its own.

    python benchmarks/memory.py                  # a million vectors of 384 float32 values
    python benchmarks/memory.py --rows 100000

Writes benchmarks/results/memory.json. The peak is VmHWM of the process, which counts its own pages
and the files it has mapped, so it needs Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "memory.json"
CASES = (
    "npy to npy",
    "parquet to parquet",
    "parquet in one row group to parquet",
    "jsonl to parquet",
)
LIMIT_MIB = 1024


def make_input(case: str, folder: Path, rows: int, dimension: int) -> Path:
    """Write the input of a case and return its path."""
    rng = np.random.default_rng(0)
    if case.startswith("npy"):
        path = folder / "clean.npy"
        array = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dimension))
        for start in range(0, rows, 50_000):
            stop = min(rows, start + 50_000)
            array[start:stop] = rng.standard_normal((stop - start, dimension), np.float32)
        array.flush()
        return path
    if case.startswith("jsonl"):
        path = folder / "clean.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for i in range(rows):
                row = {"id": i, "text": f"Note {i}: the patient was seen and sent home. " * 4}
                file.write(json.dumps(row) + "\n")
        return path
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "clean.parquet"
    flat = pa.array(rng.standard_normal(rows * dimension, np.float32))
    table = pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, dimension),
        }
    )
    pq.write_table(table, path, row_group_size=rows if "one row group" in case else 65_536)
    return path


def protect(source: Path, target: Path, dimension: int) -> dict[str, float]:
    """Protect ``source`` in this process and return its peak memory and time."""
    from vecveil.tables import protect_table

    rng = np.random.default_rng(1)
    start = time.perf_counter()
    counts = protect_table(
        source,
        target,
        lambda clean: clean + rng.laplace(size=clean.shape).astype(clean.dtype),
        encode=lambda texts: rng.standard_normal((len(texts), dimension), np.float32),
        show_progress=False,
    )
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "rows": counts.rows,
        "peak_mib": round(int(peak.split()[1]) / 1024, 1),
        "seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(protect(*options.one, options.dimension)))
        return 0
    records = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            make = f"import memory, pathlib; memory.make_input({case!r}, pathlib.Path({name!r}), "
            make += f"{options.rows}, {options.dimension})"
            subprocess.run([sys.executable, "-c", make], check=True, cwd=Path(__file__).parent)
            source = next(Path(name).iterdir())
            target = source.with_name(
                "protected" + (".npy" if case.endswith("npy") else ".parquet")
            )
            command = [sys.executable, __file__, "--dimension", str(options.dimension), "--one"]
            done = subprocess.run(
                [*command, source, target], check=True, capture_output=True, text=True
            )
            figures = json.loads(done.stdout)
            record = {
                "case": case,
                "rows": figures["rows"],
                "dimension": options.dimension,
                "dtype": "float32",
                "input_mib": round(source.stat().st_size / 2**20, 1),
                "output_mib": round(target.stat().st_size / 2**20, 1),
                "peak_mib": figures["peak_mib"],
                "limit_mib": LIMIT_MIB,
                "seconds": round(figures["seconds"], 1),
            }
            records.append(record)
            print(f"{case}: peak {record['peak_mib']} MiB, {record['seconds']} s", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"memory": records}, indent=2) + "\n", encoding="utf-8")
    return 0 if all(record["peak_mib"] <= LIMIT_MIB for record in records) else 1


if __name__ == "__main__":
    raise SystemExit(main())
