"""Batches of texts of equal length, so that no time goes into padding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["plan_batches"]


def plan_batches(
    lengths: npt.NDArray[np.int64], *, max_tokens: int, max_texts: int, min_tokens: int
) -> list[npt.NDArray[np.int64]]:
    """Return the rows of each batch, longest texts first; every row stands in exactly one batch.

    A batch holds texts of one length, hence no padding and no attention mask, unless that leaves it
    under ``min_tokens``: then shorter texts join.

    Args:
        lengths: tokens per text, shape (N,).
        max_tokens: rows times the longest length of a batch stays at or below this (one text always
            fits).
        max_texts: at most so many texts in a batch.
        min_tokens: batches smaller than this are filled up. 0 never pads; larger pads more and
            calls the model less often.
    """
    order = np.argsort(-lengths, kind="stable").astype(np.int64)
    batches = []
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        room = start + max(1, min(max_texts, max_tokens // longest))
        end = start + 1
        while end < min(room, len(order)):
            if lengths[order[end]] != longest and (end - start) * longest >= min_tokens:
                break
            end += 1
        batches.append(order[start:end])
        start = end
    return batches
