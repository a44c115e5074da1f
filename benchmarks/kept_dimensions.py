"""Noise in the kept dimensions of `subspace` against noise in all, and how many to keep.

    python benchmarks/kept_dimensions.py --data DIR [--concept sts|ade] [--seeds 0 1 2]

The texts, split and target of `benchmarks/leakage.py` (`shared`): 95 % of the clean Pearson correlation over the STS12
pairs, both sides protected. Every design erases 80 directions and flattens with p = .6. ``kept`` says how many
dimensions it releases; ``noise`` where the noise is: ``kept`` in these alone, ``all`` in all 384 at the same power
behind the map. Recovered is the R-precision of the stronger of a linear and a kernel attacker, both adaptive.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import vecveil
from benchmarks.leakage import MIN_COUNT, TARGET, _task, ade_problem, sts_problem, sts_tables
from vecveil.auditing.attacks import KernelAttack, LabelledVectors, LinearAttack, split_groups
from vecveil.io import write_text
from vecveil.privacy.concepts import TokenVocabulary
from vecveil.privacy.mechanisms import Laplace

RESULTS = Path(__file__).parent / "results" / "kept_dimensions.json"
RANK, FLATTENING = 80, 0.6
DESIGNS = {
    f"{kept} {where}": (kept, where)
    for kept, where in (*((kept, "kept") for kept in (96, 128, 192, 304)), *((kept, "all") for kept in (128, 304)))
}
ATTACKS = (LinearAttack(), KernelAttack())


def run(make: Any, data: Path, seed: int, encoder: Any, designs: list[str]) -> Iterator[dict[str, Any]]:
    problem, tables = make(data), sts_tables(data)
    sts12, others = (
        _task([tables[name] for name in names], encoder) for names in (["sts12"], ["sts13", "sts14", "sts15", "sts16"])
    )
    matches = problem.concept.find(problem.texts)
    ids = problem.groups[matches.with_concept]
    train, test = split_groups(ids, (0.7, 0.3), seed=seed)
    every, tokens = matches.token_labels(min_count=1)
    frequent = every[train].sum(axis=0) >= MIN_COUNT[problem.name]
    words = TokenVocabulary(tuple(t for t, kept in zip(tokens.tokens, frequent, strict=True) if kept))
    labels, _ = matches.token_labels(words)
    held = labels.any(axis=1)
    learn, judge = train[held[train]], test[held[test]]
    ordinary = np.setdiff1d(matches.without_concept, np.flatnonzero(np.isin(problem.groups, ids[test])))
    positive, negative = encoder.encode(matches.positives()), encoder.encode(matches.negatives())
    background = encoder.encode([problem.texts[i] for i in ordinary])
    known = LabelledVectors(positive[learn], labels[learn], ids[learn])
    for kept, where in (DESIGNS[name] for name in designs):
        protector = vecveil.fit_pairs(
            positive[train],
            negative[train],
            labels[train],
            background,
            rank=RANK,
            kept=kept,
            flattening=FLATTENING,
            pairs=True,
            target_utility=TARGET,
            utility=sts12,
            groups=ids[train],
            seed=seed,
            show_progress=False,
        )
        if where == "all":
            mechanism = protector.mechanism
            # Equal deviation per dimension: √(n + 1)/ε of Laplace noise in n dimensions.
            epsilon = float(np.sqrt(mechanism.dimension + 1)) / mechanism.least_deviation
            protector = replace(protector, mechanism=Laplace(mechanism.dimension, epsilon))

        def release(X: Any, rng: Any, p: vecveil.Protector = protector) -> Any:
            return p.protect(X, rng, noise=rng is not None)

        rng = np.random.default_rng(seed + 1)
        utility = {
            key: round(float(np.mean([task.relative(release, rng) for _ in range(3)])), 4)
            for key, task in (("sts12", sts12), ("sts13_16", others))
        }
        released = LabelledVectors(protector.protect(positive[judge], seed), labels[judge], ids[judge])
        oracle = {"release": protector.release(), "noise_covariance": protector.released_noise_covariance()}
        found = {a.name: a.run(known, released, rng=seed, **oracle).estimates["r_precision"] for a in ATTACKS}
        worst = max(found, key=lambda name: found[name].value)
        yield {
            "concept": problem.name,
            "seed": seed,
            "kept": kept,
            "noise": where,
            "epsilon": round(float(protector.mechanism.parameters()["epsilon"]), 1),
            "noise_to_signal": round(float(protector.report["noise_to_signal"]), 4),
            **utility,
            "recovered": round(float(found[worst].value), 4),
            "chance": round(float(found[worst].chance), 4),
            "attacks": {name: round(float(each.value), 4) for name, each in found.items()},
        }


def main() -> None:
    """Run and add the rows to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--concept", choices=["sts", "ade", "all"], default="all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--designs", nargs="+", choices=list(DESIGNS), default=list(DESIGNS))
    arguments = parser.parse_args()
    encoder = vecveil.load_encoder("minilm")
    makers = {"sts": sts_problem, "ade": ade_problem}
    for name in list(makers) if arguments.concept == "all" else [arguments.concept]:
        for seed in arguments.seeds:
            for row in run(makers[name], arguments.data, seed, encoder, arguments.designs):
                print(row, flush=True)
                old = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
                keys = ("concept", "seed", "kept", "noise")
                rows = [each for each in old if any(each[key] != row[key] for key in keys)] + [row]
                schema = "vecveil.bench.kept-dimensions/1"
                record = {"schema": schema, "vecveil": vecveil.__version__, "target": TARGET, "rows": rows}
                write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
