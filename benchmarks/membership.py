"""Given a text, is it in the store? And: which rows are neighbours, told from what is fetched together?

    python benchmarks/membership.py --data DIR [--only membership|access|tokens]

Texts are STS sentences of DIR (see ``benchmarks/leakage.py``). A store holds 2,000 of 4,000 sentences; the attacker has
the encoder, the protector, 2,400 other sentences, and the 4,000 in question. Each release was fitted on 4,000 further
ones. The sealed index is judged by the sizes of its objects, of 200 pairs of indexes that differ in one text.

The second part logs which rows each of 2,000 queries fetched from a sealed store, and rebuilds the ten nearest
neighbours of every row from the rows that are fetched together. Writes ``benchmarks/results/membership.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from leakage import sts_problem
from scipy.optimize import linear_sum_assignment

import vecveil
from vecveil.auditing.attacks import CandidateVectors, MembershipAttack, PairedVectors
from vecveil.auditing.metrics.leakage import tpr_at_fpr
from vecveil.io import write_text
from vecveil.keys import NoiseKey
from vecveil.privacy.utility.ranking import auc

RESULTS = Path(__file__).parent / "results" / "membership.json"
FIT, OTHERS, STORE, ASKED = 4000, 2400, 2000, 4000
BLOCK = 21  # rows of 384 dimensions in float16 in 16 KiB
METHODS: dict[str, dict[str, Any]] = {
    **{
        f"{method}, similarity 95 %": {"method": method, "target_utility": 0.95}
        for method in ("laplace", "gaussian", "purkayastha", "covariance", "sparse", "sparse-whitebox")
    },
    "ldp-gaussian, ε 100, δ 1e-5": {"method": "ldp-gaussian", "epsilon": 100.0, "delta": 1e-5},
    "textcrafter, r 1": {"method": "textcrafter", "radius": 1.0},
    "textcrafter-subspace, r 1": {"method": "textcrafter-subspace", "radius": 1.0},
    "shuffle": {"method": "shuffle"},
    "subspace, similarity 95 % (default)": {"target_utility": 0.95},
    "subspace, noise 0.9": {
        "noise_to_signal": 0.9,
        "rank": 160,
        "gradients": 60,
        "kept": 224,
        "pairs": True,
        "flattening": 0.0,
    },
    "sealed search, 99 % among 500 of 12,000": {
        "utility": "sealed-search",
        "candidates": 500,
        "collection_size": 12_000,
        "accept_leak": True,
    },
    "redact": {"method": "redact"},
    "replace-random": {"method": "replace-random"},
    "replace-semantic": {"method": "replace-semantic"},
}
NEAREST = 10
DRAWS = 5


def row(name: str, attack: Callable[[int], Any]) -> dict[str, Any]:
    """Return the mean figures of an attack over draws of the noise and of its threshold, and their widest ends."""
    results = [attack(draw).estimates for draw in range(DRAWS)]
    figures = {
        key: [
            round(float(end([getattr(one[key], part) for one in results])), 4)
            for part, end in (("value", np.mean), ("low", min), ("high", max))
        ]
        for key in results[0]
    }
    print(name, figures, flush=True)
    return {"release": name, **figures}


def membership(texts: list[str], concept: Any, encoder: Any) -> list[dict[str, Any]]:
    """Return a row for each release."""
    order = np.random.default_rng(0).permutation(len(texts))
    fitted, others, asked = (
        [texts[i] for i in part] for part in np.split(order[: FIT + OTHERS + ASKED], [FIT, FIT + OTHERS])
    )
    known, pool, truth = encoder.encode(others), encoder.encode(asked), np.arange(STORE)

    def attack(store: Callable[[np.random.Generator], Any], **knowledge: Any) -> Callable[[int], Any]:
        def run(draw: int) -> Any:
            released = store(np.random.default_rng([2, draw]))
            train, test = PairedVectors(known, known), CandidateVectors(released, pool, truth)
            return MembershipAttack().run(train, test, rng=draw, **knowledge)

        return run

    rows = [row("clean", attack(lambda rng: pool[:STORE]))]
    for name, settings in METHODS.items():
        protector = vecveil.fit(fitted, concept, encoder, **settings)
        if protector.text_only:
            # The attacker rewrites the text in question itself, so that rewritten texts are compared.
            learnt, written = protector.encode(others), protector.encode(asked)
            train, test = PairedVectors(learnt, learnt), CandidateVectors(written[:STORE], written, truth)
            rows.append(row(name, lambda draw, t=(train, test): MembershipAttack().run(*t, rng=draw)))
            continue
        oracle = {"release": protector.release(), "noise_covariance": protector.released_noise_covariance()}
        rows.append(row(name, attack(partial(protector.protect, pool[:STORE]), **oracle)))
        if "default" in name:

            def keyed(rng: np.random.Generator, protector: Any = protector) -> Any:
                return protector.protect(pool[:STORE], ids=range(STORE), key=NoiseKey("benchmark", rng.bytes(32)))

            rows.append(row("the same with keyed noise, without the key", attack(keyed, **oracle)))
    return rows


def sealed_index(pool: np.ndarray, texts: list[str]) -> dict[str, Any]:
    """Return the figures of "the text is in it" from the sizes of an index's objects, with and without the text."""
    sizes, member = [], []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(400):
            chosen = [i // 2 + 100, *range(60)] if i % 2 else [i // 2 + 200, *range(60)]
            where = Path(folder) / str(i)
            with vecveil.SealedIndex(str(where), bytes(range(32)), name="benchmark") as index:
                index.add([texts[j] for j in chosen], ids=[str(j) for j in range(len(chosen))], vectors=pool[chosen])
            sizes.append(sum(path.stat().st_size for path in where.rglob("*") if path.is_file()))
            member.append(i % 2)
    scores, truth = np.array(sizes, float), np.array(member)
    # Half of the indexes choose the threshold, which needs a hundred without the text.
    figures = {
        "auc": auc(scores, truth),
        "tpr": tpr_at_fpr(scores[:200], truth[:200], scores[200:], truth[200:], false_positive_rate=0.01),
    }
    found = {key: [round(float(v), 4) for v in (one.value, one.low, one.high)] for key, one in figures.items() if one}
    print("sealed index", found, f"{len(set(sizes))} sizes", flush=True)
    return {"release": "sealed index: sizes of its objects", **found, "sizes": len(set(sizes))}


def rebuilt(fetched: np.ndarray, X: np.ndarray, block: int = 1) -> float:
    """Return neighbour precision@10: of the ten rows that are fetched with a row most often, those nearest in truth.

    Rows of one block are always fetched together, which says nothing: the attacker names rows of other blocks.
    """
    together = fetched.T @ fetched / np.sqrt(np.outer(fetched.sum(0), fetched.sum(0)) + 1e-9)
    exact = X @ X.T
    seen = np.flatnonzero(fetched.sum(0) > 0)
    if block > 1:
        blocks = np.arange(len(X)) // block
        together[blocks[:, None] == blocks] = -np.inf
    for matrix in (together, exact):
        np.fill_diagonal(matrix, -np.inf)
    guess, right = (np.argpartition(-matrix[seen], NEAREST, axis=1)[:, :NEAREST] for matrix in (together, exact))
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(guess, right, strict=True)]) / NEAREST)


def access(X: np.ndarray, queries: np.ndarray) -> list[dict[str, Any]]:
    """Return neighbour precision@10 of an observer of 2,000 fetches, plain, padded and with dummies."""
    X, queries = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (X, queries))
    rng = np.random.default_rng(0)
    scores = queries @ X.T
    rows = []
    for name, candidates, dummies, block in (
        ("200 candidates", 200, 0, 1),
        ("50 candidates", 50, 0, 1),
        ("200 candidates and 200 random rows", 200, 200, 1),
        ("200 candidates and 800 random rows", 200, 800, 1),
        (f"blocks of {BLOCK} rows with 20 candidates (a sealed index, `remote`)", 20, 0, BLOCK),
        ("the same and as many random blocks", 20, 20, BLOCK),
        ("every row (a sealed index)", len(X), 0, 1),
    ):
        fetched = np.zeros(scores.shape, dtype=np.float32)
        nearest = np.argpartition(-scores, candidates - 1, axis=1)[:, :candidates]
        np.put_along_axis(fetched, nearest, 1.0, axis=1)
        for i in range(len(fetched) if dummies else 0):
            fetched[i, rng.choice(len(X), dummies, replace=False)] = 1.0
        if block > 1:  # rows lie in the order in which they were added
            starts = np.arange(0, len(X), block)
            fetched = np.repeat(np.maximum.reduceat(fetched, starts, axis=1), block, axis=1)[:, : len(X)]
        # Ties between columns, as of an observer who sees every row fetched, are broken at random.
        precision = rebuilt(fetched + 1e-6 * rng.random(fetched.shape, dtype=np.float32), X, block)
        rows.append({"fetched": name, "precision": round(precision, 4)})
        print(rows[-1], flush=True)
    rows.append({"fetched": "chance", "precision": round(NEAREST / (len(X) - 1), 4)})
    return rows


def tokens() -> dict[str, Any]:
    """Return the share of filter tokens that an attacker names who knows how often values occur together.

    Two fields of 40 values each, of skewed frequency and correlated, in 4,000 rows; the attacker has the joint
    frequencies of another sample of 4,000. Means of ten draws.
    """
    shares = np.mean([_named(np.random.default_rng(seed)) for seed in range(10)], axis=0)
    result = dict(zip(("by frequency", "by co-occurrence"), shares.round(4).tolist(), strict=True))
    print("filter tokens", result, flush=True)
    return result


def _named(rng: np.random.Generator, values: int = 40, rows: int = 4000, starts: int = 1500) -> tuple[float, float]:
    """Return the shares of the second field's tokens named by frequency and by co-occurrence, of one draw."""
    first = rng.dirichlet(np.full(values, 0.6))
    joint = first[:, None] * rng.dirichlet(np.full(values, 0.6), size=values)
    seen, own = (rng.multinomial(rows, joint.ravel()).reshape(joint.shape) for _ in range(2))
    # HMAC hides the values and keeps their equality: what is left of them is their counts, in any order.
    lines, truth = rng.permutation(values), rng.permutation(values)
    seen, likely = seen[lines][:, truth], np.log(own + 0.3)

    def matched(cost: np.ndarray) -> np.ndarray:
        return np.asarray(linear_sum_assignment(cost)[1])

    def fitted(columns: np.ndarray) -> tuple[float, np.ndarray]:
        for _ in range(50):
            rows = matched(-seen @ likely[:, columns].T)
            columns, before = matched(-seen.T @ likely[rows]), columns
            if np.array_equal(columns, before):
                break
        return float((seen * likely[rows][:, columns]).sum()), columns

    alone = matched(np.square(np.sqrt(seen.sum(0))[:, None] - np.sqrt(own.sum(0))))
    # Each field is named by the likelihood under what the other is taken for, in turns, from many starts.
    best = max((fitted(rng.permutation(values)) for _ in range(starts)), key=lambda each: each[0])[1]
    return float((alone == truth).mean()), float((best == truth).mean())


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=["membership", "access", "tokens"])
    given = parser.parse_args()
    problem = sts_problem(given.data)
    encoder = vecveil.load_encoder("minilm")
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record |= {"schema": "vecveil.bench.membership/1", "vecveil": vecveil.__version__, "store": STORE, "asked": ASKED}
    if given.only in (None, "membership"):
        record["membership"] = membership(problem.texts, problem.concept, encoder)
        pool = encoder.encode(problem.texts[:400])
        record["membership"].append(sealed_index(pool, problem.texts))
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    if given.only in (None, "access"):
        order = np.random.default_rng(1).permutation(len(problem.texts))[: 2 * STORE]
        X = encoder.encode([problem.texts[i] for i in order])
        record["access"] = access(X[:STORE], X[STORE:])
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    if given.only in (None, "tokens"):
        record["tokens"] = tokens()
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
