"""What TextCrafter costs: training a policy, and applying it with and without torch, in one run.

    python benchmarks/textcrafter_cost.py [--rows 20000] [--dimension 384] [--repeats 5]

Run it in the root of the repository. The vectors are random ones of norm 1: the cost does not depend on what they
say. Applying is timed for the protector (NumPy, with the cryptographic noise and all checks), for Gaussian noise
beside it, and for the two networks alone in torch; the fastest of the repeats counts. Writes
``benchmarks/results/textcrafter-cost.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vecveil.io import write_text
from vecveil.privacy.mechanisms import Gaussian, TextCrafter
from vecveil.privacy.sensitivity import NoiseShape
from vecveil.privacy.textcrafter import PiiClassifier, PolicySettings, plain_centroids, train_policy
from vecveil.runtime import thread_count

RESULTS = Path(__file__).parent / "results" / "textcrafter-cost.json"
SCHEMA = "vecveil.bench.textcrafter-cost/1"


def main() -> None:
    """Train, apply, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    n, rng = options.dimension, np.random.default_rng(0)
    X = rng.standard_normal((options.rows, n)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    classifier = PiiClassifier(8 * rng.standard_normal(n) / np.sqrt(n), 0.0)
    settings = PolicySettings(radius=1.0, device="cpu")
    centroids = plain_centroids(X[:5000], clusters=settings.clusters, seed=0)
    wall, processor = time.perf_counter(), time.process_time()
    trained = train_policy(X, classifier, centroids, settings, seed=0, show_progress=False)
    training = {
        "seconds": round(time.perf_counter() - wall, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "epochs": settings.epochs,
        "draws": settings.draws,
    }
    known = np.append(classifier.weights, classifier.intercept)
    ours = TextCrafter(trained.weights, 1.0, np.eye(n) / n, known, centroids)
    noise = Gaussian(NoiseShape.isotropic(n), 1 / np.sqrt(n))
    doubles = unit(X.astype(np.float64))
    actions: dict[str, Callable[[], Any]] = {
        "textcrafter float32": lambda: ours.protect(X),
        "textcrafter float64": lambda: ours.protect(doubles),
        "gaussian float32": lambda: noise.protect(X),
        "torch, networks alone, float32": torch_forward(trained, X),
    }
    applied = {name: float("inf") for name in actions}
    for _ in range(options.repeats):  # in turn: what disturbs the machine disturbs all
        for name, act in actions.items():
            started = time.perf_counter()
            act()
            applied[name] = min(applied[name], time.perf_counter() - started)
    record = {
        "schema": SCHEMA,
        "machine": platform.machine(),
        "threads": thread_count(),
        "rows": options.rows,
        "dimension": n,
        "training": training,
        "vectors_per_second": {name: round(options.rows / s) for name, s in applied.items()},
    }
    write_text(options.results, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


def unit(X: np.ndarray) -> np.ndarray:
    """Return the rows at norm 1."""
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def torch_forward(trained: Any, X: np.ndarray) -> Callable[[], Any]:
    """Return what computes mean and direction of ``X`` in torch, as training does but without gradients."""
    import torch

    from vecveil.privacy.textcrafter.policy_gradient import ProtectPolicy

    module = ProtectPolicy(X.shape[1], trained.settings, torch.Generator()).eval()
    arrays = trained.weights.arrays
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})

    def run() -> Any:
        with torch.no_grad():
            return [module(torch.from_numpy(X[i : i + 2048])) for i in range(0, len(X), 2048)]

    return run


if __name__ == "__main__":
    main()
