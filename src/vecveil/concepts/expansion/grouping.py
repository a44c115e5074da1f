"""Groups of listed terms, and which group a member is nearest to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["centroids_of", "cluster_terms", "nearest"]

Vectors = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]

TERMS_PER_GROUP = 12
MOST_GROUPS = 24
ROUNDS = 25


def cluster_terms(vectors: Vectors, labels: Sequence[str], *, seed: int) -> Groups:
    """Return the group of each term: terms of one span label, near one another in the encoder's space.

    Spherical k-means (Dhillon and Modha 2001) within each label, with one group for twelve terms and at
    most 24 for a label.

    Args:
        vectors: (T, n) of norm 1.
        labels: of each term; terms of two labels never share a group.
    """
    groups = np.zeros(len(vectors), dtype=np.intp)
    first = 0
    marks = np.asarray(labels, dtype=object)
    for label in sorted(set(labels)):
        rows = np.flatnonzero(marks == label)
        count = int(np.clip(round(len(rows) / TERMS_PER_GROUP), 1, MOST_GROUPS))
        own = _spherical_means(vectors[rows], count, np.random.default_rng([seed, first]))
        groups[rows] = own + first
        first += int(own.max()) + 1
    return groups


def centroids_of(vectors: Vectors, groups: Groups) -> Vectors:
    """Return (G, n): the mean of each group's vectors, scaled to norm 1."""
    sums = np.zeros((int(groups.max()) + 1, vectors.shape[1]))
    np.add.at(sums, groups, vectors)
    return _unit(sums)


def nearest(vectors: Vectors, centroids: Vectors) -> tuple[Groups, npt.NDArray[np.float64]]:
    """Return for each vector the group of the highest cosine, and that cosine."""
    cosines = vectors @ centroids.T
    best = cosines.argmax(axis=1)
    return best, cosines[np.arange(len(vectors)), best]


def _spherical_means(X: Vectors, count: int, rng: np.random.Generator) -> Groups:
    """Return groups numbered from 0 without gaps."""
    centres = X[_spread(X, count, rng)]
    groups = np.zeros(len(X), dtype=np.intp)
    for _ in range(ROUNDS):
        fresh = (X @ centres.T).argmax(axis=1)
        if (fresh == groups).all() and _ > 0:
            break
        groups = fresh
        sums = np.zeros_like(centres)
        np.add.at(sums, groups, X)
        held = np.bincount(groups, minlength=len(centres)) > 0
        centres = np.where(held[:, None], _unit(sums), centres)
    return np.asarray(np.unique(groups, return_inverse=True)[1], dtype=np.intp)


def _spread(X: Vectors, count: int, rng: np.random.Generator) -> list[int]:
    """Return the rows to begin with: each next one drawn by its distance from those before (k-means++)."""
    chosen = [int(rng.integers(len(X)))]
    far = 1 - X @ X[chosen[0]]
    while len(chosen) < count:
        weights = np.maximum(far, 0)
        total = float(weights.sum())
        if total <= 1e-9:  # the rest are copies
            break
        chosen.append(int(rng.choice(len(X), p=weights / total)))
        far = np.minimum(far, 1 - X @ X[chosen[-1]])
    return chosen


def _unit(X: Vectors) -> Vectors:
    scaled: Vectors = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return scaled
