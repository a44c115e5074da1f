"""What a reader finds of listed drugs in other texts, by the number of listed terms and of fitted texts.

    python benchmarks/list_size.py --data DIR

DIR holds ``ade/ade_corpus_v2.jsonl.gz``. The list holds the drug names that occur most often; the protector is fitted
on sentences of one part of the abstracts, as ``vecveil fit`` does. Kernel ridge regression learns on 4,000 sentences of
a second part, with fresh releases, and is judged on a third: R-precision of the listed words. Search is recall@10 among
those 4,000 sentences, in the store alone and after the exact ranking of 200 candidates. Each cell is written to
benchmarks/results/list_size.json when it is measured; a later run measures the missing ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.auditing.attacks import KernelAttack, LabelledVectors, split_groups
from vecveil.auditing.metrics import NeighbourTask, SealedSearchTask
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept, TokenVocabulary
from vecveil.texts.tables import read_texts

RESULTS = Path(__file__).parent / "results" / "list_size.json"
CELLS = (  # listed terms, fitted texts, similarity to keep
    *((1026, texts, 0.95) for texts in (3000, 1000, 9000)),
    (1026, 3000, 0.8),
    *((terms, 3000, 0.95) for terms in (100, 10)),
    *((1026, texts, 0.8) for texts in (1000, 9000)),
    *((100, texts, 0.95) for texts in (1000, 9000)),
)
ATTACK_TEXTS = 4000
CANDIDATES = 200
MIN_COUNT = 5


def measured(texts: list[str], groups: Any, terms: list[str], rows: int, target: float, encoder: Any) -> dict[str, Any]:
    """Return the figures of one cell."""
    fit_rows, attack_rows, test_rows = split_groups(groups, (0.5, 0.3, 0.2), seed=0)
    rng = np.random.default_rng(0)
    fit_rows = rng.permutation(fit_rows)[:rows]
    attack_rows = rng.permutation(attack_rows)[:ATTACK_TEXTS]
    concept = Concept.from_terms("drugs", terms)
    X = encoder.encode([texts[i] for i in attack_rows])
    tasks = NeighbourTask(X), SealedSearchTask(X, candidates=CANDIDATES, collection_size=len(X))
    started = time.perf_counter()
    protector = vecveil.fit([texts[i] for i in fit_rows], concept, encoder, target_utility=target, seed=0)
    seconds = time.perf_counter() - started

    def labels(part: Any, vocabulary: TokenVocabulary | None = None) -> tuple[Any, Any, TokenVocabulary]:
        matches = concept.find([texts[i] for i in part], show_progress=False)
        known = vocabulary or matches.token_labels(min_count=MIN_COUNT)[1]
        L, _ = matches.token_labels(known)
        held = part[np.asarray(matches.with_concept)]
        return held[L.any(axis=1)], L[L.any(axis=1)], known

    attack_rows, L_attack, vocabulary = labels(attack_rows)
    test_rows, L_test, _ = labels(test_rows, vocabulary)
    X_attack, X_test = (encoder.encode([texts[i] for i in part]) for part in (attack_rows, test_rows))

    def read(released: Any, **oracle: Any) -> Any:
        train = LabelledVectors(X_attack, L_attack, groups[attack_rows])
        test = LabelledVectors(released, L_test, groups[test_rows])
        return KernelAttack().run(train, test, rng=0, **oracle).estimates["r_precision"]

    clean = read(X_test)
    leak = read(
        protector.protect(X_test, np.random.default_rng(0)),
        release=protector.release(),
        noise_covariance=protector.released_noise_covariance(),
    )
    kept = [task.protected(protector.protect, np.random.default_rng(1)).value for task in tasks]
    return {
        "terms": len(terms),
        "texts": rows,
        "target": target,
        "words": len(vocabulary),
        "test_texts": len(test_rows),
        "leak": [round(float(v), 4) for v in (leak.value, leak.low, leak.high)],
        "clean": round(float(clean.value), 4),
        "chance": round(float(leak.chance), 4),
        "store_alone": round(float(kept[0]), 4),
        "sealed": round(float(kept[1]), 4),
        "parameters": protector.report["parameters"],
        "fit_seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure the missing cells and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    table = read_texts(arguments.data / "ade" / "ade_corpus_v2.jsonl.gz", "text", columns=["spans", "pmid"])
    groups = np.unique([str(p) for p in table.columns["pmid"]], return_inverse=True)[1]
    names = Counter(span["text"].lower() for row in table.columns["spans"] for span in row if span["label"] == "DRUG")
    listed = [name for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))]
    encoder = vecveil.load_encoder("minilm")
    cells = json.loads(arguments.out.read_text())["cells"] if arguments.out.exists() else []
    done = {(cell["terms"], cell["texts"], cell["target"]) for cell in cells}
    for terms, rows, target in CELLS:
        if (terms, rows, target) in done:
            continue
        cells.append(measured(table.texts, groups, listed[:terms], rows, target, encoder))
        record = {"schema": "vecveil.bench.list-size/1", "vecveil": vecveil.__version__, "cells": cells}
        write_text(arguments.out, json.dumps(record, indent=1) + "\n")
        print({k: v for k, v in cells[-1].items() if k != "parameters"}, flush=True)


if __name__ == "__main__":
    main()
