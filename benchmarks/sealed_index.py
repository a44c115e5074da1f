"""A sealed index beside the same files without encryption, and beside databases, on the same vectors.

    python benchmarks/sealed_index.py --data DIR [--rows 1000000] [--threads 1] [--folder DIR] [--others] [--limit 900]

DIR is laid out as docs/results.md says. Sentences of ``lm/sentences.parquet``, one a row or all 355,004, are
encoded with MiniLM once; --folder keeps them. Further rows are mixtures of two sentences' vectors: they stand for the
rest of a million rows in speed and memory. Recall is measured against an exact scan of all rows, with 200 sentences
that are not in the index as queries; texts and metadata of the ten hits are read. The sealed index is compacted before
it is searched; the Parquet files have the size of its segments. Each case runs in a process of its own with THREADS
cores. A case that writes or searches for longer than --limit seconds is ended, and measured at 100,000 rows, or else at
10,000. DuckDB encrypts its file and DuckLake its Parquet files (ENCRYPTED); they need duckdb==1.5.5,
duckdb-extension-httpfs and duckdb-extension-ducklake. Writes benchmarks/results/sealed_index.json, or
sealed_beside.json with --others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import vecveil
from vecveil.io import write_text
from vecveil.keys import KeyFile

RESULTS = Path(__file__).parent / "results" / "sealed_index.json"
BATCH, QUERIES, TOP = 50_000, 200, 10
FEWER = 100_000, 10_000  # rows of a case that did not finish
GROUP_ROWS = 2500  # of the files without encryption, as of a segment
CASES = ("sealed", "parquet", "faiss-flat", "duckdb", "ducklake", "sqlite-vec", "lancedb", "chroma", "qdrant")


def sentences(data: Path, folder: Path, rows: int) -> np.ndarray:
    """Return the vectors of so many sentences, float16, from a file in ``folder`` if they were encoded before."""
    path = folder / "sentences.npy"
    if not path.exists():
        texts = pq.read_table(data / "lm" / "sentences.parquet")["text"][: rows + QUERIES].to_pylist()
        np.save(path, vecveil.load_encoder("minilm").encode(texts, show_progress=True).astype(np.float16))
    return np.load(path, mmap_mode="r")


def batches(real: np.ndarray, rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of the first row, and unit vectors."""
    draw = np.random.default_rng(0)
    for start in range(0, rows, BATCH):
        X = np.asarray(real[start : min(start + BATCH, rows)], np.float32)
        if missing := min(BATCH, rows - start) - len(X):
            pairs = [real[np.sort(draw.integers(0, len(real), missing))].astype(np.float32) for _ in range(2)]
            X = np.concatenate([X, pairs[0] + draw.uniform(0.3, 0.7, (missing, 1)) * pairs[1][::-1]])
        yield start, np.ascontiguousarray(X / np.linalg.norm(X, axis=1, keepdims=True), np.float32)


def row_texts(start: int, count: int) -> list[str]:
    return [f"note {i}: the patient came back on Tuesday and was seen again" for i in range(start, start + count)]


def peak() -> float:
    """Return the largest memory of this process in GB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e6


Opened = tuple[Callable[[int, np.ndarray], None], Callable[[], Callable[[np.ndarray], list[str]]]]


def case_of(name: str, folder: Path, rows: int) -> Opened:
    """Return how a case writes a batch, and how it opens for searching."""
    place = folder / name
    if name == "sealed":
        key = folder / "search.keys"
        if not key.exists():
            KeyFile.create(key, "benchmark")
        writer: Any = vecveil.SealedIndex(place, key)

        def add(start: int, X: np.ndarray) -> None:
            ids = [str(i) for i in range(start, start + len(X))]
            metadata = [{"year": 2000 + i % 30} for i in range(start, start + len(X))]
            writer.add(row_texts(start, len(X)), ids=ids, vectors=X, metadata=metadata)

        def reader() -> Callable[[np.ndarray], list[str]]:
            index = vecveil.SealedIndex(place, key)
            index.count()
            return lambda q: list(index.search(q, top=TOP).ids)

        return add, reader
    if name == "parquet":  # the same rows without encryption, the same scan
        pending: list[pa.Table] = []

        def write(start: int, X: np.ndarray) -> None:
            place.mkdir(exist_ok=True)
            body = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(2 * X.shape[1]), len(X), [None, pa.py_buffer(X.astype(np.float16))]
            )
            ids = [str(i) for i in range(start, start + len(X))]
            metadata = [json.dumps({"year": 2000 + i % 30}) for i in range(start, start + len(X))]
            columns = {"id": ids, "vector": body, "text": row_texts(start, len(X)), "metadata": metadata}
            pending.append(pa.table(columns))
            if sum(map(len, pending)) >= 2**18 or start + len(X) == rows:
                with open(place / f"{start}.parquet", "wb") as file:
                    table = pa.concat_tables(pending)
                    pq.write_table(table, file, GROUP_ROWS, compression="none", use_dictionary=False)
                    file.flush()
                    os.fsync(file.fileno())
                pending.clear()

        def opened() -> Callable[[np.ndarray], list[str]]:
            from vecveil.index.scan import VectorScan, nearest

            parts = []
            for file in sorted(place.glob("*.parquet"), key=lambda path: int(path.stem)):
                table = pq.read_table(file, columns=["id", "vector"])
                raw = np.frombuffer(table["vector"].combine_chunks().buffers()[1], np.float16)
                texts = pq.ParquetFile(file, memory_map=True)
                parts.append((VectorScan(raw.reshape(len(table), -1), None), table["id"], texts))

            def search(q: np.ndarray) -> list[str]:
                scans = [(scan, np.ones(len(scan), bool)) for scan, _, _ in parts]
                places, rows, _ = nearest(q, scans, TOP, 200)
                best = list(zip(places.tolist(), rows.tolist(), strict=True))
                for place, row in best:  # as a sealed index does, which decrypts the group of rows besides
                    group = parts[place][2].read_row_group(row // GROUP_ROWS, columns=["text", "metadata"])
                    group.slice(row % GROUP_ROWS, 1).to_pylist()
                return [parts[place][1][row].as_py() for place, row in best]

            return search

        return write, opened
    if name == "faiss-flat":
        import faiss

        flat = faiss.IndexFlatIP(384)

        def keep(start: int, X: np.ndarray) -> None:
            flat.add(X)
            if start + len(X) == rows:
                faiss.write_index(flat, str(place))

        def loaded() -> Callable[[np.ndarray], list[str]]:
            index = faiss.read_index(str(place))
            return lambda q: [str(i) for i in index.search(q[None], TOP)[1][0]]

        return keep, loaded
    if name.startswith("duck"):
        return duckdb_case(place, lake=name == "ducklake")
    from vecveil.stores import Batch, open_store

    location = f"{name}:{place}#notes"

    def store(start: int, X: np.ndarray) -> None:
        with open_store(location) as database:
            if not start:
                database.create(X.shape[1], metric="cosine")
            ids = tuple(str(i) for i in range(start, start + len(X)))
            database.write(Batch(ids, X, tuple({"text": text} for text in row_texts(start, len(X)))))

    def connected() -> Callable[[np.ndarray], list[str]]:
        database = open_store(location)
        return lambda q: [str(match.id) for match in database.search(q, TOP)]

    return store, connected


def duckdb_case(place: Path, *, lake: bool) -> Opened:
    """Return how DuckDB writes and opens an encrypted file, or DuckLake encrypted Parquet files beside its catalog."""
    import duckdb
    import duckdb_extension_ducklake
    import duckdb_extension_httpfs

    place.mkdir(exist_ok=True)

    def connect() -> Any:
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
        for package in (duckdb_extension_httpfs, duckdb_extension_ducklake):  # the first encrypts what is written
            (file,) = Path(package.__file__).parent.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        if lake:
            connection.execute(f"ATTACH 'ducklake:{place}/catalog' AS db (DATA_PATH '{place}/data/', ENCRYPTED)")
        else:
            connection.execute(f"ATTACH '{place}/file' AS db (ENCRYPTION_KEY 'benchmark')")
        return connection

    def write(start: int, X: np.ndarray) -> None:
        with connect() as connection:
            columns = "id VARCHAR, vector FLOAT[], text VARCHAR, year INTEGER"
            connection.execute(f"CREATE TABLE IF NOT EXISTS db.notes ({columns})")
            numbers = range(start, start + len(X))
            vectors = pa.ListArray.from_arrays(np.arange(0, X.size + 1, X.shape[1], np.int32), X.ravel())
            values = [[str(i) for i in numbers], vectors, row_texts(start, len(X)), [2000 + i % 30 for i in numbers]]
            connection.register("rows", pa.table(dict(zip(("id", "vector", "text", "year"), values, strict=True))))
            connection.execute("INSERT INTO db.notes SELECT * FROM rows")

    def opened() -> Callable[[np.ndarray], list[str]]:
        connection = connect()
        cosine = "array_cosine_similarity(vector::FLOAT[384], ?::FLOAT[384])"
        select = f"SELECT id, text, year FROM db.notes ORDER BY {cosine} DESC LIMIT {TOP}"
        return lambda q: [row[0] for row in connection.execute(select, [q.tolist()]).fetchall()]

    return write, opened


def measured(name: str, rows: int, folder: Path, real: np.ndarray, phase: str) -> dict[str, float]:
    """Write or search one case, in this process."""
    write, open_reader = case_of(name, folder, rows)
    if phase == "write":
        seconds = 0.0
        for start, X in batches(real[QUERIES:], rows):
            began = time.perf_counter()
            write(start, X)
            seconds += time.perf_counter() - began
        figures = {"rows_per_second": rows / seconds}
        if name == "sealed":
            began = time.perf_counter()
            vecveil.SealedIndex(folder / name, folder / "search.keys").compact()
            figures["compact_s"] = time.perf_counter() - began
        return figures
    truth = np.load(folder / "truth.npy")
    queries = np.asarray(real[:QUERIES], np.float32)
    began = time.perf_counter()
    search = open_reader()
    search(queries[0])
    opening = time.perf_counter() - began
    times, hits = [], 0
    for q, expected in zip(queries, truth, strict=True):
        began = time.perf_counter()
        found = search(q)
        times.append(time.perf_counter() - began)
        hits += len(set(found) & {str(i) for i in expected})
    p50, p99 = (float(np.percentile(times, share)) * 1e3 for share in (50, 99))
    figures = {"open_s": opening, "p50_ms": p50, "p99_ms": p99, "recall": hits / truth.size}
    return figures if name == "chroma" else {**figures, "peak_gb": peak()}  # a folder of Chroma has its own process


def exact(real: np.ndarray, rows: int) -> np.ndarray:
    """Return the numbers of the ten nearest rows of each query, by a scan of float32 values."""
    queries = np.asarray(real[:QUERIES], np.float32)
    best, numbers = np.full((QUERIES, TOP), -2.0, np.float32), np.zeros((QUERIES, TOP), np.int64)
    for start, X in batches(real[QUERIES:], rows):
        scores = np.concatenate([best, queries @ X.T], axis=1)
        names = np.concatenate([numbers, np.tile(np.arange(start, start + len(X)), (QUERIES, 1))], axis=1)
        order = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        best, numbers = np.take_along_axis(scores, order, 1), np.take_along_axis(names, order, 1)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the encoded sentences and the stores")
    parser.add_argument("--others", action="store_true", help="measure the databases too")
    parser.add_argument("--limit", type=float, default=900, help="seconds for writing a case, and for searching it")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sealed-index-"))
    folder.mkdir(parents=True, exist_ok=True)
    real = sentences(options.data, folder, options.rows)
    if options.case:
        stores = folder / str(options.rows)
        print(json.dumps(measured(options.case[0], options.rows, stores, real, options.case[1])))
        return
    results: dict[str, Any] = {}
    for name in CASES if options.others else CASES[:2]:
        results[name] = run_case(name, options.rows, folder, real, options)
        figures = results[name]
        for rows in FEWER:
            if "unfinished_s" in figures and rows < options.rows:
                figures["fewer"] = {"rows": rows, **run_case(name, rows, folder, real, options)}
                figures = figures["fewer"]
        print(name, json.dumps(results[name]), flush=True)
    record = {
        "rows": options.rows,
        "real": min(len(real) - QUERIES, options.rows),
        "threads": options.threads,
        "machine": platform.machine(),
        "cases": results,
    }
    existing = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.others:
        write_text(RESULTS.with_name("sealed_beside.json"), json.dumps(record, indent=1) + "\n")
    else:
        write_text(RESULTS, json.dumps({**existing, str(options.rows): record}, indent=1) + "\n")


def run_case(name: str, rows: int, folder: Path, real: np.ndarray, options: argparse.Namespace) -> dict[str, Any]:
    """Write and search one case, each in a process of its own; an error or the limit ends it."""
    stores = folder / str(rows)
    stores.mkdir(exist_ok=True)
    if not (stores / "truth.npy").exists():
        np.save(stores / "truth.npy", exact(real, rows))
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[: options.threads])
    figures: dict[str, Any] = {}
    for phase in ("write", "search"):
        command = ["taskset", "-c", cores, sys.executable, __file__, "--data", str(options.data)]
        run = subprocess.Popen(
            [*command, "--folder", str(folder), "--rows", str(rows), "--case", name, phase],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
        )
        try:
            out, errors = run.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # with the processes that a database started
            run.communicate()
            return {**figures, "unfinished_s": options.limit, "unfinished": phase}
        if run.returncode:
            return {**figures, "failed": errors.strip().splitlines()[-1][:200]}
        figures |= json.loads(out.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
