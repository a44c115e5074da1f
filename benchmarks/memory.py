"""Peak memory of protecting a large table, each case in a process of its own.

    python benchmarks/memory.py                  # a million vectors of 384 float32 values
    python benchmarks/memory.py --rows 100000 --texts 5000
    python benchmarks/memory.py --cases "texts through MiniLM to parquet"

Every case loads a protector of the default method (fitted beforehand on made-up pairs) and releases
with its noise and its map. Vectors are random; "jsonl" has texts and a stand-in for the encoder;
"texts through MiniLM" has the encoder itself, without a cache, and its weights in the peak.

Adds to benchmarks/results/memory.json, where a case replaces its last run. The peak is VmHWM of the
process, which counts its own pages and the files it has mapped, so it needs Linux.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "memory.json"
CASES = (
    "npy to npy",
    "parquet to parquet",
    "parquet in one row group to parquet",
    "jsonl to parquet",
    "texts through MiniLM to parquet",
)
LIMIT_MIB = 1024
ENCODER_LIMIT_MIB = 2048
"""With a model in memory."""


def has_encoder(case: str) -> bool:
    """Return whether texts go through the model itself."""
    return "MiniLM" in case


def make_protector(path: Path, dimension: int) -> None:
    """Save a protector of the default method, fitted on made-up pairs with planted words."""
    import vecveil

    rng = np.random.default_rng(2)
    negative = rng.standard_normal((600, dimension)).astype(np.float32)
    words = (rng.random((600, 12)) < 0.25).astype(int)
    positive = negative + (words @ rng.standard_normal((12, dimension))).astype(np.float32)
    vecveil.fit_pairs(
        positive, negative, words, noise_to_signal=0.3, rank=12, kept=dimension // 2, flattening=0.5, pairs=True
    ).save(path)


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
    if case.startswith(("jsonl", "texts")):
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
    table = pa.table({"id": pa.array(np.arange(rows)), "embedding": pa.FixedSizeListArray.from_arrays(flat, dimension)})
    pq.write_table(table, path, row_group_size=rows if "one row group" in case else 65_536)
    return path


def protect(source: Path, target: Path, protector_file: Path, encoder: bool) -> dict[str, float]:
    """Protect ``source`` in this process and return its peak memory and time."""
    import vecveil
    from vecveil.texts.tables import protect_table

    protector = vecveil.load(protector_file)
    start = time.perf_counter()
    if encoder:
        encode = vecveil.load_encoder("minilm", cache=None, show_progress=False).encode
    else:
        rng, dimension = np.random.default_rng(1), protector.dimension
        encode = lambda texts: rng.standard_normal((len(texts), dimension), np.float32)  # noqa: E731
    counts = protect_table(
        source, target, protector.protect, encode=encode, dimension=protector.dimension, show_progress=False
    )
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"rows": counts.rows, "peak_mib": round(int(peak.split()[1]) / 1024, 1), "seconds": seconds}


def measure(case: str, rows: int, dimension: int) -> dict[str, Any]:
    """Return the record of one case, run in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        make += f"import memory, pathlib; folder = pathlib.Path({name!r}); "
        make += f"memory.make_protector(folder / 'p.vecveil', {dimension}); "
        make += "(folder / 'in').mkdir(); "
        make += f"memory.make_input({case!r}, folder / 'in', {rows}, {dimension})"
        subprocess.run([sys.executable, "-c", make], check=True)
        source = next((folder / "in").iterdir())
        target = folder / ("protected" + (".npy" if case.endswith("npy") else ".parquet"))
        command = [sys.executable, __file__, "--one", str(source), str(target)]
        command.append(str(folder / "p.vecveil"))
        command += ["--encoder"] if has_encoder(case) else []
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures = json.loads(done.stdout)
        return {
            "case": case,
            "rows": figures["rows"],
            "dimension": dimension,
            "dtype": "float32",
            "input_mib": round(source.stat().st_size / 2**20, 1),
            "output_mib": round(target.stat().st_size / 2**20, 1),
            "peak_mib": figures["peak_mib"],
            "limit_mib": ENCODER_LIMIT_MIB if has_encoder(case) else LIMIT_MIB,
            "seconds": round(figures["seconds"], 1),
        }


def main() -> int:
    """Measure and write; return 1 if a case takes more than its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the cases without a model")
    parser.add_argument("--texts", type=int, default=20_000, help="of the case with MiniLM")
    parser.add_argument("--dimension", type=int, default=384, help="of the cases without a model")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=3, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--encoder", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(protect(*options.one, options.encoder)))
        return 0
    failed = False
    for case in options.cases:
        model = has_encoder(case)
        record = measure(case, options.texts if model else options.rows, 384 if model else options.dimension)
        failed |= record["peak_mib"] > record["limit_mib"]
        print(f"{case}: peak {record['peak_mib']} MiB, {record['seconds']} s", flush=True)
        old = json.loads(options.out.read_text("utf-8"))["memory"] if options.out.exists() else []
        records = {row["case"]: row for row in [*old, record]}
        kept = [records[name] for name in CASES if name in records]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"memory": kept}, indent=2) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
