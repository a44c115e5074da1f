"""How many texts a fit needs: what is left to read after fits on more and more bundled notes.

    python benchmarks/sizes.py [--target 0.8] [--sizes 250 500 1000 2000] [--seeds 3]

Every fit is audited by the quick tier on 1,000 other notes. A seed draws which notes are fitted on and
which are audited; a row has the first seed's figures, and under ``seeds`` those of all. The notes are
synthetic and more regular than real ones. Writes ``benchmarks/results/sizes.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.demo.corpus import CONCEPT_FILE, load_notes
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "sizes.json"
AUDITED = 1000


def fits(seed: int, sizes: list[int], target: float, encoder: Any) -> list[dict[str, Any]]:
    """Return one row per size for one draw of the notes."""
    notes = [note.text for note in load_notes()]
    texts = [notes[i] for i in np.random.default_rng(seed).permutation(len(notes))]
    audited, rest = texts[:AUDITED], texts[AUDITED:]
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    embeddings = encoder.encode(audited)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        protector = vecveil.fit(rest[:size], concept, encoder, target_utility=target, seed=seed)
        result = vecveil.audit(protector, audited, concept, embeddings=embeddings, seed=seed)
        worst = result.worst
        utility = result.record["utility"]
        rows.append(
            {
                "texts": size,
                "labels": protector.report["labels"],
                "parameters": protector.report["parameters"],
                "noise_to_signal": protector.report["noise_to_signal"],
                "similarity": utility["similarity"]["relative"],
                "neighbours": utility["neighbours"]["relative"],
                "worst": worst["name"],
                **{key: worst[key] for key in ("value", "low", "high", "clean", "chance")},
            }
        )
        print(seed, size, rows[-1], flush=True)
    return rows


def main() -> None:
    """Fit, audit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250, 500, 1000, 2000])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    draws = [fits(seed, options.sizes, options.target, encoder) for seed in range(options.seeds)]
    rows: list[dict[str, Any]] = []
    for of_size in zip(*draws, strict=True):
        values = [row["value"] for row in of_size]
        seeds = {
            "value": values,
            "mean": float(np.mean(values)),
            "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "similarity": [row["similarity"] for row in of_size],
            "rank": [row["parameters"]["rank"] for row in of_size],
            "kept": [row["parameters"]["kept"] for row in of_size],
        }
        rows.append({**of_size[0], "seeds": seeds})
    record = {
        "schema": "vecveil.bench.sizes/1",
        "vecveil": vecveil.__version__,
        "target": options.target,
        "audited": AUDITED,
        "rows": rows,
    }
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
