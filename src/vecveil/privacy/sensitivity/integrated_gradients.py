"""White-box sensitivity: dimensions that an attack model relies on, by integrated gradients (SPARSE-WB).

A defender who has the attack model attributes its guess of a sensitive token to dimensions of the embedding, which
shape the noise instead of the learnt mask (SPARSE, arXiv 2602.07090, §4.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import
from vecveil.privacy.sensitivity.shapes import NoiseShape
from vecveil.runtime import import_torch, progress
from vecveil.types import Embeddings, TokenLabels, Vector

if TYPE_CHECKING:
    import torch

BATCH = 4096
"""Points per pass through the model."""
PAIRS = 8192
"""Maximum number of pairs of text and token whose attributions are in memory at once."""


def integrated_gradients(
    model: torch.nn.Module, X: Embeddings, targets: npt.NDArray[np.integer[Any]], *, steps: int = 50
) -> npt.NDArray[np.float64]:
    """Return the attribution of one output of ``model`` per row to each dimension, (N, n) float64.

    IG_i(x) = x_i ∫₀¹ ∂f(αx)/∂x_i dα (Sundararajan et al. 2017, Eq. 1, with the baseline 0), by Gauss-Legendre
    quadrature in ``steps`` points. A row's attributions add up to f(x) − f(0).

    Args:
        model: a network in evaluation mode, from (N, n) to (N, V).
        targets: (N,) integers in [0, V), the output to explain for each row of ``X`` (N, n).
    """
    torch = import_torch("Integrated gradients")
    with optional_import("Integrated gradients", "captum", "attacks"):
        from captum.attr import IntegratedGradients
    like, explain, rows = next(model.parameters()), IntegratedGradients(model), max(1, BATCH // steps)
    attributions = np.empty(X.shape, dtype=np.float64)
    with torch.enable_grad():
        for i in range(0, len(X), rows):
            part = explain.attribute(
                torch.as_tensor(X[i : i + rows]).to(like),
                baselines=like.new_zeros(1, X.shape[1]),
                target=torch.as_tensor(targets[i : i + rows].astype(np.int64), device=like.device),
                n_steps=steps,
                # captum has to split only a row whose points exceed a batch.
                internal_batch_size=BATCH if steps > BATCH else None,
            )
            attributions[i : i + rows] = part.detach().double().cpu().numpy()
    return attributions


def white_box_sensitivity(
    model: torch.nn.Module, X: Embeddings, labels: TokenLabels, *, steps: int = 50, show_progress: bool | None = None
) -> Vector:
    """Return the weight of each dimension for a model that guesses sensitive tokens, (n,).

    The weight is the mean of |IG_i| over all pairs of a text and a sensitive token in it, marked by ``labels`` (N, V)
    0/1 (SPARSE §4.5 names no average).

    Cost: one forward and one backward pass per pair and step.
    """
    texts, tokens = np.nonzero(labels)
    total = np.zeros(X.shape[1])
    starts = range(0, texts.size, PAIRS)
    for i in progress(starts, "White-box sensitivity", total=len(starts), show=show_progress):
        block = slice(i, i + PAIRS)
        total += np.abs(integrated_gradients(model, X[texts[block]], tokens[block], steps=steps)).sum(axis=0)
    return np.asarray(total / texts.size, dtype=np.float64)


def white_box_shape(weights: Vector, *, floor: float = 1e-6) -> NoiseShape:
    """Return the diagonal shape of SPARSE-WB: Σ = diag(a/max(a) + floor), a the `white_box_sensitivity`.

    The division gives it the range of the mask (SPARSE prints no scale). The published ``floor`` leaves dimensions that
    this model ignores almost bare to any other model.
    """
    if not np.isfinite(weights).all() or not weights.any():
        raise InvalidInputError("The classifier's gradients are zero or not finite: it learnt nothing.", param="method")
    return NoiseShape.from_diagonal(weights / weights.max(), floor=floor)
