"""What a fit reports of itself: the utility that is left, and how far apart the pairs still are."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.accounting.calibration import epsilon_meaning
from vecveil.accounting.guarantee import WEAK_EPSILON
from vecveil.accounting.total_variation import concept_level
from vecveil.mechanisms import Laplace, LdpGaussian, Mechanism, Purkayastha, TextCrafter
from vecveil.mechanisms.purkayastha import angle_moments
from vecveil.metrics import NeighbourTask, SimilarityTask, UtilityTask
from vecveil.protector.protector import Protector
from vecveil.types import Embeddings

UNBOUNDED = "Nothing bounds how well an attacker tells a text with the concept from the same text without it."

__all__ = ["concept_distance", "epsilon_warnings", "noise_ratio", "utility_record"]


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
    """Return how far apart "with" and "without" are in the mechanism's metric, and the advantage that follows.

    With a non-invertible map the total variation at the quotient distance is an upper bound.

    Args:
        positive, negative: (N, n), row i of each one pair, as they are before the noise.
    """
    down = None if protector.map is None else protector.map.down
    differences = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    level = concept_level(
        protector.mechanism.distances(positive, negative, down=down),
        advantage=protector.mechanism.advantage,
        exact=protector.map is None or protector.map.rank == protector.dimension,
    )
    # Not protector.guarantee: it is kept, and the report that it names is not there yet.
    formal = protector.mechanism.guarantee().kind == "formal"
    return {
        **level.to_record(),
        "clean_median": float(np.median(np.linalg.norm(differences, axis=1))),
        "statement": str(level) if formal else UNBOUNDED,
    }


def noise_ratio(mechanism: Mechanism, rms_norm: float) -> float:
    """Return the root mean square norm of what a mechanism adds over that of the vectors."""
    if isinstance(mechanism, Purkayastha):
        cosine = angle_moments(mechanism.dimension, mechanism.epsilon)[0]
        return float(np.sqrt(2 - 2 * cosine))
    if isinstance(mechanism, TextCrafter):
        return mechanism.radius / rms_norm
    return float(np.sqrt(np.trace(mechanism.noise_covariance()))) / rms_norm


def epsilon_warnings(protector: Protector, rms_norm: float) -> list[str]:
    """Return plain sentences where a stated ε means little, each with the number that shows it."""
    mechanism = protector.mechanism
    if isinstance(mechanism, Laplace) and abs(rms_norm - 1) < 0.05:
        return list(epsilon_meaning(protector.dimension, mechanism.epsilon))
    if isinstance(mechanism, LdpGaussian):
        if mechanism.epsilon <= WEAK_EPSILON:
            return []
        return [
            f"A factor of e^{mechanism.epsilon:.3g} between any two inputs is no protection by itself."
        ]
    if isinstance(mechanism, Purkayastha):
        worst: float | None = mechanism.epsilon
    else:
        worst = mechanism.guarantee().epsilon_euclidean_worst
    if worst is None or worst <= WEAK_EPSILON:
        return []
    # A tenth of a radian, or of the vectors' norm in the direction that the noise covers least.
    apart = 0.1 if isinstance(mechanism, Purkayastha) else 0.1 * rms_norm
    epsilon = float(mechanism.parameters()["epsilon"])
    inside = apart if isinstance(mechanism, Purkayastha) else apart * worst / epsilon
    advantage = float(mechanism.advantage(np.array([inside]))[0])
    where = "radian" if isinstance(mechanism, Purkayastha) else "in the least protected direction"
    return [
        f"At a distance of {apart:.3g} {where} the bound allows a factor of e^{inside * epsilon:.3g}, which excludes "
        f"little; exactly, the largest advantage of any attacker there is {advantage:.3g}."
    ]
