"""How many known pairs undo a secret map, and what is read from the vectors afterwards, on real texts.

    python benchmarks/alignment.py --data DIR [--seed 0]

DIR is a folder with ``sts/*.parquet``, ``concepts/sts_terms.json`` and ``lm/sentences.parquet``. The store
holds the texts of a third of the STS groups; the attacker has the clean vectors of all of them as
candidates, knows 10 to 1000 pairs of other groups and learns the map back. Releases: a secret rotation,
`shuffle`, `laplace` and `subspace` at 95 % of the STS12 correlation, and ironcore-alloy where it is installed
(approximation factor 0, which is its shuffle alone, and 1). The recovered vectors then go to the linear
token-inference attack trained on clean vectors. Without pairs the store is 8,000 sentences of the language-model
corpus and the attacker has 8,000 others. Writes ``benchmarks/results/alignment.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from leakage import MIN_COUNT, TARGET, _task, sts_problem, sts_tables

import vecveil
from vecveil.auditing.attacks import (
    CandidateVectors,
    Knowledge,
    LabelledVectors,
    LinearAttack,
    PairedVectors,
    split_groups,
)
from vecveil.auditing.attacks.alignment import (
    PermutationAlignment,
    ProcrustesAlignment,
    RidgeAlignment,
    UnpairedAlignment,
)
from vecveil.auditing.metrics import Estimate
from vecveil.io import write_text
from vecveil.privacy.concepts import TokenVocabulary

RESULTS = Path(__file__).parent / "results" / "alignment.json"
ATTACKS = (PermutationAlignment(), ProcrustesAlignment(), RidgeAlignment())
SENTENCES = 8000
QUERIES = 1000
POOL = 4000

Release = Callable[[np.ndarray], np.ndarray]


def ironcore(factor: float) -> Release:
    """Return ironcore-alloy's encryption of vectors with an approximation factor (0: no noise)."""
    import ironcore_alloy as alloy

    secret = alloy.StandaloneSecret(1, alloy.Secret(bytes(range(64))))
    vector = alloy.VectorSecret(factor, alloy.RotatableSecret(secret, None))
    plain = alloy.StandardSecrets(None, [])
    client = alloy.Standalone(alloy.StandaloneConfiguration(plain, {}, {"path": vector}))
    who = alloy.AlloyMetadata("tenant", None, None, None, None, None, {})

    def release(X: np.ndarray) -> np.ndarray:
        done: list[Any] = []
        for start in range(0, len(X), 500):
            batch = {
                str(i): alloy.PlaintextVector(
                    plaintext_vector=row.tolist(), secret_path="path", derivation_path="benchmark"
                )
                for i, row in enumerate(X[start : start + 500])
            }
            found = asyncio.run(client.vector().encrypt_batch(batch, who)).successes
            done += [found[str(i)].encrypted_vector for i in range(len(batch))]
        return np.array(done, dtype=np.float32)

    return release


def releases(fit: Callable[..., Any], dimension: int, seed: int) -> dict[str, Release]:
    """Return the releases by name."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0].astype(np.float32)
    noise = np.random.default_rng(seed + 1)
    found: dict[str, Release] = {"rotation": lambda X: X @ rotation}
    for method, options in (
        ("shuffle", {}),
        ("laplace", {"target_utility": TARGET}),
        ("subspace", {"target_utility": TARGET}),
    ):
        protector = fit(method, options)
        found[method] = lambda X, p=protector: p.protect(X, noise)
        print(method, protector.report.get("parameters"), flush=True)
    if importlib.util.find_spec("ironcore_alloy"):
        for factor in (0.0, 1.0):
            found[f"ironcore-alloy {factor:g}"] = ironcore(factor)
    return found


def figures(estimate: Estimate) -> list[float]:
    """Return value and interval."""
    return [round(float(v), 4) for v in (estimate.value, estimate.low, estimate.high)]


def row(name: str, attack: Any, result: Any) -> dict[str, Any]:
    """Return the row of one attack on one release."""
    counts = {
        int(key.removeprefix("top_1_of_")): figures(estimate)
        for key, estimate in result.estimates.items()
        if key.startswith("top_1_of_")
    }
    counts[int(result.details[attack.learns_from])] = figures(result.main)
    return {
        "release": name,
        "attack": result.name,
        "pairs": {str(k): counts[k] for k in sorted(counts)},
        "cosine": figures(result.estimates["cosine"]),
        "candidates": result.details["candidates"],
        "chance": round(result.main.chance, 6),
        "details": {k: v for k, v in result.details.items() if k.startswith("chosen")},
        "seconds": round(result.seconds, 1),
    }


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seed = options.seed
    encoder = vecveil.load_encoder("minilm")
    problem = sts_problem(options.data)
    matches = problem.concept.find(problem.texts)
    ids = problem.groups[matches.with_concept]
    fit_rows, test_rows = split_groups(ids, (0.7, 0.3), seed=seed)
    every, tokens = matches.token_labels(min_count=1)
    counts = every[fit_rows].sum(axis=0)
    vocabulary = TokenVocabulary(tuple(t for t, c in zip(tokens.tokens, counts, strict=True) if c >= MIN_COUNT))
    labels, _ = matches.token_labels(vocabulary)
    held = labels.any(axis=1)
    fit_rows, test_rows = fit_rows[held[fit_rows]], test_rows[held[test_rows]]
    positive, negative = encoder.encode(matches.positives()), encoder.encode(matches.negatives())
    ordinary = np.setdiff1d(matches.without_concept, np.flatnonzero(np.isin(problem.groups, ids[test_rows])))
    background = encoder.encode([problem.texts[i] for i in ordinary])
    sts12 = _task([sts_tables(options.data)["sts12"]], encoder)

    def fit(method: str, how: dict[str, Any]) -> Any:
        return vecveil.fit_pairs(
            positive[fit_rows],
            negative[fit_rows],
            labels[fit_rows],
            background,
            method=method,
            utility=sts12,
            groups=ids[fit_rows],
            seed=seed,
            **how,
        )

    def leaked(X: np.ndarray) -> Estimate:
        learn = LabelledVectors(positive[fit_rows], labels[fit_rows], ids[fit_rows])
        store = LabelledVectors(X.astype(np.float32), labels[test_rows], ids[test_rows])
        return LinearAttack().run(learn, store, rng=seed).main

    sentences = pq.read_table(options.data / "lm" / "sentences.parquet")["text"].to_pylist()
    distinct = list(dict.fromkeys(sentences[: 3 * SENTENCES]))[: 2 * SENTENCES]
    corpus = encoder.encode(distinct)
    stored, own = corpus[:SENTENCES], corpus[SENTENCES:]
    clean = positive[test_rows]
    known = np.random.default_rng(seed).permutation(fit_rows)[:1000]
    unaligned = leaked(clean)
    rows = []
    for name, release in releases(fit, clean.shape[1], seed).items():
        released = release(clean)
        train = PairedVectors(release(positive[known]), positive[known], ids[known])
        test = CandidateVectors(released, clean, np.arange(len(clean)), groups=ids[test_rows])
        direct = figures(leaked(released)) if released.shape == clean.shape else None
        for attack in ATTACKS:
            one = row(name, attack, attack.run(train, test, rng=seed))
            state = attack.learn(train, Knowledge(released.shape[1]), np.random.default_rng(seed))
            one["leakage"] = figures(leaked(attack.recover(state, released)))
            one["leakage_unaligned"] = direct
            rows.append(one)
            print(one, flush=True)
        store = release(stored)
        blind = UnpairedAlignment()
        queries = CandidateVectors(store[:QUERIES], stored[:POOL], np.arange(QUERIES))
        one = row(name, blind, blind.run(PairedVectors(store, own), queries, rng=seed))
        rows.append(one)
        print(one, flush=True)
    found = importlib.util.find_spec("ironcore_alloy")
    record = {
        "schema": "vecveil.bench.alignment/1",
        "vecveil": vecveil.__version__,
        "ironcore_alloy": metadata.version("ironcore-alloy") if found else None,
        "target": TARGET,
        "seed": seed,
        "known": len(known),
        "store": len(clean),
        "terms": len(vocabulary),
        "leakage_clean": figures(unaligned),
        "leakage_chance": round(float(unaligned.chance or 0), 4),
        "rows": rows,
    }
    write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
