"""Rows through a protector, block by block: before, noise, map, steps after; all that comes out is finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.mechanisms.base import BLOCK_ROWS, BLOCK_VALUES, not_finite
from vecveil.randomness import WordStream
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

if TYPE_CHECKING:
    from vecveil.protector.protector import Protector

__all__ = ["release_in_blocks"]


def release_in_blocks(
    protector: Protector, X: Embeddings, stream: WordStream | None, *, owner: str
) -> Embeddings:
    """Return the rows of ``X`` (N, n) protected: (N, m), same dtype.

    Args:
        X: of the right dtype and dimension, contiguous; it may hold NaN, which is refused here.
        stream: of the noise; None applies the deterministic part alone.

    Raises:
        InvalidInputError: a row that cannot be protected.
        ReleaseError: the result was not finite; nothing is returned.
    """
    released = np.empty((len(X), protector.released_dimension), dtype=X.dtype)
    plain = protector.map is None and not protector.after
    # Maps and steps work on float64 copies of a block: keep those small beside a batch.
    own = plain and protector.before.kind == "none"
    rows = BLOCK_ROWS if own else max(1, min(BLOCK_ROWS, BLOCK_VALUES // protector.dimension))
    for start in range(0, len(X), rows):
        stop = min(start + rows, len(X))
        part = None if stream is None else stream.part(start, stop)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # refused below
            try:
                ok = _release(protector, X[start:stop], part, released[start:stop], owner=owner)
            except InvalidInputError:
                check_embeddings(X, owner=owner, param="X")
                protector.mechanism.check_rows(
                    protector.before.apply(X, owner=owner)
                )  # with the row's number in X
                raise
        if not ok:
            raise not_finite(X, owner)
    return released


def _release(
    protector: Protector, X: Embeddings, stream: WordStream | None, out: Embeddings, *, owner: str
) -> bool:
    """Write the release of a block to ``out``; return whether all of it is finite."""
    try:
        x = protector.before.apply(X, owner=owner)
    except InvalidInputError:
        check_embeddings(X, owner=owner, param="X")
        raise
    plain = protector.map is None and not protector.after
    y = out if plain else np.empty_like(x)
    if stream is None:
        y[:] = protector.mechanism.without_noise(x)
    elif not protector.mechanism.release_block(x, stream, y):
        return False
    if plain:
        return True
    if protector.map is not None:
        y = protector.map.apply(y, reduced=protector.output == "reduced")
    for step in protector.after:
        y = step.apply(y)
    out[:] = y
    return bool(np.isfinite(y.sum(dtype=np.float64)) or np.isfinite(y).all())
