"""What noise costs: every mechanism beside the bare cost of normal variates, in one run.

    python benchmarks/mechanisms.py [--rows 10000] [--dimension 768] [--repeats 5] [--no-external]

The yardstick is ``X + Generator(AESCounter).standard_normal(X.shape)`` in float64 (`randomgen`): the least that
secure noise costs with the usual libraries. Ours include the cryptographic generator, the radius, the
rounding to the grid and the checks. All are called in turn, the fastest call of each counts, and ratios are
what to compare: the machine's speed cancels out. Other packages run in an environment of their own under
``build/``, and are left out where they do not install. Writes ``benchmarks/results/mechanisms.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from randomgen import AESCounter

import vecveil
from vecveil.io import write_text
from vecveil.keys import NoiseKey
from vecveil.privacy.mechanisms import (
    Before,
    Gaussian,
    Laplace,
    Mahalanobis,
    Mechanism,
    ProjectedLaplace,
    Purkayastha,
    Step,
)
from vecveil.privacy.protector import Protector
from vecveil.privacy.randomness import kernel
from vecveil.privacy.sensitivity import NoiseShape
from vecveil.privacy.sensitivity.shapes import LinearMap
from vecveil.runtime import thread_count

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "mechanisms.json"
ENVIRONMENT = HERE.parent / "build" / "external"
TARGETS = {
    "laplace float64": 1.0,
    "laplace float32": 2.0,
    "diagonal float64": 1.0,
    "diagonal float32": 2.0,
    "full float64": 0.3,
    "full float32": 0.3,
    "purkayastha float64": 0.7,
    "purkayastha float32": 0.7,
    "keyed float64": 0.4,
    "keyed float32": 0.4,
}
PUBLISHED = {"SPARSE (Mahalanobis, paper, T11)": 48.4, "Purkayastha (paper, T11)": 33_200.0}
"""Microseconds per vector, as the paper prints them; another machine."""
EXTERNAL_TARGETS = {"ironcore-alloy": 100.0, "opendp": 300.0}


def unit_rows(rows: int, n: int) -> np.ndarray:
    """Return random rows of unit norm, (rows, n) float64."""
    X = np.random.default_rng(0).standard_normal((rows, n))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def cases(X: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    n = X.shape[1]
    epsilon = 4.0 * n  # noise of a quarter of the vectors' norm
    A = np.random.default_rng(1).standard_normal((n, n)) * np.geomspace(1, 4, n)
    mechanisms: dict[str, Mechanism] = {
        "laplace": Laplace(n, epsilon),
        "diagonal": Mahalanobis(NoiseShape.from_diagonal(np.geomspace(1, 9, n), floor=0.1), epsilon),
        "full": Mahalanobis(NoiseShape.from_matrix(A.T @ A / n, floor=0.05), epsilon),
        "low rank 64": Mahalanobis(
            NoiseShape.from_low_rank(np.linalg.qr(A)[0][:, :64], np.ones(64), floor=0.1), epsilon
        ),
        "gaussian": Gaussian(NoiseShape.isotropic(n), 0.25 / n**0.5),
        "purkayastha": Purkayastha(n, epsilon),
        "laplace, 2 splits": Laplace(n, epsilon, splits=2),
    }
    found: dict[str, Callable[[], object]] = {}
    narrow = X.astype(np.float32)
    for name, one in mechanisms.items():
        found[f"{name} float64"] = lambda one=one: one.protect(X)
        found[f"{name} float32"] = lambda one=one: one.protect(narrow)
    protector = Protector("laplace", mechanisms["laplace"])
    key, ids = NoiseKey("benchmark", bytes(range(32))), list(range(len(X)))
    found["keyed float64"] = lambda: protector.protect(X, ids=ids, key=key)
    found["keyed float32"] = lambda: protector.protect(narrow, ids=ids, key=key)
    return found


def timed(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the fastest call of each in seconds; they take turns, so that a slow spell hits all."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(repeats):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def single_vector_microseconds(n: int) -> dict[str, float]:
    """Return what protecting one vector takes, as a query does."""
    x = unit_rows(1, n).astype(np.float32)
    one = {
        "laplace": Protector("laplace", Laplace(n, 4.0 * n)),
        "purkayastha": Protector("purkayastha", Purkayastha(n, 4.0 * n)),
    }
    actions = {name: lambda p=protector: [p.protect(x) for _ in range(200)] for name, protector in one.items()}
    return {name: seconds / 200 * 1e6 for name, seconds in timed(actions, 7).items()}


def memory_over_batch(n: int, batch: int) -> dict[str, float]:
    """Return the peak memory beside input and output for four batches, over that of one batch."""
    X = np.full((4 * batch, n), n**-0.5, dtype=np.float32)
    laplace = Laplace(n, 4.0 * n)
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((n, n // 3)))[0]
    A = np.random.default_rng(1).standard_normal((n, n))
    full = Mahalanobis(NoiseShape.from_matrix(A.T @ A / n, floor=0.05), 4.0 * n)
    linear = LinearMap.quantised(basis.T, basis, norm=1.0)
    made = {
        "laplace": Protector("laplace", laplace),
        "full": Protector("covariance", full),
        "purkayastha": Protector("purkayastha", Purkayastha(n, 4.0 * n)),
        "subspace": Protector("subspace", ProjectedLaplace(linear.row_space, 4.0 * n), map=linear),
        "laplace, normalise, float16": Protector(
            "laplace", laplace, before=Before("normalise"), after=(Step("float16"),)
        ),
    }
    found = {}
    for name, one in made.items():
        one.protect(X[:10])
        tracemalloc.start()
        try:
            released = one.protect(X)
            extra = tracemalloc.get_traced_memory()[1] - released.nbytes
        finally:
            tracemalloc.stop()
        found[name] = extra / (X.nbytes / 4)
    return found


def exponent_in_rows(n: int) -> dict[str, object]:
    """Return the slope of log seconds over log rows: 1 is linear."""
    one, rows = Laplace(n, 4.0 * n), [5_000, 20_000, 80_000]
    X = np.zeros((max(rows), n), dtype=np.float32)
    seconds = timed({str(r): lambda r=r: one.protect(X[:r]) for r in rows}, 5)
    slope = np.polyfit(np.log(rows), np.log(list(seconds.values())), 1)[0]
    return {"rows": rows, "seconds": list(seconds.values()), "exponent": float(slope)}


def external(names: tuple[str, ...], n: int) -> list[dict[str, object]]:
    """Return what each package measured in its own environment, or why it did not."""
    python = ENVIRONMENT / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    found = []
    for name in names:
        install = [str(python), "-m", "pip", "install", "--quiet", "numpy", name]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            found.append({"name": name, "skipped": "it does not install here"})
            continue
        run = [str(python), str(HERE / "external.py"), name, "--dimension", str(n)]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        if done.returncode:
            found.append({"name": name, "skipped": "it does not run here"})
            continue
        found.append(json.loads(done.stdout))
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-external", action="store_true")
    given = parser.parse_args()
    X = unit_rows(given.rows, given.dimension)
    yardstick = "yardstick float64"
    actions: dict[str, Callable[[], object]] = {
        yardstick: lambda: X + np.random.Generator(AESCounter()).standard_normal(X.shape),
        **cases(X),
    }
    seconds = timed(actions, given.repeats)
    speeds = {name: given.rows / s for name, s in seconds.items()}
    others = () if given.no_external else tuple(EXTERNAL_TARGETS)
    record = {
        "schema": "vecveil.bench.mechanisms/1",
        "vecveil": vecveil.__version__,
        "rows": given.rows,
        "dimension": given.dimension,
        "threads": thread_count(),
        "kernel": "compiled" if kernel.compiled() else "NumPy",
        "yardstick": yardstick,
        "cases": [
            {
                "name": name,
                "vectors_per_second": speed,
                "microseconds_per_vector": 1e6 / speed,
                "ratio": speed / speeds[yardstick],
                "target": TARGETS.get(name),
            }
            for name, speed in speeds.items()
        ],
        "external": [
            {
                **one,
                "target": EXTERNAL_TARGETS[str(one["name"])],
                "laplace_float32_over_it": (
                    speeds["laplace float32"] / float(str(one["vectors_per_second"]))
                    if "vectors_per_second" in one
                    else None
                ),
            }
            for one in external(others, given.dimension)
        ],
        "published_microseconds": PUBLISHED,
        "single_vector_microseconds": single_vector_microseconds(given.dimension),
        "single_vector_target": 100.0,
        "memory_over_batch": memory_over_batch(given.dimension, given.rows),
        "memory_target": 2.0,
        "linearity": exponent_in_rows(given.dimension),
    }
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
