"""Unpaired alignment: find the rotation between a store and the attacker's own vectors without any known pair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.optimize is slow

from vecveil.attacks.alignment import AffineMap, AlignmentAttack, fit_scale, procrustes
from vecveil.metrics.utility import unit_rows
from vecveil.validation import check_count

FloatArray = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

_STEPS = 25  # of k-means; the centres need not be final
_BLOCK = 500
_AXES = (8, 16, 32)
_RESTARTS = 10
_QUERIES = 2000  # rows matched in a round
_SHARE = 0.006  # of the attacker's rows are averaged as the neighbours of a row
_TRIAL = 4  # rounds that every start gets
_PATIENCE = 3
_GAIN = 1e-3


class UnpairedAlignment(AlignmentAttack):
    """Align a store with the attacker's own vectors of other texts, as mini-vec2vec does.

    ``train.X`` are released vectors of the store and ``train.clean`` as many clean vectors of the attacker's own
    texts; row i of one has nothing to do with row i of the other. A release oracle is not used: with one there are
    pairs.

    First guesses come from the principal axes of either side, their signs from third moments, and from
    matched k-means centres (mini-vec2vec). Each is refined for a few rounds: map some rows, take the mean of
    the nearest clean rows as their partners, fit the rotation again. The start whose mapped rows come nearest
    to clean ones is refined until that no longer grows. No step needs the truth.
    """

    name = "unpaired-alignment"
    description = "A rotation found without any known pair, from vectors of other texts of the domain."
    cost = "a minute on one core, and thousands of own texts like those in the store"
    source = "After Dar (2025), mini-vec2vec: scaling universal geometry alignment with linear transformations."
    learns_from = "unpaired vectors"

    def __init__(self, *, rows: int = 8000, clusters: int = 20, runs: int = 10, rounds: int = 30) -> None:
        """Set the sizes of the search.

        Args:
            rows: Most vectors of either side; more align better and take longer.
            clusters: Centres of a clustering; more are more specific and harder to match.
            runs: Clusterings; 0 leaves this kind of start out.
            rounds: Most rounds of refinement.
        """
        owner = type(self).__name__
        self.rows = check_count(rows, owner=owner, param="rows", minimum=3)
        self.clusters = check_count(clusters, owner=owner, param="clusters", minimum=2)
        self.runs = check_count(runs, owner=owner, param="runs", minimum=0)
        self.rounds = check_count(rounds, owner=owner, param="rounds")

    def _counts(self, rows: int) -> tuple[int, ...]:
        return (min(rows, self.rows),)

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        clean = clean[rng.permutation(len(clean))]  # the order must not help
        source, target = Y.mean(axis=0), clean.mean(axis=0)
        A, B = unit_rows(Y - source), unit_rows(clean - target)
        neighbours = max(1, round(_SHARE * len(B)))
        starts = [
            (*_refine(A, B, start, rng, rounds=_TRIAL, neighbours=neighbours), name)
            for name, start in self._starts(A, B, rng, neighbours)
        ]
        _, weights, name = max(starts, key=lambda start: start[0])
        near, weights = _refine(A, B, weights, rng, rounds=self.rounds, neighbours=neighbours)
        part = rng.permutation(len(A))[:_QUERIES]
        partners, _ = _mean_of_nearest(unit_rows(A[part] @ weights), B, clean - target, neighbours)
        weights = weights * fit_scale((Y[part] - source) @ weights, partners)
        return AffineMap(weights, source, target, f"{name}, nearest at {near:.3f}")

    def _starts(
        self, A: FloatArray, B: FloatArray, rng: np.random.Generator, neighbours: int
    ) -> list[tuple[str, FloatArray]]:
        most = min(A.shape[1], B.shape[1])
        starts = [
            (f"{axes} principal axes", from_principal_axes(A, B, axes))
            for axes in sorted({min(axes, most) for axes in _AXES})
        ]
        if self.runs:
            rows = rng.permutation(len(A))[:_QUERIES]
            partners = self._from_clusters(A, B, rng, rows, neighbours)
            starts.append(("clusters", procrustes(A[rows], partners)))
        # A start of few directions comes nearer than any rotation without being better: fit all of them.
        part = rng.permutation(len(A))[:_QUERIES]

        def full(start: FloatArray) -> FloatArray:
            partners, _ = _mean_of_nearest(unit_rows(A[part] @ start), B, B, neighbours)
            return procrustes(A[part], partners)

        return [(name, full(start)) for name, start in starts]

    def _from_clusters(
        self, A: FloatArray, B: FloatArray, rng: np.random.Generator, rows: Rows, neighbours: int
    ) -> FloatArray:
        """Return for each of the ``rows`` of ``A`` the mean of the rows of ``B`` most similar to matched clusters.

        Each run clusters both sides and matches the centres so that their cosines agree (a quadratic
        assignment). A row is then described by its cosines to all matched centres, in either space.
        Formula: mini-vec2vec, Dar (2025), approximate parallel pairs.
        """
        seen_A, seen_B = [], []
        for _ in range(self.runs):
            centres_A, centres_B = (cluster_centres(part, self.clusters, rng) for part in (A, B))
            order = _match(centres_A @ centres_A.T, centres_B @ centres_B.T, rng)
            seen_A.append(A[rows] @ centres_A.T)
            seen_B.append(B @ centres_B[order].T)
        described_A, described_B = np.hstack(seen_A), np.hstack(seen_B)
        described_A = unit_rows(described_A - described_A.mean(axis=0))
        described_B = unit_rows(described_B - described_B.mean(axis=0))
        return _mean_of_nearest(described_A, described_B, B, neighbours)[0]


def from_principal_axes(A: FloatArray, B: FloatArray, axes: int) -> FloatArray:
    """Return the map (m, n) that takes the first principal axes of ``A`` to those of ``B``, both centred.

    Texts of one domain have their variances in the same axes, in the same order; late axes have similar variances
    and may be mixed up. The sign of axis i is that in which the third moments E[z_i z_j²], all j, agree.
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
        empty = ~member.any(axis=0)  # a centre without rows stays where it is
        sums[empty] = centres[empty]
        moved = unit_rows(sums)
        if np.abs(moved - centres).max() < 1e-6:
            break
        centres = moved
    return centres


def _match(first: FloatArray, second: FloatArray, rng: np.random.Generator) -> Rows:
    """Return for each centre of the first its partner among the second; the best of some random starts."""
    best, chosen = -np.inf, np.arange(len(first))
    for _ in range(_RESTARTS):
        # FAQ descends to a local optimum, so that the random start decides which.
        result = scipy.optimize.quadratic_assignment(
            first, second, method="faq", options={"maximize": True, "P0": "randomized", "rng": rng}
        )
        if result.fun > best:
            best, chosen = float(result.fun), np.asarray(result.col_ind)
    return chosen


def _mean_of_nearest(
    queries: FloatArray, keys: FloatArray, values: FloatArray, neighbours: int
) -> tuple[FloatArray, float]:
    """Return the mean of the values of each query's nearest keys, and the mean of the best products."""
    count = min(neighbours, len(keys))
    means = np.empty((len(queries), values.shape[1]))
    best = 0.0
    # float32 halves the time of the largest product; neighbours near in rank are averaged anyway.
    small, all_keys = queries.astype(np.float32), keys.astype(np.float32).T
    for start in range(0, len(queries), _BLOCK):
        block = slice(start, start + _BLOCK)
        scores = small[block] @ all_keys
        nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        means[block] = values[nearest].mean(axis=1)
        best += float(scores.max(axis=1).sum())
    return means, best / len(queries)


def _refine(
    A: FloatArray, B: FloatArray, weights: FloatArray, rng: np.random.Generator, *, rounds: int, neighbours: int
) -> tuple[float, FloatArray]:
    """Return how near mapped rows come to clean ones, and the map refitted to nearest rows."""
    best, best_weights, waited = -np.inf, weights, 0
    for _ in range(rounds):
        part = rng.permutation(len(A))[:_QUERIES]
        partners, near = _mean_of_nearest(unit_rows(A[part] @ weights), B, B, neighbours)
        waited = 0 if near > best + _GAIN else waited + 1  # rows differ from round to round
        if near > best:
            best, best_weights = near, weights
        if waited >= _PATIENCE:
            break
        weights = procrustes(A[part], partners)
    return best, best_weights
