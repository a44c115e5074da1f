"""What a fit reports of itself: the utility that is left, and how far apart the pairs still are."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.accounting import laplace_total_variation
from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector.protector import Protector
from vecveil.types import Embeddings

__all__ = ["concept_distance", "utility_record"]


def utility_record(
    protector: Protector, task: UtilityTask, own: Embeddings, seed: int
) -> dict[str, Any]:
    """Measure the asked-for task and the two label-free ones on fresh draws."""
    tasks: dict[str, UtilityTask] = {
        "similarity": SimilarityTask.of(own, seed=seed + 1),
        "neighbours": NeighbourTask(own[:2000], queries=300, seed=seed),
        task.key: task,
    }
    rng = np.random.default_rng(seed + 1)

    def release(X: Embeddings, generator: np.random.Generator | None) -> Embeddings:
        return protector.protect(X, generator, noise=generator is not None)

    return {key: one.to_record(release, rng) for key, one in tasks.items()}


def concept_distance(
    protector: Protector, positive: Embeddings, negative: Embeddings
) -> dict[str, Any]:
    """Return how far apart "with" and "without" are after the map, and the advantage that follows.

    With a non-invertible map the total variation at the quotient distance is an upper bound.
    """
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    mechanism, n = protector.mechanism, protector.dimension
    epsilon = mechanism.parameters()["epsilon"]
    sigma = mechanism.noise_covariance() * epsilon**2 / (n + 1)
    down = np.eye(n) if protector.map is None else protector.map.down
    values, vectors = np.linalg.eigh(down @ sigma @ down.T)
    released = differences @ down.T @ (vectors / np.sqrt(values))
    distances = np.linalg.norm(released, axis=1)
    quantiles = np.quantile(distances, [0.5, 0.95])
    advantage = laplace_total_variation(quantiles, dimension=n, epsilon=epsilon)
    return {
        "clean_median": float(np.median(np.linalg.norm(differences, axis=1))),
        "median": float(quantiles[0]),
        "p95": float(quantiles[1]),
        "largest_advantage_median": float(advantage[0]),
        "largest_advantage_p95": float(advantage[1]),
        "exact": protector.map is None or protector.map.rank == n,
    }
