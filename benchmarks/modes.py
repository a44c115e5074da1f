"""The three modes side by side: what an attacker with the storage recovers, and what search keeps.

    python benchmarks/modes.py --data DIR

DIR holds ``ade/ade_corpus_v2.jsonl.gz``. The concept is the list of all drug names. Protectors are fitted on 3,000
sentences; `vecveil.audit` attacks 4,000 sentences of other abstracts. "Sealed search" keeps 95 % of similarity and
ranks 200 candidates exactly; "protected vectors" keep 80 %. Search is recall@10 among those 4,000 sentences. The
sealed index holds the same sentences, and ``vecveil audit --store`` attacks its storage; speed and memory at a million
rows come from ``benchmarks/sealed_index.py``. Writes benchmarks/results/modes.json, the first table of README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from vecveil.auditing.attacks import split_groups
from vecveil.auditing.metrics import NeighbourTask, SealedSearchTask
from vecveil.io import write_text
from vecveil.privacy.concepts import Concept
from vecveil.texts.tables import read_texts

RESULTS = Path(__file__).parent / "results" / "modes.json"
FITTED, AUDITED, CANDIDATES = 3000, 4000, 200
TARGETS = {"sealed-search": 0.95, "protected-vectors": 0.8}


def figure(attacks: list[dict[str, Any]], family: str, prefix: str = "") -> dict[str, Any]:
    """Return the strongest attack of a family."""
    of = [a for a in attacks if a["family"] == family and a["name"].startswith(prefix)]
    best = max(of, key=lambda a: a["value"])
    return {key: best[key] for key in ("name", "metric", "value", "low", "high", "chance", "clean")}


def of_the_index(texts: list[str], X: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return what attackers of the storage of a sealed index find."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        vecveil.KeyFile.create(place / "search.keys", "benchmark")
        index = vecveil.SealedIndex(place / "notes", place / "search.keys", encoder="minilm")
        index.add(texts, ids=[str(i) for i in range(len(texts))], vectors=X)
        index.close()
        write_text(place / "concept.yaml", json.dumps({"name": "drugs", "terms": names}))
        command = ["audit", "--store", "sealed:notes", "--seal-key", "search.keys", "--concept", "concept.yaml"]
        subprocess.run(
            [sys.executable, "-m", "vecveil", *command, "--limit", str(len(texts)), "--json", "audit.json"],
            cwd=place,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        attacks = json.loads((place / "audit.json").read_text())["attacks"]
    return {"listed": figure(attacks, "token-inference"), "identified": figure(attacks, "candidates")}


def milliseconds_of_ranking(X: np.ndarray, repeats: int = 50) -> float:
    """Return the median time of opening and ranking the sealed candidates of one query."""
    sealer = vecveil.Sealer(os.urandom(32))
    ids = [str(i) for i in range(CANDIDATES)]
    blobs = sealer.seal(X[:CANDIDATES], ids=ids, collection="notes")
    times = []
    for query in X[-repeats:]:
        began = time.perf_counter()
        sealer.rank(query, blobs, ids=ids, collection="notes", top=10)
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1e3


def main() -> None:
    """Measure the modes and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    table = read_texts(options.data / "ade" / "ade_corpus_v2.jsonl.gz", "text", columns=["spans", "pmid"])
    spans = [span for row in table.columns["spans"] for span in row if span["label"] == "DRUG"]
    names = sorted({span["text"].lower() for span in spans})
    concept = Concept.from_terms("drugs", names)
    groups = np.unique([str(p) for p in table.columns["pmid"]], return_inverse=True)[1]
    own, others = split_groups(groups, (0.5, 0.5), seed=0)
    rng = np.random.default_rng(0)
    own, others = rng.permutation(own)[:FITTED], rng.permutation(others)[:AUDITED]
    encoder = vecveil.load_encoder("minilm")
    mine, audited = ([table.texts[i] for i in rows] for rows in (own, others))
    X = encoder.encode(audited)
    ranking = milliseconds_of_ranking(X)
    modes: dict[str, Any] = {"sealed-index": of_the_index(audited, X, names)}
    for mode, target in TARGETS.items():
        protector = vecveil.fit(mine, concept, encoder, target_utility=target, seed=0)
        result = vecveil.audit(protector, audited, concept, encoder=encoder, groups=groups[others].tolist())
        attacks = result.record["attacks"]
        task: Any = NeighbourTask(X)
        if mode == "sealed-search":
            task = SealedSearchTask(X, candidates=CANDIDATES, collection_size=len(X))
        modes[mode] = {
            "similarity": target,
            "listed": figure(attacks, "token-inference"),
            "unlisted": figure(attacks, "held-out-terms", "unlisted"),
            "identified": figure(attacks, "candidates", "decoys"),
            "recall": float(task.protected(protector.protect, np.random.default_rng(1)).value),
        }
        print(mode, json.dumps(modes[mode]), file=sys.stderr, flush=True)
    record = {
        "schema": "vecveil.bench.modes/1",
        "vecveil": vecveil.__version__,
        "texts": len(audited),
        "terms": len(names),
        "fitted": FITTED,
        "candidates": CANDIDATES,
        "ranking_ms": ranking,
        "modes": modes,
    }
    write_text(options.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
