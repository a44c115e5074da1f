"""Unpaired alignment: no known pair at all, only other texts of the same kind, in the manner of mini-vec2vec."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vecveil.attacks.alignment.base import AlignmentAttack
from vecveil.attacks.alignment.maps import AffineMap, fit_scale, unit_rows
from vecveil.attacks.alignment.procrustes import procrustes
from vecveil.attacks.alignment.starts import from_clusters, from_principal_axes, mean_of_nearest
from vecveil.validation import check_count

__all__ = ["UnpairedAlignment"]

FloatArray = npt.NDArray[np.float64]

_AXES = (8, 16, 32)
_RESTARTS = 10
_QUERIES = 2000  # rows matched in a round
_SHARE = 0.006  # of the attacker's rows are averaged as neighbours of one
_TRIAL = 4  # rounds that every start gets
_PATIENCE = 3
_GAIN = 1e-3


class UnpairedAlignment(AlignmentAttack):
    """Aligns a store with the attacker's own vectors of other texts; no row of one is known in the other.

    ``train.X`` are released vectors of the store and ``train.clean`` are clean vectors of the attacker's own
    texts, as many, in an order that means nothing: row i of one has nothing to do with row i of the other.
    A release oracle is of no use here: with one there are pairs.

    First guesses come from the principal axes of either side, their signs from third moments, and from
    matched k-means centres (mini-vec2vec). Each is refined for a few rounds: map some rows, take the mean of
    the nearest clean rows as their partners, fit the rotation again. The one whose mapped rows come nearest
    to clean ones goes on until that no longer grows. Nothing in this needs the truth.
    """

    name = "unpaired-alignment"
    description = (
        "A rotation found without any known pair, from vectors of other texts of the domain."
    )
    cost = "a minute on one core, and thousands of own texts like those in the store"
    source = "After Dar (2025), mini-vec2vec: scaling universal geometry alignment with linear transformations."
    learns_from = "unpaired vectors"

    def __init__(
        self, *, rows: int = 8000, clusters: int = 20, runs: int = 10, rounds: int = 30
    ) -> None:
        """Keep the sizes of the search.

        Args:
            rows: Vectors of either side to use at most; more align better and take longer.
            clusters: Centres of a run; more tell more and are harder to match.
            runs: Clusterings; 0 leaves this kind of start out.
            rounds: Rounds of refinement at most.
        """
        owner = type(self).__name__
        self.rows = check_count(rows, owner=owner, param="rows", minimum=3)
        self.clusters = check_count(clusters, owner=owner, param="clusters", minimum=2)
        self.runs = check_count(runs, owner=owner, param="runs", minimum=0)
        self.rounds = check_count(rounds, owner=owner, param="rounds")

    def _counts(self, rows: int) -> tuple[int, ...]:
        return (min(rows, self.rows),)

    def _align(self, Y: FloatArray, clean: FloatArray, rng: np.random.Generator) -> AffineMap:
        clean = clean[rng.permutation(len(clean))]  # no use can be made of the order
        source, target = Y.mean(axis=0), clean.mean(axis=0)
        A, B = unit_rows(Y - source), unit_rows(clean - target)
        neighbours = max(1, round(_SHARE * len(B)))
        tried = [
            (*_refine(A, B, start, rng, rounds=_TRIAL, neighbours=neighbours), name)
            for name, start in self._starts(A, B, rng, neighbours)
        ]
        _, weights, name = max(tried, key=lambda one: one[0])
        near, weights = _refine(A, B, weights, rng, rounds=self.rounds, neighbours=neighbours)
        part = rng.permutation(len(A))[:_QUERIES]
        partners, _ = mean_of_nearest(unit_rows(A[part] @ weights), B, clean - target, neighbours)
        weights = weights * fit_scale((Y[part] - source) @ weights, partners)
        return AffineMap(weights, source, target, f"{name}, nearest at {near:.3f}")

    def _starts(
        self, A: FloatArray, B: FloatArray, rng: np.random.Generator, neighbours: int
    ) -> list[tuple[str, FloatArray]]:
        most = min(A.shape[1], B.shape[1])
        found = [
            (f"{axes} principal axes", from_principal_axes(A, B, axes))
            for axes in sorted({min(axes, most) for axes in _AXES})
        ]
        if self.runs:
            y, x = from_clusters(
                A,
                B,
                rng,
                clusters=self.clusters,
                runs=self.runs,
                restarts=_RESTARTS,
                rows=rng.permutation(len(A))[:_QUERIES],
                neighbours=neighbours,
            )
            found.append(("clusters", procrustes(y, x)))
        # A start of few directions comes nearer than any rotation, and means nothing by it: fit all of them.
        part = rng.permutation(len(A))[:_QUERIES]
        return [
            (
                name,
                procrustes(A[part], mean_of_nearest(unit_rows(A[part] @ one), B, B, neighbours)[0]),
            )
            for name, one in found
        ]


def _refine(
    A: FloatArray,
    B: FloatArray,
    weights: FloatArray,
    rng: np.random.Generator,
    *,
    rounds: int,
    neighbours: int,
) -> tuple[float, FloatArray]:
    """Return how near mapped rows come to clean ones, and the map fitted again and again to nearest rows."""
    best, kept, waited = -np.inf, weights, 0
    for _ in range(rounds):
        part = rng.permutation(len(A))[:_QUERIES]
        partners, near = mean_of_nearest(unit_rows(A[part] @ weights), B, B, neighbours)
        waited = 0 if near > best + _GAIN else waited + 1
        if near > best:
            best, kept = near, weights
        if waited >= _PATIENCE:
            break
        weights = procrustes(A[part], partners)
    return best, kept
