"""A sealed index searched in two parts by two workers of Ray on this machine.

    python benchmarks/sealed_scale.py --data DIR [--rows 5000000] [--workers 2] [--folder DIR]

The rows are those of benchmarks/sealed_index.py: 354,804 sentences, and mixtures of two sentences' vectors. Recall is
measured against an exact scan. Writes benchmarks/results/sealed_scale.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sealed_index import QUERIES, TOP, batches, exact, peak, row_texts, sentences

import vecveil
from vecveil.gateway.ray import _PartOfIndex, ray
from vecveil.gateway.workers import Sealed, best_hits, index_parts
from vecveil.io import write_text
from vecveil.keys import KeyFile

RESULTS = Path(__file__).parent / "results" / "sealed_scale.json"
TOGETHER = 5  # batches a segment, which then needs no compaction


def write(place: Path, key: Path, real: np.ndarray, rows: int) -> float:
    """Write the index; return the seconds that `SealedIndex.add` took."""
    index, pending, seconds = vecveil.SealedIndex(place, key), [], 0.0
    for start, X in batches(real[QUERIES:], rows):
        pending.append((start, X))
        if len(pending) == TOGETHER or start + len(X) == rows:
            first, Y = pending[0][0], np.concatenate([X for _, X in pending])
            ids = [str(i) for i in range(first, first + len(Y))]
            metadata = [{"year": 2000 + i % 30} for i in range(len(Y))]
            pending.clear()
            began = time.perf_counter()
            index.add(row_texts(first, len(Y)), ids=ids, vectors=Y, metadata=metadata)
            seconds += time.perf_counter() - began
    index.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keeps the encoded sentences and the index")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="sealed-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    real, key, place = sentences(options.data, folder), folder / "search.keys", folder / f"index-{options.rows}"
    figures: dict[str, Any] = {"rows": options.rows, "workers": options.workers}
    if not place.exists():
        if not key.exists():
            KeyFile.create(key, "benchmark")
        figures["rows_per_second"] = options.rows / write(place, key, real, options.rows)
    truth = exact(real, options.rows)
    queries = np.asarray(real[:QUERIES], np.float32)
    ray.init(
        num_cpus=options.workers,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.CRITICAL,
    )
    began = time.perf_counter()
    parts, _ = index_parts(place, str(key), options.workers, {})
    figures["split_s"] = time.perf_counter() - began
    actors = [ray.remote(_PartOfIndex).remote(Sealed(part)) for part in parts]

    def search(numbers: list[int]) -> list[str]:
        asked = Sealed((([str(i) for i in numbers], queries[numbers]), TOP, None))
        return list(best_hits(ray.get([actor.search.remote(asked) for actor in actors]), TOP)["id"].to_pylist())

    began = time.perf_counter()
    search([0])
    figures["open_s"] = time.perf_counter() - began
    times, hits = [], 0
    for i in range(QUERIES):
        began = time.perf_counter()
        found = search([i])
        times.append(time.perf_counter() - began)
        hits += len(set(found) & {str(name) for name in truth[i]})
    figures |= {f"p{share}_ms": float(np.percentile(times, share)) * 1e3 for share in (50, 99)}
    figures["recall"] = hits / truth.size
    began = time.perf_counter()
    search(list(range(QUERIES)))
    figures["queries_per_second"] = QUERIES / (time.perf_counter() - began)
    figures["peak_gb_a_worker"] = ray.get([actor.__ray_call__.remote(lambda _: peak()) for actor in actors])
    figures["driver_peak_gb"] = peak()
    print(json.dumps(figures))
    write_text(RESULTS, json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
