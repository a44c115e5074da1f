"""First guesses of the rotation between two spaces without any pair: principal axes and matched clusters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import quadratic_assignment

from vecveil.attacks.alignment.maps import unit_rows

__all__ = ["cluster_centres", "from_clusters", "from_principal_axes", "mean_of_nearest"]

FloatArray = npt.NDArray[np.float64]

_STEPS = 25  # of k-means; the centres need not be final
_BLOCK = 500


def from_principal_axes(A: FloatArray, B: FloatArray, axes: int) -> FloatArray:
    """Return the map (m, n) that takes the first principal axes of ``A`` to those of ``B``.

    Texts of one domain have their variances in the same axes, in the same order. The sign of axis i is
    that in which the third moments E[z_i z_j²], all j, agree.

    Args:
        A: (N, m) centred released rows.
        B: (M, n) centred clean rows.
        axes: How many; late axes have near variances and may be mixed up.
    """
    turned, moments = [], []
    for rows in (A, B):
        _, vectors = np.linalg.eigh(rows.T @ rows)
        first = vectors[:, ::-1][:, :axes]
        z = rows @ first
        spread = z.std(axis=0)
        z = np.divide(z, spread, out=np.zeros_like(z), where=spread > 0)
        turned.append(first)
        moments.append(z.T @ z**2 / len(z))
    width = min(part.shape[1] for part in turned)
    agree = (moments[0][:width, :width] * moments[1][:width, :width]).sum(axis=1)
    signs = np.where(agree < 0, -1.0, 1.0)
    start: FloatArray = (turned[0][:, :width] * signs) @ turned[1][:, :width].T
    return start


def from_clusters(
    A: FloatArray,
    B: FloatArray,
    rng: np.random.Generator,
    *,
    clusters: int,
    runs: int,
    restarts: int,
    rows: npt.NDArray[np.intp],
    neighbours: int,
) -> tuple[FloatArray, FloatArray]:
    """Return rows of ``A`` and, for each, the mean of rows of ``B`` that stand alike to matched clusters.

    Each run clusters both sides and matches the centres so that their cosines agree (a quadratic
    assignment). A row is then described by its cosines to all matched centres, in either space.
    Formula: mini-vec2vec, Dar (2025), approximate parallel pairs.
    """
    seen_A, seen_B = [], []
    for _ in range(runs):
        centres_A, centres_B = (cluster_centres(part, clusters, rng) for part in (A, B))
        order = _match(centres_A @ centres_A.T, centres_B @ centres_B.T, rng, restarts)
        seen_A.append(A[rows] @ centres_A.T)
        seen_B.append(B @ centres_B[order].T)
    described_A, described_B = np.hstack(seen_A), np.hstack(seen_B)
    described_A = unit_rows(described_A - described_A.mean(axis=0))
    described_B = unit_rows(described_B - described_B.mean(axis=0))
    return A[rows], mean_of_nearest(described_A, described_B, B, neighbours)[0]


def cluster_centres(rows: FloatArray, clusters: int, rng: np.random.Generator) -> FloatArray:
    """Return unit centres (c, n) of unit ``rows`` by spherical k-means with k-means++ seeds."""
    count = min(clusters, len(rows))
    centres = rows[[int(rng.integers(len(rows)))]]
    for _ in range(count - 1):
        far = np.maximum(1 - (rows @ centres.T).max(axis=1), 0.0)
        total = far.sum()
        chance = far / total if total > 0 else None
        centres = np.vstack([centres, rows[rng.choice(len(rows), p=chance)]])
    for _ in range(_STEPS):
        nearest = (rows @ centres.T).argmax(axis=1)
        member = np.zeros((len(rows), count))
        member[np.arange(len(rows)), nearest] = 1.0
        sums = member.T @ rows
        empty = ~member.any(axis=0)
        sums[empty] = centres[empty]
        moved = unit_rows(sums)
        if np.abs(moved - centres).max() < 1e-6:
            break
        centres = moved
    return centres


def _match(
    first: FloatArray, second: FloatArray, rng: np.random.Generator, restarts: int
) -> npt.NDArray[np.intp]:
    """Return for each centre of the first the one of the second; the best of some random starts."""
    best, chosen = -np.inf, np.arange(len(first))
    for _ in range(restarts):
        found = quadratic_assignment(
            first, second, method="faq", options={"maximize": True, "P0": "randomized", "rng": rng}
        )
        if found.fun > best:
            best, chosen = float(found.fun), np.asarray(found.col_ind)
    return chosen


def mean_of_nearest(
    queries: FloatArray, keys: FloatArray, values: FloatArray, neighbours: int
) -> tuple[FloatArray, float]:
    """Return the mean of the values of each query's nearest keys, and the mean of the best products."""
    count = min(neighbours, len(keys))
    means = np.empty((len(queries), values.shape[1]))
    best = 0.0
    small, all_keys = queries.astype(np.float32), keys.astype(np.float32).T
    for start in range(0, len(queries), _BLOCK):
        block = slice(start, start + _BLOCK)
        scores = small[block] @ all_keys
        nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        means[block] = values[nearest].mean(axis=1)
        best += float(scores.max(axis=1).sum())
    return means, best / len(queries)
