"""What protecting costs beside encoding, and how long a fit takes from embeddings.

    python benchmarks/protect.py [--count 2000] [--repeats 5]

Encodes synthetic sentences with MiniLM (no cache) and protects the vectors, in one run; the overhead is
a ratio. Fits on 10,000 synthetic pairs of 384 dimensions: the closed form alone (parameters given), and
with the search for parameters. Writes ``benchmarks/results/protect.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from encode import synthetic_texts

import vecveil
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "protect.json"
GIVEN = {"rank": 80, "kept": 128, "flattening": 0.6, "pairs": True}


def best(action: Callable[[], object], repeats: int) -> float:
    """Return the best wall-clock seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def synthetic_pairs(rows: int, n: int = 384, tokens: int = 100) -> tuple[np.ndarray, ...]:
    """Return unit-norm pairs with token directions on a decaying spectrum, labels and background."""
    rng = np.random.default_rng(0)
    spectrum = np.arange(1, n + 1) ** -0.4
    topics = rng.standard_normal((2 * rows, n)) * spectrum
    directions = rng.standard_normal((tokens, n)) * spectrum * 0.7
    labels = (rng.random((rows, tokens)) < 1.5 / tokens).astype(np.uint8)
    labels[np.arange(rows), rng.integers(0, tokens, rows)] = 1

    def unit(X: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))

    return (unit(topics[:rows] + labels @ directions), unit(topics[:rows]), labels, unit(topics[rows:]))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    positive, negative, labels, background = synthetic_pairs(10_000)

    def fit(**options: object) -> vecveil.Protector:
        return vecveil.fit_pairs(positive, negative, labels, background, show_progress=False, **options)

    given = best(lambda: fit(noise_to_signal=0.25, **GIVEN), 3)
    search = best(lambda: fit(target_utility=0.9), 2)
    protector = fit(noise_to_signal=0.25, **GIVEN)
    laplace = fit(method="laplace", noise_to_signal=0.25)

    texts = synthetic_texts(arguments.count)
    encoder = vecveil.load_encoder("minilm", cache=None)
    vectors = encoder.encode(texts)
    encode = best(lambda: encoder.encode(texts), 2)
    protect = best(lambda: protector.protect(vectors), arguments.repeats)
    plain = best(lambda: laplace.protect(vectors), arguments.repeats)
    single = best(lambda: [protector.protect(vectors[:1]) for _ in range(200)], 3) / 200
    record = {
        "schema": "vecveil.bench.protect/1",
        "vecveil": vecveil.__version__,
        "texts": arguments.count,
        "threads": torch.get_num_threads(),
        "encode_seconds": encode,
        "protect_seconds": protect,
        "overhead": protect / encode,
        "laplace_overhead": plain / encode,
        "single_vector_microseconds": single * 1e6,
        "pairs": len(positive),
        "subspace_fit_seconds": given,
        "subspace_search_seconds": search,
        "target_overhead": 0.01,
        "target_fit_seconds": 3.0,
    }
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
