"""Made-up vectors whose leak is known."""

from __future__ import annotations

import numpy as np

from vecveil.auditing.attacks import LabelledVectors


def planted(
    rows: int = 400, tokens: int = 6, dimension: int = 12, *, seed: int = 0, strength: float = 1.5
) -> LabelledVectors:
    """Return texts that hold one token each, with a direction per token in the vectors."""
    rng = np.random.default_rng(seed)
    which = rng.integers(tokens, size=rows)
    directions = np.linalg.qr(np.random.default_rng(99).standard_normal((dimension, dimension)))[0]
    X = strength * directions[which] + rng.standard_normal((rows, dimension)) / np.sqrt(dimension)
    return LabelledVectors(X.astype(np.float32), np.eye(tokens, dtype=np.uint8)[which])


def parity(rows: int = 800, *, seed: int = 0, noise: float = 0.15) -> LabelledVectors:
    """Return texts whose token is the parity of two signs: no linear attack can see it."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(rows, 2))
    which = (signs[:, 0] * signs[:, 1] > 0).astype(int)
    X = np.concatenate([signs, np.zeros((rows, 2))], axis=1)
    X += noise * rng.standard_normal(X.shape)
    return LabelledVectors(X, np.eye(2, dtype=np.uint8)[which])


def noisy(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the vectors with a little noise: a release that hides nothing."""
    return X + 0.3 * rng.standard_normal(X.shape).astype(X.dtype)


def released(data: LabelledVectors, seed: int = 7) -> LabelledVectors:
    """Return the texts with one noisy release of their vectors."""
    return LabelledVectors(noisy(data.X, np.random.default_rng(seed)), data.L, data.groups)
