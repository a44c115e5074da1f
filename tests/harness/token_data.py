"""Synthetic embeddings with the structure that protectors are made for: topics, tokens, noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TokenData:
    """Unit embeddings with and without the concept, token labels, ordinary texts."""

    positive: Array
    negative: Array
    labels: Array
    background: Array

    def arguments(self) -> tuple[Array, Array, Array, Array]:
        """Return the arguments of `vecveil.fit_pairs`."""
        return self.positive, self.negative, self.labels, self.background


def token_data(rows: int = 400, n: int = 32, tokens: int = 6, *, seed: int = 0, dtype: Any = np.float32) -> TokenData:
    """Return embeddings in which each concept token adds a direction of its own to a topic."""
    rng = np.random.default_rng(seed)
    topics, directions = rng.standard_normal((12, n)), rng.standard_normal((tokens, n))
    base = 1.2 * topics[rng.integers(0, 12, 2 * rows)] + 0.4 * rng.standard_normal((2 * rows, n))
    labels = (rng.random((rows, tokens)) < 0.15).astype(np.uint8)
    labels[np.arange(rows), rng.integers(0, tokens, rows)] = 1
    positive = base[:rows] + 0.8 * labels @ directions + 0.1 * rng.standard_normal((rows, n))

    def unit(X: Array) -> Array:
        return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)

    return TokenData(unit(positive), unit(base[:rows]), labels, unit(base[rows:]))
