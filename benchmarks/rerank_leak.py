"""What an API key with rerank access learns about sealed vectors: estimate them from rank orders of chosen queries.

    python benchmarks/rerank_leak.py --data DIR [--seeds 3]

DIR is a folder with ``sts/*.parquet``. In each seed the attacker holds no vector of the 200 sealed documents, but the
encoder and 3,000 other sentences. It sends sentences as queries, whose vectors it knows, and gets one of:

- ``order``: the order of the documents, as ``POST /v1/rerank`` answers;
- ``best 10``: the first ten of that order;
- ``order among 200 own``: the same, with 200 documents of its own in the request, whose vectors it knows;
- ``scores``: exact cosines, as with the grant ``scores``.

Of an order it fits vectors by the maximum posterior of the Plackett-Luce model, else by ridge regression, both under
the covariance of its sentences. Better attackers need fewer queries. Reported are the mean cosine of estimate and
vector (0 queries: of the mean sentence), and the share of documents whose own text is the nearest of 5,000 sentences.
10,000 queries are sent in the first seed alone. Writes benchmarks/results/rerank_leak.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize

import vecveil
from vecveil.io import write_text

RESULTS = Path(__file__).parent / "results" / "rerank_leak.json"
QUERIES = (0, 30, 100, 300, 1_000, 10_000)
WEIGHTS = [10.0**e for e in range(-4, 4)]  # noise of an answer, by the variance of a cosine under the prior
WEIGHT, ITERATIONS = 3e-4, 40
DOCUMENTS, OWN, KNOWN, CANDIDATES, BEST = 200, 200, 3_000, 5_000, 10


def sentences(data: Path) -> list[str]:
    """Return the distinct sentences of the STS files."""
    found: dict[str, None] = {}
    for path in sorted((data / "sts").glob("*.parquet")):
        table = pq.read_table(path)
        for name in ("sentence1", "sentence2"):
            found.update(dict.fromkeys(table.column(name).to_pylist()))
    return list(found)


def between(position: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the middle between the cosines (T, m) of the two own documents next to each position (T, k)."""
    ladder = np.sort(own, axis=1)[:, ::-1]
    ladder = np.hstack([2 * ladder[:, :1] - ladder[:, 1:2], ladder, 2 * ladder[:, -1:] - ladder[:, -2:-1]])
    return (np.take_along_axis(ladder, position, 1) + np.take_along_axis(ladder, position + 1, 1)) / 2


def ridge(Q: np.ndarray, S: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return rows x with S ≈ Q x under the prior's covariance; its weight is chosen on a fifth of the queries."""
    size = float(np.einsum("ij,jk,ik->i", Q, prior, Q).mean())

    def fit(rows: slice, weight: float) -> np.ndarray:
        A = prior @ Q[rows].T @ Q[rows] + weight * size * np.eye(len(prior))
        solved: np.ndarray = np.linalg.solve(A, prior @ Q[rows].T @ S[rows]).T
        return solved

    fifth = max(1, len(Q) // 5)
    errors = [((Q[:fifth] @ fit(slice(fifth, None), w).T - S[:fifth]) ** 2).sum() for w in WEIGHTS]
    return fit(slice(None), WEIGHTS[int(np.argmin(errors))])


def estimates(
    kind: str, Q: np.ndarray, X: np.ndarray, own: np.ndarray, mean: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """Return the attacker's estimates (k, n) of the unit vectors ``X`` after the queries ``Q`` (T, n)."""
    if len(Q) == 0:
        return np.tile(mean, (len(X), 1))
    C = Q @ X.T
    if kind == "scores":
        return mean + ridge(Q, C - (Q @ mean)[:, None], prior)
    if "own" in kind:
        known = Q @ own.T
        position = np.stack([(row[None, :] > c[:, None]).sum(1) for row, c in zip(known, C, strict=True)])
        return mean + ridge(Q, between(position, known) - (Q @ mean)[:, None], prior)
    shown = BEST if kind.startswith("best") else len(X)
    D = plackett_luce(Q, np.argsort(-C, axis=1), shown, prior)
    # An order says nothing about a vector that all documents share: the attacker takes that of its sentences.
    D = D - D.mean(0)
    return mean + D * (np.sqrt(1 - mean @ mean) / np.linalg.norm(D, axis=1, keepdims=True))


def plackett_luce(Q: np.ndarray, order: np.ndarray, shown: int, prior: np.ndarray) -> np.ndarray:
    """Return rows (k, n) by the maximum posterior of the first ``shown`` places of each order (T, k)."""
    T, k = order.shape
    root = np.linalg.cholesky(prior + 1e-9 * np.eye(len(prior)))
    A, rows, first = Q @ root, np.arange(T)[:, None], np.arange(k) < shown
    last = np.minimum(np.arange(k), shown - 1)

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        Z = z.reshape(k, -1)
        S = (A @ Z.T)[rows, order]
        E = np.exp(S - S.max(1, keepdims=True))
        left = np.cumsum(E[:, ::-1], axis=1)[:, ::-1] + 1e-300  # of the documents that are not placed yet
        value = (np.log(left) - np.log(E + 1e-300))[:, :shown].sum()
        G = np.empty_like(S)
        G[rows, order] = E * np.cumsum(np.where(first, 1 / left, 0), axis=1)[:, last] - first
        return float(value + WEIGHT / 2 * z @ z), ((G.T @ A) + WEIGHT * Z).ravel()

    found = minimize(loss, np.zeros(k * len(prior)), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    solved: np.ndarray = found.x.reshape(k, -1) @ root.T
    return solved


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    texts = sentences(given.data)
    rng = np.random.default_rng(0)
    need = KNOWN + given.seeds * DOCUMENTS + OWN + CANDIDATES + QUERIES[-1]
    texts = [texts[i] for i in rng.permutation(len(texts))[:need]]
    X = np.asarray(vecveil.load_encoder("minilm").encode(texts), np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ends = np.cumsum([KNOWN, given.seeds * DOCUMENTS, OWN, CANDIDATES])
    known, sealed, own, others, queries = np.split(X, ends)
    print(f"{len(texts):,} sentences, {len(queries):,} queries")
    mean, prior = known.mean(0), np.cov(known.T)
    record: dict[str, Any] = {"documents": DOCUMENTS, "own": OWN, "candidates": CANDIDATES, "rows": []}
    kinds = ("scores", f"order among {OWN} own", f"best {BEST}", "order")
    for count, kind in ((count, kind) for count in QUERIES if count <= len(queries) for kind in kinds):
        cosines, named = [], []
        for seed in range(given.seeds if count < 10_000 else 1):
            docs = sealed[seed * DOCUMENTS : (seed + 1) * DOCUMENTS]
            Q = queries[np.random.default_rng(seed).permutation(len(queries))[:count]]
            guess = estimates(kind, Q, docs, own, mean, prior)
            guess /= np.linalg.norm(guess, axis=1, keepdims=True)
            right = (guess * docs).sum(1)
            cosines.append(right.mean())
            named.append((right > (guess @ others.T).max(1)).mean())
        row: dict[str, Any] = {"answer": kind, "queries": count, "seeds": len(cosines)}
        for name, values in (("cosine", cosines), ("recognised", named)):
            row[name] = round(float(np.mean(values)), 3)
            row[f"{name}_range"] = [round(float(v), 3) for v in (min(values), max(values))]
        record["rows"].append(row)
        print(row, flush=True)
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
