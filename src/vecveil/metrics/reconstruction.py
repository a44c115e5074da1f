"""How near a reconstruction comes: the cosine of its embedding, and the sensitive tokens in it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.metrics.estimate import Estimate
from vecveil.metrics.intervals import cluster_bootstrap, group_index
from vecveil.metrics.permutation import other_rows
from vecveil.metrics.similarity import pair_cosines
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_same_length

__all__ = ["embedding_cosine", "reconstruction_leakage"]


def embedding_cosine(
    reference_vectors: Embeddings,
    hypothesis_vectors: Embeddings,
    groups: Any = None,
    *,
    seed: int = 0,
) -> Estimate:
    """Return the mean cosine, in [-1, 1], of each text's vector and its reconstruction's.

    An encoder that the attacker did not use makes this an independent judge. Chance pairs each text
    with the reconstruction of another one; n counts texts.

    Args:
        reference_vectors: (N, n) embeddings of the true texts, N >= 1, of any norm; a row of
            zeros has cosine 0.
        hypothesis_vectors: (N, n) embeddings of the reconstructions by the same encoder.
        groups: (N,) text groups for interval and chance; None if every text stands alone.
        seed: Seed of the bootstrap and of the permutation.
    """
    owner = "embedding_cosine"
    truth = check_embeddings(reference_vectors, owner=owner, param="reference_vectors", min_rows=1)
    guess = check_embeddings(hypothesis_vectors, owner=owner, param="hypothesis_vectors")
    check_same_length(owner, hypothesis_vectors=guess, reference_vectors=truth)
    index, _ = group_index(groups, len(truth), owner=owner)
    cosines = np.clip(pair_cosines(truth, guess), -1.0, 1.0)
    # The bootstrap is for shares in [0, 1], which (1 + cosine) / 2 is.
    low, high = cluster_bootstrap((1 + cosines) / 2, np.ones(len(cosines)), index, seed=seed)
    value = float(cosines.mean())
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    chance = None if swap is None else float(pair_cosines(truth, guess[swap]).mean())
    return Estimate(
        "cosine", value, min(2 * low - 1, value), max(2 * high - 1, value), len(cosines), chance
    )


def reconstruction_leakage(
    token_sets_true: Sequence[Iterable[Hashable]],
    token_sets_reconstructed: Sequence[Iterable[Hashable]],
    groups: Any = None,
    *,
    seed: int = 0,
) -> Estimate:
    """Return the share of sensitive token instances that occur in their text's reconstruction.

    Formula: SPARSE Eq. 13; a token counts once for each text that holds it, and n is their sum.
    Chance looks for a text's tokens in the reconstruction of another text.

    Args:
        token_sets_true: For each text its sensitive tokens; at least one text holds one.
        token_sets_reconstructed: For each text the tokens of its reconstruction, normalised alike.
        groups: (N,) text groups for interval and chance; None if every text stands alone.
        seed: Seed of the bootstrap and of the permutation.
    """
    owner = "reconstruction_leakage"
    truth = _check_sets(token_sets_true, owner=owner, param="token_sets_true")
    guess = _check_sets(token_sets_reconstructed, owner=owner, param="token_sets_reconstructed")
    check_same_length(owner, token_sets_reconstructed=guess, token_sets_true=truth)
    index, _ = group_index(groups, len(truth), owner=owner)
    held = np.array([len(tokens) for tokens in truth], dtype=np.float64)
    total = int(held.sum())
    if total == 0:
        raise InvalidInputError.of(owner, "token_sets_true", "non-empty for at least one text", "no token",
                                   "Where no text holds a token there is nothing to find.")  # fmt: skip
    found = np.array([len(t & g) for t, g in zip(truth, guess, strict=True)], dtype=np.float64)
    low, high = cluster_bootstrap(found, held, index, seed=seed)
    chance = None
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    if swap is not None:
        chance = sum(len(truth[i] & guess[j]) for i, j in enumerate(swap)) / total
    return Estimate("Leakage", float(found.sum()) / total, low, high, total, chance)


def _check_sets(value: Any, *, owner: str, param: str) -> list[frozenset[Hashable]]:
    constraint = "one set of tokens for each text"
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise InvalidInputError.of(owner, param, constraint, type(value).__name__)
    sets = []
    for i, tokens in enumerate(value):
        if isinstance(tokens, str | bytes) or not hasattr(tokens, "__iter__"):
            got = f"{type(tokens).__name__} at position {i}"
            raise InvalidInputError.of(
                owner, param, constraint, got, fix="Split the text into its tokens first."
            )
        sets.append(frozenset(tokens))
    return sets
