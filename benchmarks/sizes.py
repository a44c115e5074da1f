"""How many texts a fit needs: what is left to read after fits on more and more bundled notes.

    python benchmarks/sizes.py [--target 0.8] [--sizes 250 500 1000 2000]

Every fit is audited by the quick tier on the same 1,000 other notes. The notes are synthetic and
more regular than real ones. Writes ``benchmarks/results/sizes.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.atomic import write_text
from vecveil.demo.corpus import CONCEPT_FILE, load_notes

RESULTS = Path(__file__).parent / "results" / "sizes.json"
AUDITED = 1000


def main() -> None:
    """Fit, audit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[250, 500, 1000, 2000])
    options = parser.parse_args()
    notes = [note.text for note in load_notes()]
    texts = [notes[i] for i in np.random.default_rng(0).permutation(len(notes))]
    audited, rest = texts[:AUDITED], texts[AUDITED:]
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    encoder = vecveil.load_encoder("minilm")
    embeddings = encoder.encode(audited)
    rows: list[dict[str, Any]] = []
    for size in options.sizes:
        protector = vecveil.fit(rest[:size], concept, encoder, target_utility=options.target)
        result = vecveil.audit(protector, audited, concept, embeddings=embeddings)
        worst = result.worst
        rows.append(
            {
                "texts": size,
                "labels": protector.report["labels"],
                "parameters": protector.report["parameters"],
                "noise_to_signal": protector.report["noise_to_signal"],
                "similarity": result.record["utility"]["similarity"]["relative"],
                "worst": worst["name"],
                **{key: worst[key] for key in ("value", "low", "high", "clean", "chance")},
            }
        )
        print(size, rows[-1], flush=True)
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
