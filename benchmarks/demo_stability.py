"""The demo over seeds and precisions of the encoder: what it chooses, what is read, what a search keeps.

    python benchmarks/demo_stability.py [--seeds 5] [--precisions fp32 bf16]

A seed draws the halves of the texts, the search of the fit and the noise. Prints mean and ends of each figure; writes
benchmarks/results/demo_stability.json after each run.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import vecveil
from vecveil.demo.job import run_demo
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "demo_stability.json"
CHOSEN = ("rank", "kept", "flattening", "pairs", "gradients", "transplants")
FIGURES = ("worst", "recall")
BOUND = 0.04  # largest deviation from the mean


def measured(seed: int, precision: str) -> dict[str, Any]:
    """Return what one run of the demo chose, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_demo(Path(folder) / "demo", seed=seed, precision=precision)
        report = vecveil.load(Path(folder) / "demo" / "protector.vecveil").report
    worst, utility = result.audit.worst, result.audit.record["utility"]
    parameters = report["parameters"]
    return {
        "seed": seed,
        "precision": precision,
        "processor": platform.processor() or platform.machine(),
        "attack": worst["name"],
        "worst": worst["value"],
        "low": worst["low"],
        "high": worst["high"],
        "chance": worst["chance"],
        "recall": utility["neighbours"]["value"],
        "sealed": utility["sealed_search"]["value"],
        "noise_to_signal": report["noise_to_signal"],
        "seconds": round(result.seconds, 1),
        **{key: parameters.get(key) for key in CHOSEN},
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float | bool]]:
    """Return mean, ends and largest deviation of each figure."""
    found: dict[str, dict[str, float | bool]] = {}
    for name in FIGURES:
        values = [row[name] for row in rows]
        mean = sum(values) / len(values)
        off = max(abs(value - mean) for value in values)
        found[name] = {"mean": mean, "low": min(values), "high": max(values), "deviation": off, "within": off <= BOUND}
    return found


def main() -> None:
    """Run the demo and write the file after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for precision in arguments.precisions:
            rows.append(measured(seed, precision))
            record = {
                "schema": "vecveil.bench.demo-stability/1",
                "vecveil": vecveil.__version__,
                "bound": BOUND,
                "summary": summary(rows),
                "rows": rows,
            }
            write_text(arguments.out, json.dumps(record, indent=1) + "\n")
            shown = {key: rows[-1][key] for key in ("seed", "precision", "worst", "recall", "rank", "kept")}
            print(shown, flush=True)
    for name, found in summary(rows).items():
        print(
            f"{name}: {found['mean']:.3f}, {found['low']:.3f} to {found['high']:.3f}, within {BOUND}: {found['within']}"
        )


if __name__ == "__main__":
    main()
