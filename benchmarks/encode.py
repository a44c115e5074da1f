"""Encoding with vecveil, in NumPy and in torch, beside plain fp32 ``SentenceTransformer.encode``, in one run.

    python benchmarks/encode.py [--texts FILE] [--count 1000] [--repeats 3] [--model minilm]

FILE has one text a line; without it, synthetic sentences of mixed length are used. The contestants
take turns, the best of all turns counts, nothing is cached. Ratios matter, not seconds: they are
given by the clock and by processor time, which other work on the machine disturbs less. Cold starts are
measured in processes of their own, in processor seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vecveil.cli.doctor import cpu_has_bf16
from vecveil.texts.encoders import load_encoder

COLD = """
import sys, time
from vecveil.texts.encoders import load_encoder
encoder = load_encoder(sys.argv[1], cache=None, device=sys.argv[2])
times = [time.process_time()]
encoder.model_fingerprint
for _ in range(3):
    times.append(time.process_time())
    encoder.encode(["nausea after a meal"])
times.append(time.process_time())
print(*times)
"""
WORDS = """
the a of to and in is was for on with patient order report bank doctor invoice printer meeting
guitar street river quarter interest treatment dose headache delivery account password price market
council weather train Monday seven 2019 Lisbon quickly never unusually small green
"""


def synthetic_texts(count: int) -> list[str]:
    """Return distinct sentences with the lengths of everyday ones: 4 to 60 words, median 12."""
    rng = np.random.default_rng(0)
    words = WORDS.split()
    lengths = np.clip(rng.lognormal(np.log(12), 0.55, count), 4, 60).astype(int)
    return [" ".join(rng.choice(words, length)) + f" {i}." for i, length in enumerate(lengths)]


def lowest_cosine(first: np.ndarray, second: np.ndarray) -> float:
    """Return the smallest cosine between corresponding rows of two arrays."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    return float(((a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))).min())


def take_turns(
    contestants: dict[str, Callable[[], np.ndarray]], repeats: int
) -> tuple[dict[str, dict[str, float]], dict[str, np.ndarray]]:
    """Return the best wall-clock and processor seconds of each contestant, and its vectors."""
    best = {name: {"seconds": np.inf, "processor_seconds": np.inf} for name in contestants}
    vectors = {}
    for turn in range(repeats):
        # The order changes, so that nobody always follows the same neighbour.
        names = list(contestants) if turn % 2 == 0 else list(contestants)[::-1]
        for name in names:
            wall, processor = time.perf_counter(), time.process_time()
            vectors[name] = contestants[name]()
            taken = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
            best[name] = {key: min(best[name][key], taken[key]) for key in taken}
    return best, vectors


def cold_start(model: str, device: str) -> dict[str, float]:
    """Return the processor seconds of a new process until the model is loaded, and of its steps after that."""
    done = subprocess.run([sys.executable, "-c", COLD, model, device], check=True, capture_output=True, text=True)
    loaded, identified, first, second, last = map(float, done.stdout.split())
    return {
        "loaded": round(loaded, 3),
        "fingerprint": round(identified - loaded, 3),
        "first_query": round(first - identified, 4),
        "third_query": round(last - second, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="minilm")
    default = Path(__file__).parent / "results" / "encode.json"
    parser.add_argument("--out", type=Path, default=default)
    args = parser.parse_args()

    if args.texts is None:
        texts, source = synthetic_texts(args.count), "synthetic"
    else:
        lines = args.texts.read_text(encoding="utf-8").splitlines()
        texts, source = list(dict.fromkeys(filter(None, lines)))[: args.count], "given"

    numpy = load_encoder(args.model, cache=None)
    full = load_encoder(args.model, cache=None, device="cpu", precision="fp32")
    # The very model that vecveil runs, through the library's own encode with its defaults.
    library: Any = full._backend._model  # type: ignore[attr-defined]
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "sentence-transformers fp32": lambda: library.encode(texts, show_progress_bar=False),
        "vecveil fp32, NumPy": lambda: numpy.encode(texts),
        "vecveil fp32, torch": lambda: full.encode(texts),
    }
    if cpu_has_bf16():
        half = load_encoder(args.model, cache=None, device="cpu", precision="bf16")
        contestants["vecveil bf16, torch"] = lambda: half.encode(texts)
    library.encode(texts[:64], show_progress_bar=False)  # warm up
    best, vectors = take_turns(contestants, args.repeats)

    plain, reference = best["sentence-transformers fp32"], vectors["sentence-transformers fp32"]
    rows = {
        name: {
            **{key: round(value, 3) for key, value in seconds.items()},
            "texts_per_second": round(len(texts) / seconds["seconds"], 1),
            "ratio": round(plain["seconds"] / seconds["seconds"], 3),
            "processor_ratio": round(plain["processor_seconds"] / seconds["processor_seconds"], 3),
            "lowest_cosine": round(lowest_cosine(reference, vectors[name]), 7),
            "largest_difference": float(np.abs(reference - vectors[name]).max()),
        }
        for name, seconds in best.items()
    }
    cold_starts = {"NumPy": cold_start(args.model, "auto"), "torch": cold_start(args.model, "cpu")}
    for name, times in cold_starts.items():
        parts = (times[key] for key in ("loaded", "fingerprint", "first_query"))
        rows[f"vecveil fp32, {name}"]["cold_seconds"] = round(sum(parts), 3)
    capability = torch.backends.cpu.get_cpu_capability()
    record = {
        "benchmark": "encode",
        "what": "vecveil beside plain fp32 SentenceTransformer.encode, taking turns, best of all",
        "model": numpy.name,
        "texts": {
            "source": source,
            "count": len(texts),
            "mean_characters": round(float(np.mean([len(text) for text in texts])), 1),
        },
        "repeats": args.repeats,
        "rows": rows,
        "cold_start": cold_starts,
        "cpu": {
            "machine": platform.machine(),
            "capability": capability,
            "bf16_in_hardware": cpu_has_bf16(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load_average": round(os.getloadavg()[0], 2),
        },
        "torch": torch.__version__,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(
            f"{name:26s} {row['texts_per_second']:7.1f} texts/s, x {row['ratio']:.2f} by clock, "
            f"x {row['processor_ratio']:.2f} by processor time, lowest cosine "
            f"{row['lowest_cosine']:.5f}"
        )
    for name, times in cold_starts.items():
        print(f"{name}: processor seconds {times}")


if __name__ == "__main__":
    main()
