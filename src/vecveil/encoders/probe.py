"""Whether two encoders are one, told from the vectors alone: for encoders behind an API, which show no weights.

The cosines between the vectors of a dozen fixed sentences are the same for one model on any machine, in any precision
and under any rotation or scale of its output, and differ between models. They say nothing of the user's texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecveil.encoders.protocol import checked_vectors

__all__ = ["PROBE_SENTENCES", "PROBE_TOLERANCE", "probe_cosines", "probe_distance"]

PROBE_SENTENCES = (
    "A dog sleeps in the sun.",
    "A cat is lying on the warm grass.",
    "The bank raised its interest rates again.",
    "He sat down on the bank of the river.",
    "Two men are playing chess in the park.",
    "The patient was given ten milligrams a day.",
    "Please send me the report before Friday.",
    "The train to Vienna leaves at noon.",
    "She does not like the new film at all.",
    "She likes the new film very much.",
    "Water boils at one hundred degrees.",
    "How do I reset my password?",
)

PROBE_TOLERANCE = 0.02
"""Largest root mean square difference of cosines that one model shows between precisions and servers."""


def probe_cosines(encode: Callable[[Sequence[str]], Any], *, owner: str) -> tuple[float, ...]:
    """Return the cosines of all pairs of the probe sentences, rounded to four digits.

    Args:
        encode: called once, with a list of the sentences.

    Raises:
        InvalidInputError: what it returned are no vectors of as many texts.
    """
    texts = list(PROBE_SENTENCES)
    X = checked_vectors(encode(texts), rows=len(texts), owner=owner).astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X / np.where(norms > 0, norms, 1.0)
    upper = np.triu_indices(len(X), k=1)
    return tuple(round(float(value), 4) for value in (X @ X.T)[upper])


def probe_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the root mean square difference of two probes; infinite if they are not comparable."""
    if len(one) != len(other):
        return float("inf")
    return float(np.sqrt(np.mean((np.asarray(one) - np.asarray(other)) ** 2)))
