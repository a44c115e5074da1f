"""Two classes of vectors that a PII classifier can tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecveil.privacy.textcrafter import HeldOutFigures, PiiClassifier


def unit(X: Any) -> Any:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def planted(seed: int, positive: int = 300, plain: int = 300, n: int = 16, shift: float = 4.0) -> Any:
    """Return two clouds of unit vectors, the first drawn towards the first axis."""
    rng = np.random.default_rng(seed)
    P, Q = rng.standard_normal((positive, n)), rng.standard_normal((plain, n))
    P[:, 0] += shift
    return unit(P), unit(Q)


def figures(classifier: PiiClassifier) -> HeldOutFigures:
    assert classifier.held_out is not None
    return classifier.held_out
