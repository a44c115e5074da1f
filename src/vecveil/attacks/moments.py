"""Means and covariances of released vectors, the noise averaged over draws or put in where it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.attacks.knowledge import Knowledge
from vecveil.types import Embeddings

__all__ = ["CUT_OFF", "Moments", "release_moments", "spectrum"]

FloatArray = npt.NDArray[np.float64]

CUT_OFF = 1e-7  # directions with less variance than this share of the largest count as dead


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of released vectors y and a target t of the same texts.

    Attributes:
        mean: (m,) mean of y.
        target_mean: (T,) mean of t.
        covariance: (m, m) covariance of y, noise included.
        cross: (m, T) covariance of y with t.
    """

    mean: FloatArray
    target_mean: FloatArray
    covariance: FloatArray
    cross: FloatArray


def release_moments(
    X: Embeddings,
    target: npt.NDArray[np.floating],
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    draws: int = 8,
) -> Moments:
    """Return the moments over ``draws`` releases of each text.

    Averages over draws come closer to the moments of infinitely many releases; a declared noise
    covariance S takes the place of the sampled one: Cov(y) = Cov(mean of R draws) + S·(1 − 1/R).

    Args:
        X: (N, n) training vectors: clean with an oracle, released without.
        target: (N, T).
        knowledge: Oracle and noise covariance.
        rng: For the oracle.
        draws: R; 1 is used without an oracle.
    """
    count = draws if knowledge.adaptive else 1
    m, rows = knowledge.dimension, len(X)
    average = np.zeros((rows, m))
    within = np.zeros((m, m))
    S = knowledge.noise_covariance if knowledge.adaptive else None
    for _ in range(count):
        released = knowledge.draw(X, rng).astype(np.float64)
        average += released / count
        if S is None:
            released -= released.mean(axis=0)
            within += released.T @ released / (rows * count)
    mean = average.mean(axis=0)
    average -= mean
    exact = target.astype(np.float64)
    target_mean = exact.mean(axis=0)
    cross = average.T @ (exact - target_mean) / rows
    covariance = within
    if S is not None:
        covariance = average.T @ average / rows + np.asarray(S, dtype=np.float64) * (1 - 1 / count)
    return Moments(mean, target_mean, covariance, cross)


def spectrum(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (r,) and eigenvectors (m, r) of the directions that vary; r may be 0."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    kept = values > CUT_OFF * max(values[-1], np.finfo(np.float64).tiny)
    return values[kept], vectors[:, kept]
