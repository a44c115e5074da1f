"""Add Gaussian noise of one standard deviation to every coordinate: the template of a submitted method.

``vecveil experiment run benchmark --method research/submissions/isotropic.py --data DIR --out OUT`` measures it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.floating[Any]]


def fit(positive: Rows, negative: Rows, background: Rows, labels: Rows, *, seed: int) -> Any:
    """Return what `protect` needs.

    Args:
        positive: (N, n) vectors of texts that hold listed words of the concept.
        negative: (N, n) vectors of the same texts without these words.
        background: (K, n) vectors of texts without a listed word.
        labels: (N, V) 0/1, the listed words that each text holds.
    """
    return float(np.sqrt((positive.astype(float) ** 2).sum(axis=1).mean() / positive.shape[1]))


def protect(state: Any, X: Rows, *, strength: float, rng: np.random.Generator) -> Rows:
    """Return the released vectors, (N, m), of clean vectors (N, n).

    The benchmark searches the ``strength``, a positive number, that keeps 98, 95 and 90 % of the similarity.
    """
    noise = rng.standard_normal(X.shape) * (strength * state)
    released: Rows = (X + noise).astype(X.dtype)
    return released


def guarantee(state: Any, *, strength: float) -> str:
    """Return what is promised, in a few words, or ``none``."""
    return "metric DP, Gaussian"
