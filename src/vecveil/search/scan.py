"""Rank rows in memory: vectors by exact cosines, texts by BM25 for hybrid search.

2-bit codes propose the candidates that the stored vectors rank. Each dimension is quantised at the quartiles of the
rows; two dimensions make one of 16 codes, which FAISS scans in registers (fast scan, André et al., VLDB 2015) at n/4
bytes a row.

Word counts are kept a segment; document frequencies are added up over all segments at each search, so that a new
segment needs no rebuilding of the others. Scores as in Lucene: Robertson and Zaragoza, "The Probabilistic Relevance
Framework", 2009.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.concepts.matching import UNSPACED, canonical
from vecveil.errors import optional_import

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_LEAST = 4096  # rows: fewer are scanned exactly
_EXACT = 20_000  # selected rows: fewer are ranked exactly, without the codes
_SAMPLE = 4000  # rows from which the quartiles are estimated
_BLOCK = 4096
_K1, _B = 1.2, 0.75  # of BM25
_MOST = 2**16 - 1  # counts of a word in a text; the score hardly grows beyond
# A word, or one sign of a script that does not set spaces between words.
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


class VectorScan:
    """The vectors of one segment, as stored.

    Args:
        stored: (N, n), float16 or int8.
        scale: (N,) float32 that int8 values are multiplied by, or None.
    """

    def __init__(self, stored: npt.NDArray[Any], scale: npt.NDArray[np.float32] | None) -> None:
        self._stored, self._scale = stored, scale
        self._made: Any = None
        self._making = threading.Lock()

    @property
    def _codes(self) -> Any:
        """The codes, made by the first search: a process that only writes or compacts needs none."""
        if self._made is None and len(self._stored) >= _LEAST:
            with self._making:
                if self._made is None:
                    self._made = _fast_scan(self._stored)
        return self._made

    def candidates(self, query: npt.NDArray[np.float32], mask: npt.NDArray[np.bool_], top: int) -> tuple[Rows, Scores]:
        """Return about the ``top`` best rows of ``mask`` for ``query`` (n,) and their approximate cosines, unsorted.

        All rows of the mask are returned where they are few.
        """
        selected = int(np.count_nonzero(mask))
        if selected <= max(_EXACT, top) or self._codes is None:
            rows = np.flatnonzero(mask)
            return _best(rows, self.cosines(query, rows), top)
        # The scan knows no mask: fetch as many as hold `top` selected rows on average, and more until they do.
        fetched = top + 32 if selected == len(mask) else int(top * 1.3 * len(mask) / selected) + 32
        while True:
            padded = np.pad(query[None], ((0, 0), (0, -len(query) % 4)))  # the codes have four dimensions a byte
            scores, rows = self._codes.search(padded, min(fetched, len(mask)))
            inside = mask[rows[0]] & (rows[0] >= 0)
            if np.count_nonzero(inside) >= top or fetched >= len(mask):
                return _best(rows[0][inside], scores[0][inside], top)
            if fetched > len(mask) // 4:  # the best rows are nearly all outside of the mask
                rows = np.flatnonzero(mask)
                return _best(rows, self.cosines(query, rows), top)
            fetched *= 4

    def cosines(self, query: npt.NDArray[np.float32], rows: Rows) -> Scores:
        """Return the cosines of ``query``, of norm 1, and the stored ``rows``; 0 for a row of zeros."""
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _BLOCK):
            # One scale a row does not change a cosine.
            X = self._stored[rows[start : start + _BLOCK]].astype(np.float32)
            norms = np.sqrt(np.einsum("ij,ij->i", X, X))
            scores[start : start + _BLOCK] = np.divide(X @ query, norms, out=np.zeros_like(norms), where=norms > 0)
        return scores

    def vectors(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the vectors of ``rows``, float32."""
        X = self._stored[rows].astype(np.float32)
        return X if self._scale is None else X * self._scale[rows, None]


def _best(rows: Rows, scores: Scores, top: int) -> tuple[Rows, Scores]:
    if len(rows) > top:
        chosen = np.argpartition(-scores, top)[:top]
        rows, scores = rows[chosen], scores[chosen]
    return rows, scores


def _fast_scan(stored: npt.NDArray[Any]) -> Any:
    """Return the FAISS index over the codes of ``stored`` (N, n)."""
    with optional_import("A sealed index of many rows", "faiss", "index"):
        import faiss

    N, n = stored.shape
    width = -(-n // 4) * 4  # four dimensions a byte
    sample = stored[np.linspace(0, N - 1, min(N, _SAMPLE)).astype(np.int64)].astype(np.float32)
    edges = np.quantile(sample, [0.25, 0.5, 0.75], axis=0).astype(np.float32)
    levels = np.zeros((4, width), np.float32)
    quarters = (sample > edges[0]).astype(np.uint8) + (sample > edges[1]) + (sample > edges[2])
    for level in range(4):
        inside = quarters == level
        levels[level, :n] = (sample * inside).sum(axis=0) / np.maximum(inside.sum(axis=0), 1)
    index = faiss.IndexPQ(width, width // 2, 4, faiss.METRIC_INNER_PRODUCT)
    # Code c of a pair of dimensions stands for level c % 4 of the first and c // 4 of the second.
    centroids = np.empty((width // 2, 16, 2), np.float32)
    codes = np.arange(16)
    centroids[:, :, 0] = levels[codes % 4, 0::2].T
    centroids[:, :, 1] = levels[codes // 4, 1::2].T
    faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    index.is_trained = True
    for start in range(0, N, _BLOCK):
        index.add_sa_codes(_codes(stored[start : start + _BLOCK], edges, width))
    return faiss.IndexPQFastScan(index)  # type: ignore[arg-type]


def _codes(stored: npt.NDArray[Any], edges: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.uint8]:
    X = stored.astype(np.float32)
    quarters = np.zeros((len(X), width), np.uint8)
    part = quarters[:, : X.shape[1]]
    for edge in edges:
        part += edge < X
    words = quarters.view("<u4")
    packed: npt.NDArray[np.uint8] = (words | (words >> 6) | (words >> 12) | (words >> 18)).astype(np.uint8)
    return packed


def words_of(text: str) -> list[str]:
    """Return the words of a text, in their canonical spelling."""
    return _WORD.findall(canonical(text))


class WordCounts:
    """The words of one segment's texts: rows and counts by word, and the length of each text."""

    def __init__(self, texts: Iterable[str]) -> None:
        rows: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        lengths = []
        for row, text in enumerate(texts):
            words = words_of(text)
            lengths.append(len(words))
            for word, count in Counter(words).items():
                rows.setdefault(word, []).append(row)
                counts.setdefault(word, []).append(count)
        self.lengths = np.array(lengths, np.float32)
        self.postings = {
            word: (np.array(listed, np.int32), np.minimum(counts[word], _MOST).astype(np.uint16))
            for word, listed in rows.items()
        }


def scores(query: str, segments: Sequence[tuple[WordCounts, npt.NDArray[np.bool_]]]) -> list[npt.NDArray[np.float32]]:
    """Return the BM25 score of each row of each segment; the masks say which rows count as documents."""
    documents = sum(int(np.count_nonzero(mask)) for _, mask in segments)
    total = sum(float(counts.lengths[mask].sum()) for counts, mask in segments)
    average = total / max(documents, 1) or 1.0
    result = [np.zeros(len(mask), np.float32) for _, mask in segments]
    for word in dict.fromkeys(words_of(query)):
        found = [(i, *counts.postings[word]) for i, (counts, _) in enumerate(segments) if word in counts.postings]
        frequency = sum(int(np.count_nonzero(segments[i][1][rows])) for i, rows, _ in found)
        weight = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
        for i, rows, count in found:
            norm = _K1 * (1 - _B + _B * segments[i][0].lengths[rows] / average)
            result[i][rows] += weight * count * (_K1 + 1) / (count + norm)
    return result
