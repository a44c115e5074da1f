"""Does protection keep the nearest neighbours? Recall of clean neighbours among the protected."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import cluster_bootstrap, group_index
from vecveil.metrics.similarity import unit_rows
from vecveil.metrics.token_inference import top_credit
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

__all__ = ["neighbour_recall"]

_BLOCK = 2_000_000  # similarities held at once, per array
_SAME = 1e-6  # cosines closer than this count as equal


def neighbour_recall(
    clean: Embeddings,
    protected: Embeddings,
    *,
    k: int = 10,
    queries: Embeddings | None = None,
    sample: int | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Estimate:
    """Return the share of each text's ``k`` nearest neighbours that protection keeps (cosine).

    Every text queries all others. A retrieved text counts if it is, on clean vectors, at least as
    near as the k-th neighbour, so exact ties are no errors; ties among protected vectors are shared
    out, so constant vectors score chance. n counts the queries.

    Args:
        clean: (N, n) clean vectors.
        protected: (N, m) the same texts protected.
        k: Neighbours per text, less than N.
        queries: (N, m) what the queries are protected by, for example the map without noise;
            None queries with ``protected`` itself (noise on both sides).
        sample: Query only so many texts, drawn at random; None queries with all. Time grows with
            sample × N, memory stays within a few hundred MB.
        groups: (N,) text groups for the interval.
        seed: Seed of the sample and of the bootstrap.
    """
    owner = "neighbour_recall"
    clean = check_embeddings(clean, owner=owner, param="clean", min_rows=2)
    protected = check_embeddings(protected, owner=owner, param="protected")
    asked = protected
    if queries is not None:
        asked = check_embeddings(queries, owner=owner, param="queries")
    rows = check_same_length(owner, clean=clean, protected=protected, queries=asked)
    if asked.shape[1] != protected.shape[1]:
        raise InvalidInputError.of(
            owner, "queries", f"of dimension {protected.shape[1]}", f"dimension {asked.shape[1]}"
        )
    k = check_count(k, owner=owner, param="k", maximum=rows - 1)
    index, _ = group_index(groups, rows, owner=owner)
    chosen = np.arange(rows)
    if sample is not None and check_count(sample, owner=owner, param="sample") < rows:
        chosen = np.sort(np.random.default_rng(seed).choice(rows, size=sample, replace=False))
    clean, protected, asked = unit_rows(clean), unit_rows(protected), unit_rows(asked)
    found = np.empty(len(chosen))
    step = max(1, _BLOCK // rows)
    for start in range(0, len(chosen), step):
        block = chosen[start : start + step]
        own = (np.arange(len(block)), block)
        near = clean[block] @ clean.T
        near[own] = -np.inf
        kth = np.partition(near, rows - k, axis=1)[:, rows - k, None]
        got = (asked[block] @ protected.T).astype(np.float64)
        got[own] = -np.inf
        credit = top_credit(got, np.full(len(block), k))
        found[start : start + step] = np.where(near >= kth - _SAME, credit, 0.0).sum(axis=1) / k
    low, high = cluster_bootstrap(found, np.ones(len(found)), index[chosen], seed=seed)
    return Estimate(f"recall@{k}", float(found.mean()), low, high, len(found), k / (rows - 1))
