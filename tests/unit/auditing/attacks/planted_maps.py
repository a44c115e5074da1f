"""Made-up vectors behind a secret map of their space."""

from __future__ import annotations

import numpy as np

from vecveil.auditing.attacks import CandidateVectors, PairedVectors


def rotation(dimension: int, *, seed: int = 0) -> np.ndarray:
    """Return a random orthogonal matrix."""
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]


def permutation(dimension: int, *, seed: int = 0, signs: bool = False) -> np.ndarray:
    """Return a random order of the coordinates as a matrix, with random signs or without."""
    rng = np.random.default_rng(seed)
    made = np.eye(dimension)[rng.permutation(dimension)]
    return made * rng.choice([-1.0, 1.0], dimension) if signs else made


def clean_rows(rows: int, dimension: int, *, seed: int = 0) -> np.ndarray:
    """Return unit rows off the origin, with unequal variances."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, dimension)) * np.linspace(1.0, 0.5, dimension) + 0.3
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def evidence(
    secret: np.ndarray, *, known: int = 60, stored: int = 150, noise: float = 0.0, seed: int = 0
) -> tuple[PairedVectors, CandidateVectors]:
    """Return known pairs and a store behind ``secret`` (n, m), with noise of the given norm."""
    n, m = secret.shape
    X = clean_rows(known + stored, n, seed=seed)
    drawn = np.random.default_rng(seed + 1).standard_normal((len(X), m))
    Y = X @ secret + noise * drawn / np.sqrt(m)
    pairs = PairedVectors(Y[:known], X[:known])
    return pairs, CandidateVectors(Y[known:], X[known:], np.arange(stored))


def clustered(rows: int, dimension: int, *, seed: int = 0, clusters: int = 12) -> np.ndarray:
    """Return rows of a lopsided mixture of clusters: two draws of it can be told to be of one kind."""
    rng = np.random.default_rng(99)
    centres = rng.standard_normal((clusters, dimension)) * np.linspace(2.0, 0.3, dimension)
    shares = np.linspace(1, 4, clusters)
    rng = np.random.default_rng(seed)
    which = rng.choice(clusters, size=rows, p=shares / shares.sum())
    return centres[which] + 0.3 * rng.standard_normal((rows, dimension))
