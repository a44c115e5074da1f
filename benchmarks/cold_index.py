"""What a user of a sealed index waits for after a restart: opening, first filter, first hybrid query, a query on S3.

    python benchmarks/cold_index.py [--rows 200000 1000000] [--folder DIR] [--s3]

Rows are made: unit vectors of 384 dimensions, twenty around each centre, texts of 25 words out of 30,000, three
metadata fields. They stand for real rows in time and memory; benchmarks/sealed_index.py measures recall. Each case runs
in a process of its own with one thread; seconds are of the processor. --folder keeps the indexes. --s3 copies the index
to moto's server, in which every request takes 30 ms longer, and searches it from an empty machine, in seconds of the
clock. Writes benchmarks/results/cold_index.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.index.storage import RemoteObject
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "cold_index.json"
KEY, BATCH, QUERIES, DELAY = bytes(range(32)), 50_000, 50, 0.03
Cases = dict[str, dict[str, float]]


def write(rows: int, place: str) -> Cases:
    """Make the index, and compact it."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((rows // 20, 384))
    words = ["".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), draw.integers(2, 9))) for _ in range(30_000)]
    index, adding = vecveil.SealedIndex(place, KEY, vectors="disk"), 0.0
    for start in range(0, rows, BATCH):
        numbers = range(start, min(start + BATCH, rows))
        X = centres[draw.integers(0, len(centres), len(numbers))] + 0.6 * draw.standard_normal((len(numbers), 384))
        X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
        texts = [" ".join(words[i] for i in chosen) for chosen in draw.integers(0, 30_000, (len(numbers), 25))]
        metadata = [{"year": 2000 + i % 25, "tenant": f"t{i % 100}", "number": i} for i in numbers]
        began = time.process_time()
        index.add(texts, ids=[f"document-{i:012d}" for i in numbers], vectors=X, metadata=metadata)
        adding += time.process_time() - began
    began = time.process_time()
    index.compact(retain=0)
    return {"write": {"rows_per_s": rows / adding, "compact_s": time.process_time() - began}}


def queries() -> np.ndarray:
    centres = np.random.default_rng(0).standard_normal((QUERIES, 384))  # the first that `write` draws
    return (centres + 0.6 * np.random.default_rng(1).standard_normal((QUERIES, 384))).astype(np.float32)


def search(rows: int, place: str, vectors: Any) -> Cases:
    """Open the index as after a restart, and search it."""
    import faiss  # noqa: F401  (its memory is not the index's)
    import pyarrow.dataset  # noqa: F401

    before, Q, figures = resident(), queries(), dict[str, float]()
    index = vecveil.SealedIndex(place, KEY, vectors=vectors, max_staleness=3600)
    for name, options in (
        ("first_search_s", {}),
        ("first_where_s", {"where": {"tenant": "t3", "year": {"gte": 2010}}}),
        ("first_hybrid_s", {"mode": "hybrid", "words": "patient of tuesday"}),
    ):
        began = time.process_time()
        if name == "first_search_s":
            index.count()
            figures["open_s"], began = time.process_time() - began, time.process_time()
        index.search(Q[0], **options)  # type: ignore[arg-type]
        figures[name] = time.process_time() - began
        if name == "first_search_s":
            figures["bytes_a_row"] = (resident() - before) / rows
    finding, searching = [], []
    for q in Q:
        began = time.process_time()
        hits = index.find(q)
        finding.append(time.process_time() - began)
        index.read(hits)
        searching.append(time.process_time() - began)
    figures |= {"find_ms": 1e3 * float(np.median(finding)), "search_ms": 1e3 * float(np.median(searching))}
    return {vectors: {**figures, "bytes_a_row_with_fields_and_words": (resident() - before) / rows}}


def on_s3(rows: int, place: str) -> Cases:
    """Search the index on a slow S3 from a machine that has nothing of it."""
    import s3fs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    inner = DomainDispatcherApplication(create_backend_app)

    def slow(environment: Any, respond: Any) -> Any:
        time.sleep(DELAY)
        name, span = environment["PATH_INFO"].removeprefix("/bucket/index/"), environment.get("HTTP_RANGE")
        if not name.startswith("segments/") or span is None:
            return inner(environment, respond)
        # moto reads a whole object for each part of it, which no storage does.
        first, last = map(int, span.removeprefix("bytes=").split("-"))
        with open(Path(place, name), "rb") as file:
            file.seek(first)
            part = file.read(last + 1 - first)
            size = file.seek(0, os.SEEK_END)
        whole = f"bytes {first}-{first + len(part) - 1}/{size}"
        headers = [("Content-Length", str(len(part))), ("Content-Range", whole), ("ETag", '"0"')]
        respond("206 Partial Content", headers)
        return [part]

    server = make_server("127.0.0.1", 0, slow, threaded=True)
    if (child := os.fork()) == 0:
        server.log_startup = lambda: None
        server.serve_forever()
    try:
        options = {"endpoint_url": f"http://127.0.0.1:{server.port}", "key": "a", "secret": "b"}
        files = s3fs.S3FileSystem(**options)
        files.mkdir("bucket")
        files.put(place, "bucket/index", recursive=True)
        fetched, spans = list[int](), RemoteObject.spans

        def counted(source: RemoteObject, wanted: Any) -> list[bytes]:
            fetched.extend(stop - start for start, stop in wanted)
            return spans(source, wanted)

        RemoteObject.spans = counted  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as empty:
            began = time.perf_counter()
            index = vecveil.SealedIndex(
                "s3://bucket/index", KEY, vectors="remote", storage_options=options, cache=empty
            )
            figures = {}
            for name, q in zip(("first_query_s", "second_query_s"), queries(), strict=False):
                index.search(q)
                figures[name], began = time.perf_counter() - began, time.perf_counter()
                figures[f"{name.split('_')[0]}_requests"] = len(fetched)
                figures[f"{name.split('_')[0]}_bytes"] = sum(fetched)
        figures["stored_bytes"] = files.du("bucket/index")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return {"s3": figures}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cold-index-"))
    if options.case:
        rows, place = options.rows[0], str(folder / str(options.rows[0]))
        case = {"write": write, "s3": on_s3}.get(options.case)
        print(json.dumps(case(rows, place) if case else search(rows, place, options.case)))
        return
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for rows in options.rows:
        written = (folder / str(rows)).exists()
        for case in [*([] if written else ["write"]), "memory", "disk", *(["s3"] if options.s3 else [])]:
            command = [sys.executable, __file__, "--rows", str(rows), "--folder", str(folder), "--case", case]
            run = subprocess.run(
                command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            print(rows, run.stdout.strip(), flush=True)
            record[str(rows)] = {**record.get(str(rows), {}), **json.loads(run.stdout)}
            write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
