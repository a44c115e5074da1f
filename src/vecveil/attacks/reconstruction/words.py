"""A start that knows words: what a linear reading of the vectors says of each token, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import logsumexp

from vecveil.attacks.reconstruction.tokenisers import Ids
from vecveil.runtime import import_torch

__all__ = ["start_from_words"]

_FLOOR = 0.02  # added to the variances, which are about 1: dead directions must not be blown up
_SHRINK = 10.0  # texts that a token's mean is drawn to zero with
_STEADY = 200.0  # texts from which a token counts fully when directions are chosen
_NORM = 0.3  # mean norm of a token's row, that of a fresh embedding
_GAINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_JUDGED = 1000  # texts that the gain is chosen on


def start_from_words(
    decoder: Any, x: npt.NDArray[Any], ids: Sequence[Ids], gain: float = 0.2
) -> None:
    """Start the tokens' rows and the hint from the mean vector of each token's texts.

    With whitened inputs z and the mean c_v of z over the texts that hold token v, c_v · z is the linear
    discriminant of v (equal covariances). The leading directions of the c_v, as many as the decoder is wide, are
    added to the tokens' rows, and the hint is set such that their product is the discriminant times a gain: the
    one under which the words of the texts are likeliest.
    """
    torch = import_torch()
    lm = decoder.module["lm"]
    covariance = x.T.astype(np.float64) @ x / len(x) + _FLOOR * np.eye(x.shape[1])
    values, vectors = np.linalg.eigh(covariance)
    whiten = (vectors / np.sqrt(values)) @ vectors.T
    held = [np.unique(row) for row in ids]
    bounds = np.concatenate([[0], np.cumsum([len(row) for row in held])])
    tokens = np.concatenate(held)
    size = (len(ids), decoder.tokeniser.size)
    holds = csr_array((np.ones(len(tokens), np.float32), tokens, bounds), shape=size)
    counts = np.asarray(holds.sum(axis=0)).reshape(-1)
    means = (holds.T @ (x @ whiten.astype(np.float32))) / (counts + _SHRINK)[:, None]
    weight = np.sqrt(np.minimum(counts, _STEADY))[:, None]
    axes = np.linalg.svd(means * weight, full_matrices=False)[2][: lm.config.n_embd].T
    rows = np.zeros((size[1], lm.config.n_embd))
    rows[:, : axes.shape[1]] = means @ axes
    seen = counts > 0
    scale = _NORM / max(float(np.linalg.norm(rows[seen], axis=1).mean()), 1e-12)
    hint = np.zeros((lm.config.n_embd, x.shape[1]))
    hint[: axes.shape[1]] = (whiten @ axes).T
    part = slice(0, _JUDGED)
    scores = (x[part] @ hint.T.astype(np.float32)) @ rows.T.astype(np.float32)
    gain = _best_gain(scores, np.log(counts + 1.0), holds[part])
    with torch.no_grad():
        table = lm.transformer.wte.weight
        table.mul_(0.5).add_(torch.from_numpy((scale * rows).astype(np.float32)))
        decoder.module["hint"].weight.copy_(
            torch.from_numpy((gain / scale * hint).astype(np.float32))
        )


def _best_gain(scores: npt.NDArray[Any], prior: npt.NDArray[Any], holds: Any) -> float:
    """Return the gain with the least cross-entropy of the held words under softmax(prior + gain * scores)."""
    losses = []
    for gain in _GAINS:
        logits = prior + gain * scores
        logits -= logsumexp(logits, axis=1, keepdims=True)
        losses.append(-float((holds * logits).sum()))
    return _GAINS[int(np.argmin(losses))]
