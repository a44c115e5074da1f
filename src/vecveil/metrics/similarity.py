"""Metrics of similarity: cosines of vectors, and their correlation before and after protection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its submodules load when they are first used: scipy.stats takes a second

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.metrics.estimates import Estimate, cluster_bootstrap, fisher_z, group_index, other_rows
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_same_length

FloatArray = npt.NDArray[np.float64]


def unit_rows(X: Embeddings) -> Embeddings:
    """Return the rows of ``X`` scaled to unit norm; a zero row stays zero (cosine 0 to all)."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    scaled: Embeddings = X / np.where(norms > 0, norms, 1)
    return scaled


def pair_cosines(left: Embeddings, right: Embeddings) -> FloatArray:
    """Return the cosine of row i of ``left`` and row i of ``right``, shape (N,)."""
    owner = "pair_cosines"
    left = check_embeddings(left, owner=owner, param="left")
    right = check_embeddings(right, owner=owner, param="right")
    check_same_length(owner, left=left, right=right)
    if left.shape[1] != right.shape[1]:
        text = f"{owner}: `left` has {left.shape[1]} dimensions and `right` {right.shape[1]}."
        raise InvalidInputError(text, param="right")
    # float64 sums: correlations near 1 depend on the last digits of a float32 cosine.
    cosines: FloatArray = np.einsum("ij,ij->i", unit_rows(left), unit_rows(right), dtype=np.float64)
    return cosines


def embedding_cosine(
    reference_vectors: Embeddings, hypothesis_vectors: Embeddings, groups: Any = None, *, seed: int = 0
) -> Estimate:
    """Return the mean cosine, in [-1, 1], of each text's vector and its reconstruction's.

    An encoder that the attacker did not use makes this an independent judge. Chance pairs each text
    with the reconstruction of another one; n counts texts.

    Args:
        reference_vectors: (N, n) embeddings of the true texts, N >= 1, of any norm; a row of
            zeros has cosine 0.
        hypothesis_vectors: (N, n) embeddings of the reconstructions by the same encoder.
    """
    owner = "embedding_cosine"
    truth = check_embeddings(reference_vectors, owner=owner, param="reference_vectors", min_rows=1)
    guess = check_embeddings(hypothesis_vectors, owner=owner, param="hypothesis_vectors")
    check_same_length(owner, hypothesis_vectors=guess, reference_vectors=truth)
    index, _ = group_index(groups, len(truth), owner=owner)
    cosines = np.clip(pair_cosines(truth, guess), -1.0, 1.0)
    # The bootstrap is for shares in [0, 1], such as (1 + cosine) / 2.
    low, high = cluster_bootstrap((1 + cosines) / 2, np.ones(len(cosines)), index, seed=seed)
    value = float(cosines.mean())
    swap = other_rows(index, len(truth), owner=owner, seed=seed)
    chance = None if swap is None else float(pair_cosines(truth, guess[swap]).mean())
    ends = min(2 * low - 1, value), max(2 * high - 1, value)
    return Estimate("cosine", value, *ends, len(cosines), chance)


def pearson(x: Any, y: Any) -> Estimate:
    """Return Pearson's correlation of ``x`` and ``y``, neither of them constant; n counts the pairs.

    The interval is Fisher's z, which treats the pairs as independent: pairs that share texts make
    it a little too narrow.
    """
    a, b = _check(x, y, owner="pearson")
    value = _correlation(a, b, owner="pearson")
    return Estimate("Pearson", value, *fisher_z(value, len(a)), len(a), 0.0)


def spearman(x: Any, y: Any) -> Estimate:
    """Return Spearman's rank correlation of ``x`` and ``y`` (ties by mid-ranks); n counts pairs.

    The interval is Fisher's z with the variance of Bonett and Wright (2000).
    """
    a, b = _check(x, y, owner="spearman")
    value = _correlation(scipy.stats.rankdata(a), scipy.stats.rankdata(b), owner="spearman")
    # Bonett and Wright's variance is Fisher's times 1 + ρ²/2.
    ends = fisher_z(value, len(a), variance_factor=1 + value**2 / 2)
    return Estimate("Spearman", value, *ends, len(a), 0.0)


def _correlation(a: FloatArray, b: FloatArray, *, owner: str) -> float:
    a, b = a - a.mean(), b - b.mean()
    product = float(np.linalg.norm(a) * np.linalg.norm(b))
    if product == 0.0:
        text = f"{owner}: `x` or `y` is constant, so that there is no correlation."
        raise InvalidInputError(text, code="E-INPUT-VALUES", param="x")
    # Rounding can leave [-1, 1], where Fisher's z is undefined.
    return float(np.clip(a @ b / product, -1.0, 1.0))


def _check(x: Any, y: Any, *, owner: str) -> tuple[FloatArray, FloatArray]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise wrong_shape(owner, "x", f"(N,) like `y`, which has {b.shape}, with N of at least 2", a.shape)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise not_finite(owner, "x", "values that are not finite (NaN or infinity) in `x` or `y`")
    return a, b
