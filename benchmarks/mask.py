"""Seconds to train SPARSE's mask on 10,000 synthetic pairs of 384 dimensions, published settings.

    python benchmarks/mask.py [--pairs 10000] [--dimension 384] [--out benchmarks/results/mask.json]

Wall-clock and processor seconds are both printed: on a shared machine they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

from vecveil.privacy.sensitivity.hard_concrete import MaskOptions, fit_hard_concrete_mask


def synthetic_pairs(count: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors shifted along a few concept directions, and without the shift."""
    rng = np.random.default_rng(0)
    scale = np.arange(1, dimension + 1) ** -0.25
    negative = rng.normal(size=(count, dimension)) * scale
    directions = rng.normal(size=(40, dimension)) * scale
    positive = negative + 0.5 * directions[rng.integers(0, 40, count)]
    for rows in (negative, positive):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return positive.astype(np.float32), negative.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384)
    default = Path(__file__).parent / "results" / "mask.json"
    parser.add_argument("--out", type=Path, default=default)
    args = parser.parse_args()

    positive, negative = synthetic_pairs(args.pairs, args.dimension)
    fit_hard_concrete_mask(positive[:256], negative[:256], MaskOptions(epochs=1))  # loads torch
    before = time.process_time()
    fitted = fit_hard_concrete_mask(positive, negative, MaskOptions())
    record = {
        "benchmark": "mask",
        "what": "hard-concrete mask, published settings (100 epochs, 64 pairs a step)",
        "target_seconds": 30.0,
        "processor_seconds": time.process_time() - before,
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "threads": 1,
        "torch": torch.__version__,
        "machine": platform.machine(),
        **fitted.to_record(),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(
        f"{args.pairs:,} pairs x {args.dimension}: {fitted.seconds:.1f} s wall, "
        f"{record['processor_seconds']:.1f} s processor, one thread; mask mean "
        f"{record['mean']:.3f}, sd {record['sd']:.3f}, effective dimensions "
        f"{record['effective_dimensions']:.0f} of {args.dimension}"
    )


if __name__ == "__main__":
    main()
