"""How far each dimension moves when the concept is removed: the sensitivity of SPARSE's Definition 7.

The largest difference is taken over pairs, which differ in the concept alone, or over D+ × D-, as
the definition prints it, where two texts differ in everything else as well. One extreme text decides
a maximum, so it says more about outliers than a mean does.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.closed_forms import relative_diagonal
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, Vector
from vecveil.validation import check_embeddings

__all__ = ["Over", "difference_sensitivity", "difference_shape"]

Over = Literal["pairs", "sets"]


def difference_sensitivity(
    positive: Embeddings, negative: Embeddings, *, over: Over = "pairs"
) -> Vector:
    """Return Δ (n,): the largest |Φ(s⁺)_i − Φ(s⁻)_i| in each dimension i (SPARSE, Definition 7).

    Args:
        positive: (N, n) embeddings with the concept, D+.
        negative: embeddings without it, D-. Row i is positive row i without the concept, unless
            ``over`` is "sets", where it may have any number of rows.
        over: "pairs" takes the maximum over the pairs. "sets" takes it over all of D+ × D-: it is
            never smaller, and grows with how varied the texts are, with or without a concept.

    Cost: N n operations both ways; over the sets it is the larger of max D+ − min D- and
    max D- − min D+.
    """
    owner = "difference_sensitivity"
    P = check_embeddings(positive, owner=owner, param="positive", min_rows=1)
    N = check_embeddings(negative, owner=owner, param="negative", dimension=P.shape[1], min_rows=1)
    if over == "sets":
        highest, lowest = (np.stack([f(X, axis=0) for X in (P, N)]) for f in (np.max, np.min))
        spans = (highest - lowest[::-1].astype(np.float64)).max(axis=0)
        return np.asarray(spans, dtype=np.float64)
    if over != "pairs":
        raise InvalidInputError.of(owner, "over", "'pairs' or 'sets'", repr(over)[:40])
    if len(P) != len(N):
        raise InvalidInputError.of(owner, "negative", f"of {len(P)} rows, one for each positive",
                                   f"{len(N)} rows",
                                   fix="Over D+ × D-, with over='sets', the numbers may differ.")  # fmt: skip
    return np.asarray(np.abs(P.astype(np.float64) - N).max(axis=0), dtype=np.float64)


def difference_shape(
    positive: Embeddings, negative: Embeddings, *, over: Over = "pairs", floor: float = 1e-2
) -> NoiseShape:
    """Return the diagonal shape Σ_ii ∝ Δ_i, with ``floor`` times the mean of Δ added to each.

    Args:
        positive, negative, over: as in `difference_sensitivity`.
        floor: a privacy parameter: λ_min(Σ) is at least floor/(1 + floor), and the guarantee against
            Euclidean neighbours ε/√λ_min(Σ).
    """
    return relative_diagonal(
        difference_sensitivity(positive, negative, over=over),
        floor=floor,
        owner="difference_shape",
        param="negative",
        why="Removing the concept changed no embedding.",
    )
