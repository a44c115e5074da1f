"""Time and size of sealed search, beside the cipher alone and the ranking alone, in one run.

    python benchmarks/sealing.py [--dimension 384] [--repeats 30]

Everything runs on one thread. "cipher alone" is AES-256-GCM of `cryptography` over the same bytes; "ranking alone" is
NumPy's cosines of vectors that are not sealed. The fastest call of each counts. Writes benchmarks/results/sealing.json.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import secrets
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vecveil.index import Sealer
from vecveil.index.blob import PRECISIONS
from vecveil.io import write_text
from vecveil.keys import KeyFile

RESULTS = Path(__file__).parent / "results" / "sealing.json"
ROWS = 2000


def fastest(call: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the fastest of ``repeats`` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def ranked(query: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the rows of ``X`` in the order of their cosines."""
    return np.argsort(-(X @ query) / np.linalg.norm(X, axis=1), kind="stable")


def measured(sealer: Sealer, precision: str, X: np.ndarray, repeats: int) -> dict[str, float | str]:
    """Return the figures of one precision."""
    ids, query = [f"row-{i}" for i in range(ROWS)], X[0]

    def seal() -> list[bytes]:
        return sealer.seal(X, ids=ids, collection=precision)

    blobs = seal()
    vectors = sealer.unseal(blobs, ids=ids, collection=precision).vectors
    error = np.abs(vectors @ query / np.linalg.norm(vectors, axis=1) - X @ query).max()
    cipher, nonce = AESGCM(secrets.token_bytes(32)), secrets.token_bytes(12)
    bodies = [cipher.encrypt(nonce, blob[37:], None) for blob in blobs]
    figures: dict[str, float | str] = {
        "precision": precision,
        "bytes": len(blobs[0]),
        "bytes_of_float32": 4 * X.shape[1],
        "largest_error_of_a_cosine": float(error),
        "sealed_vectors_per_second": ROWS / fastest(seal, repeats),
    }
    for count in (200, 500):
        rank = partial(sealer.rank, query, blobs[:count], ids=ids[:count], collection=precision)
        alone = fastest(partial(opened, cipher, nonce, bodies[:count]), repeats)
        seconds = fastest(rank, repeats)
        figures |= {
            f"milliseconds_{count}": seconds * 1e3,
            f"times_cipher_{count}": seconds / alone,
            f"times_ranking_{count}": seconds / fastest(partial(ranked, query, X[:count]), repeats),
        }
    return figures


def opened(cipher: AESGCM, nonce: bytes, bodies: list[bytes]) -> list[bytes]:
    return [cipher.decrypt(nonce, body, None) for body in bodies]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    X = np.random.default_rng(0).standard_normal((ROWS, given.dimension)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        KeyFile.create(f"{folder}/search.keys", "bench")
        for precision in PRECISIONS:
            sealer = Sealer(f"{folder}/search.keys", precision=precision)
            rows.append(measured(sealer, precision, X, given.repeats))
            print(json.dumps(rows[-1], indent=1))
    write_text(RESULTS, json.dumps({"schema": "vecveil.bench.sealing/1", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
