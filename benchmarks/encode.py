"""Encoding with vecveil beside plain fp32 ``SentenceTransformer.encode``, in one run.

    python benchmarks/encode.py [--texts FILE] [--count 1000] [--repeats 3] [--model minilm]

FILE has one text a line; without it, synthetic sentences of mixed length are used. The contestants
take turns, the best of all turns counts, nothing is cached. Ratios matter, not seconds: they are
given by the clock and by processor time, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.sentence_transformer import cpu_has_bf16, lowest_cosine

TARGET = 2.5
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

    auto = load_encoder(args.model, cache=None, device="cpu")
    full = load_encoder(args.model, cache=None, device="cpu", precision="fp32")
    # The very model that vecveil runs, through the library's own encode with its defaults.
    library: Any = full._backend._model  # type: ignore[attr-defined]
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "sentence-transformers fp32": lambda: library.encode(texts, show_progress_bar=False),
        "vecveil fp32": lambda: full.encode(texts),
    }
    if auto.precision != "fp32":
        contestants[f"vecveil {auto.precision}"] = lambda: auto.encode(texts)
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
    capability = torch.backends.cpu.get_cpu_capability()
    record = {
        "benchmark": "encode",
        "what": "vecveil beside plain fp32 SentenceTransformer.encode, taking turns, best of all",
        "target_ratio": TARGET if auto.precision == "bf16" else None,
        "target": f"at least {TARGET} where the CPU gains from bf16",
        "model": auto.name,
        "texts": {
            "source": source,
            "count": len(texts),
            "mean_characters": round(float(np.mean([len(text) for text in texts])), 1),
        },
        "repeats": args.repeats,
        "chosen": auto.precision,
        "rows": rows,
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
    print(f"auto chose {auto.precision}")


if __name__ == "__main__":
    main()
