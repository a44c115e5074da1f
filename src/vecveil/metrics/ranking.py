"""Metrics of search: recall of nearest neighbours, and nDCG of relevant documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from vecveil.errors import InvalidInputError, not_finite, wrong_shape
from vecveil.metrics.estimates import Estimate, group_index, share_estimate
from vecveil.metrics.similarity import unit_rows
from vecveil.metrics.token_inference import top_credit
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings, check_same_length

FloatArray = npt.NDArray[np.float64]

_BLOCK = 4_000_000  # similarities held at once
_SAME = 1e-6  # cosines closer than this count as equal


def neighbour_recall(
    clean: Embeddings,
    protected: Embeddings,
    *,
    k: int = 10,
    queries: Embeddings | None = None,
    sample: int | None = None,
    groups: Any = None,
    seed: int = 0,
) -> Estimate:
    """Return the share of each text's ``k`` nearest neighbours that protection keeps (cosine).

    Every text queries all others. A retrieved text counts if it is, on clean vectors, at least as
    near as the k-th neighbour, so exact ties are no errors; ties among protected vectors are shared
    out, so constant vectors score chance. n counts the queries.

    Args:
        k: Neighbours per text, less than N.
        queries: (N, m) protected queries, for example by the map without noise;
            None queries with ``protected`` itself (noise on both sides).
        sample: Query only so many texts, drawn at random; None queries with all. Time grows with
            sample × N; memory stays within a few hundred MB unless most texts are equal.
        groups: (N,) text groups for the interval.
    """
    owner = "neighbour_recall"
    protected = check_embeddings(protected, owner=owner, param="protected")
    queries = protected if queries is None else check_embeddings(queries, owner=owner, param="queries")
    check_same_length(owner, clean=clean, protected=protected, queries=queries)
    if queries.shape[1] != protected.shape[1]:
        dimensions = f"{queries.shape[1]} dimensions, the protected rows {protected.shape[1]}"
        raise InvalidInputError(f"{owner}: `queries` have {dimensions}.", param="queries")
    near = NearRows.of(clean, k=k, sample=sample, seed=seed)
    kept = near.shares_kept(protected, queries)
    index, _ = group_index(groups, len(clean), owner=owner)
    chance = k / (len(clean) - 1)
    return share_estimate(f"recall@{k}", kept, groups=index[near.queries], chance=chance, seed=seed)


class NearRows(NamedTuple):
    """The ``k`` nearest clean rows of each query of `neighbour_recall`; a search for a scale finds them once.

    ``queries`` are rows of the ``rows`` clean ones; entry i of ``pairs`` is a place in ``queries`` and a near row.
    """

    k: int
    rows: int
    queries: npt.NDArray[np.intp]
    pairs: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

    @classmethod
    def of(cls, clean: Embeddings, *, k: int, sample: int | None = None, seed: int = 0) -> NearRows:
        """Return the nearest rows by cosine, with those as near as the k-th."""
        owner = "neighbour_recall"
        clean = unit_rows(check_embeddings(clean, owner=owner, param="clean", min_rows=2))
        rows = len(clean)
        k = check_count(k, owner=owner, param="k", maximum=rows - 1)
        chosen = np.arange(rows)
        if sample is not None and check_count(sample, owner=owner, param="sample") < rows:
            chosen = np.sort(np.random.default_rng(seed).choice(rows, size=sample, replace=False))
        pairs = []
        for start, block in _blocks(chosen, rows):
            near = clean[block] @ clean.T
            near[np.arange(len(block)), block] = -np.inf  # a text is not its own neighbour
            kth = np.partition(near, rows - k, axis=1)[:, rows - k, None]
            places, columns = np.nonzero(near >= kth - _SAME)
            pairs.append((start + places, columns))
        first, second = zip(*pairs, strict=True)
        return cls(k, rows, chosen, (np.concatenate(first), np.concatenate(second)))

    def shares_kept(self, protected: Embeddings, queries: Embeddings | None = None) -> FloatArray:
        """Return the share of its near rows that each query keeps; arguments of `neighbour_recall`, unchecked."""
        queries = protected if queries is None else queries
        places, near = self.pairs
        protected, queries = unit_rows(protected), unit_rows(queries[self.queries])
        credit = np.empty(len(near))
        for start, block in _blocks(self.queries, self.rows):
            got = (queries[start : start + len(block)] @ protected.T).astype(np.float64)  # ties are compared exactly
            got[np.arange(len(block)), block] = -np.inf
            part = slice(*np.searchsorted(places, [start, start + len(block)]))
            credit[part] = top_credit(got, np.full(len(block), self.k))[places[part] - start, near[part]]
        return np.bincount(places, weights=credit, minlength=len(self.queries)) / self.k


def _blocks(chosen: npt.NDArray[np.intp], rows: int) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the start and the rows of blocks of ``chosen`` whose similarities with all rows fit in memory."""
    step = max(1, _BLOCK // (2 * rows))
    for start in range(0, len(chosen), step):
        yield start, chosen[start : start + step]


def ndcg_of_scores(scores: Any, relevance: Any, *, k: int = 10) -> FloatArray:
    """Return nDCG@k of each query, shape (Q,); NaN for a query without a relevant document.

    Formula: sum over the k best of gain / log2(rank + 1), over the same for the ideal order; the
    gain is the relevance itself (Järvelin and Kekäläinen 2002, as trec_eval computes it). Equal
    scores share their ranks' discounts (McSherry and Najork 2008), so constant scores earn the average
    of random orders.

    Args:
        scores: (Q, D) a score for each document.
        relevance: (Q, D) at least 0; an array or a SciPy sparse array.
    """
    k = check_count(k, owner="ndcg_of_scores", param="k")
    s, gains = _check(scores, relevance, owner="ndcg_of_scores")
    values = np.full(len(s), np.nan)
    for query, row in enumerate(s):
        part = slice(gains.indptr[query], gains.indptr[query + 1])
        gain, documents = gains.data[part], gains.indices[part]
        # Ideal order: the largest gains first.
        ideal = float(np.sort(gain)[::-1][:k] @ rank_discounts(k)[: min(k, gain.size)])
        if ideal > 0:
            values[query] = _dcg(row, gain, documents, k) / ideal
    return values


def retrieval_ndcg(
    queries: Embeddings, documents: Embeddings, relevance: Any, *, k: int = 10, seed: int = 0
) -> Estimate:
    """Return mean nDCG@k of ranking ``documents``, (D, n), by cosine to ``queries``, (Q, n).

    n counts the queries with a relevant document, which the interval resamples. ``relevance`` is (Q, D) and at
    least 0; a SciPy sparse array keeps memory small.
    """
    owner = "retrieval_ndcg"
    queries = unit_rows(check_embeddings(queries, owner=owner, param="queries", min_rows=1))
    documents = unit_rows(check_embeddings(documents, owner=owner, param="documents", min_rows=1))
    gains = csr_array(relevance, dtype=np.float64)
    expected = (len(queries), len(documents))
    if queries.shape[1] != documents.shape[1] or gains.shape != expected:
        shapes = f"{gains.shape}, `queries` {queries.shape} and `documents` {documents.shape}"
        text = f"{owner}: the shapes differ: `relevance` {shapes}."
        raise InvalidInputError(text, code="E-INPUT-SHAPE", param="relevance")
    # Blocks of queries: the Q × D cosines are never held at once.
    step = max(1, _BLOCK // len(documents))
    starts = range(0, len(queries), step)
    values = [ndcg_of_scores(queries[i : i + step] @ documents.T, gains[i : i + step], k=k) for i in starts]
    relevant = np.concatenate(values)
    relevant = relevant[np.isfinite(relevant)]
    if relevant.size == 0:
        raise InvalidInputError(f"{owner}: `relevance` names no relevant document.", param="relevance")
    return share_estimate(f"nDCG@{k}", relevant, seed=seed)


def _check(scores: Any, relevance: Any, *, owner: str) -> tuple[FloatArray, csr_array[Any]]:
    s = np.asarray(scores, dtype=np.float64)
    gains = csr_array(relevance, dtype=np.float64)
    if s.ndim != 2 or s.shape != gains.shape or s.shape[1] == 0:
        expected = f"(Q, D) like `relevance`, which has {gains.shape}, with D of at least 1"
        raise wrong_shape(owner, "scores", expected, s.shape)
    if not np.isfinite(s).all():
        raise not_finite(owner, "scores")
    if not np.isfinite(gains.data).all() or (gains.data < 0).any():
        raise InvalidInputError(f"{owner}: `relevance` holds finite numbers of 0 or more.", param="relevance")
    return s, gains


def _dcg(row: FloatArray, gain: FloatArray, documents: npt.NDArray[Any], k: int) -> float:
    """Return the expected DCG@k under random order of equal scores."""
    k = min(k, row.size)
    kth = np.partition(row, row.size - k)[row.size - k]  # worse documents earn nothing
    total = 0.0
    discounts = rank_discounts(k)
    for g, score in zip(gain, row[documents], strict=True):
        if score >= kth and g > 0:
            # Tied documents share the discounts of the ranks that they occupy together.
            first = int((row > score).sum())
            tied = int((row == score).sum())
            total += g * float(discounts[first : first + tied].sum()) / tied
    return total


def rank_discounts(k: int) -> FloatArray:
    discounts: FloatArray = 1.0 / np.log2(np.arange(2, k + 2))
    return discounts
