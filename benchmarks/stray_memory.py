"""What of a clean store gets into the files of its copy by way of memory that a database never set.

    python benchmarks/stray_memory.py [--copies 20] [--rows 120] [--kinds chroma sqlite-vec lancedb qdrant milvus]

A store with texts is copied again and again without its texts and with other vectors, in one process, and for Chroma
also with the copy in a process of its own, as `vecveil migrate` does it (``apart``). Counted are the copies whose files
hold the text, and those that hold a clean vector. Writes ``benchmarks/results/stray-memory.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

from vecveil.io import write_text
from vecveil.stores import Batch, VectorStore, open_store
from vecveil.stores.locations import in_this_process

RESULTS = Path(__file__).parent / "results" / "stray-memory.json"
PLANTED = "zyxcanaryl"
WHERE = {
    "chroma": "chroma:{}#notes",
    "sqlite-vec": "sqlite-vec:{}/x.db#notes",
    "lancedb": "lancedb:{}#notes",
    "qdrant": "qdrant:{}#notes",
    "milvus": "milvus:{}/x.db#notes",
}
PACKAGES = {"chroma": "chromadb", "qdrant": "qdrant-client", "milvus": "milvus-lite"}


def copied(source: VectorStore, dest: VectorStore) -> None:
    """Copy all rows with other vectors and without texts."""
    dest.create(32, metric="cosine")
    for batch in source.batches(50):
        kept = tuple({"page": row["page"]} for row in batch.fields)
        dest.write(Batch(batch.ids, batch.vectors + 1, kept))


def measure(kind: str, copies: int, rows: int, *, apart: bool) -> dict[str, object]:
    """Return in how many copies something clean was found."""
    X = np.random.default_rng(1).standard_normal((rows, 32)).astype(np.float32)
    fields = tuple({"text": f"{PLANTED} number {i} is what they were given", "page": i} for i in range(rows))
    texts = vectors = 0
    with tempfile.TemporaryDirectory() as name:
        clean = Path(name) / "clean"
        clean.mkdir()
        with in_this_process(WHERE[kind].format(clean)) as source:
            source.create(32, metric="cosine")
            source.write(Batch(tuple(f"n{i}" for i in range(rows)), X, fields))
        for i in range(copies):
            folder = Path(name) / f"copy{i}"
            folder.mkdir()
            where = WHERE[kind].format(folder)
            opened = open_store(where) if apart else in_this_process(where)
            with in_this_process(WHERE[kind].format(clean)) as source, opened as dest:
                copied(source, dest)
            content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
            texts += PLANTED.encode() in content
            vectors += any(x.tobytes()[:16] in content for x in X)
    package = PACKAGES.get(kind, kind)
    return {
        "kind": kind,
        "version": version(package),
        "apart": apart,
        "copies": copies,
        "rows": rows,
        "with_text": texts,
        "with_clean_vector": vectors,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--kinds", nargs="+", choices=list(WHERE), default=list(WHERE))
    given = parser.parse_args()
    found = []
    for kind in given.kinds:
        for apart in (False, True) if kind == "chroma" else (False,):
            found.append(measure(kind, given.copies, given.rows, apart=apart))
            print(json.dumps(found[-1]), flush=True)
    write_text(RESULTS, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
