"""Warnings that need no attack: texts beside their vectors, and vectors that are not protected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vecveil.records.verdict import UNPROTECTED
from vecveil.types import Embeddings

_WORDS = 3.0  # a column whose values have fewer words on average holds names or codes, not texts
_CLEAN = 0.999  # median cosine to the encoder's vectors: rounding to half precision stays above it


def plaintext_beside(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, str]]:
    """Return a warning for each column of texts; ``columns`` holds some values of each column by name."""
    warnings = []
    for name, values in columns.items():
        texts = [value for value in values if isinstance(value, str) and value.strip()]
        # A column that is mostly empty or numeric, with a stray note, is no column of texts.
        if not texts or 2 * len(texts) < len(values):
            continue
        if sum(len(text.split()) for text in texts) / len(texts) >= _WORDS:
            message = (
                f"Column {name!r} holds texts beside the vectors ({len(texts)} of the {len(values)} rows that were "
                "looked at): whoever has this store needs no attack."
            )
            warnings.append({"code": "plaintext-beside-vectors", "message": message})
    return warnings


def clean_vectors(vectors: Embeddings, clean: Embeddings | None) -> list[dict[str, str]]:
    """Return a warning if the vectors of a store are those of the encoder, unprotected."""
    if clean is None or clean.shape != vectors.shape:
        return []
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(clean, axis=1)
    # Cosines ignore length: a store that normalises its vectors is no better protected. `tiny` keeps 0/0 out.
    cosines = (vectors * clean).sum(axis=1) / np.maximum(norms, np.finfo(np.float32).tiny)
    # The median, as a store may hold a few vectors of texts that were edited since.
    if float(np.median(cosines)) < _CLEAN:
        return []
    message = "These are the encoder's own vectors: nothing protects them."
    return [{"code": UNPROTECTED, "message": message}]
