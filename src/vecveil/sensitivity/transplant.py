"""Made-up texts for a fit: the difference that the concept makes in one text, moved to another.

Φ(t⁻) + Φ(s⁺) − Φ(s⁻), at the norm of Φ(s⁺), stands for a text that says t about the concept words of s. Texts
hold each word in few contexts; an erasure fitted on those few leaves what the word does in others, and an
attacker who makes up texts in this way finds it (`vecveil.attacks.TransplantAttack`). Fitted on made-up texts as
well, it erases that too: on texts made from templates, where words and contexts combine freely. On natural
sentences, where they do not, it erases less of what matters, so it is not the default.
"""

from __future__ import annotations

import numpy as np

from vecveil.sensitivity.moments import Moments
from vecveil.types import Embeddings, TokenLabels

__all__ = ["transplanted", "transplanted_moments"]

ENOUGH = 8000
MOST_COPIES = 8


def transplanted(
    positive: Embeddings, negative: Embeddings, labels: TokenLabels | None, *, seed: int
) -> tuple[Embeddings, Embeddings, TokenLabels | None]:
    """Return the pairs and labels with made-up ones after them, each pair the source of equally many.

    Made-up rows number ``ENOUGH`` less the real ones, but at least as many as those and at most
    ``MOST_COPIES`` times.
    """
    rows = len(positive)
    copies = int(np.clip(-(-(ENOUGH - rows) // rows), 1, MOST_COPIES))
    rng = np.random.default_rng(seed)
    source = np.tile(np.arange(rows), copies)
    target = np.concatenate([rng.permutation(rows) for _ in range(copies)])
    moved = negative[target] + (positive[source] - negative[source])
    length = np.maximum(np.linalg.norm(moved, axis=1), 1e-12)
    moved *= (np.linalg.norm(positive[source], axis=1) / length)[:, None]
    made = np.concatenate([positive, moved.astype(positive.dtype)])
    rest = np.concatenate([negative, negative[target]])
    return made, rest, None if labels is None else np.concatenate([labels, labels[source]])


def transplanted_moments(
    positive: Embeddings,
    negative: Embeddings,
    labels: TokenLabels | None,
    background: Embeddings | None,
    *,
    seed: int,
) -> Moments:
    """Return the moments of real and made-up texts together; arguments as in `Moments.of`."""
    made, rest, marks = transplanted(positive, negative, labels, seed=seed)
    ordinary = negative if background is None else background
    return Moments.of(made, rest, token_labels=marks, background=ordinary)
