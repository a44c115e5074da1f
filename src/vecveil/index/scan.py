"""Rank rows by exact cosines, from codes in memory and vectors in memory, on disk or behind a network.

2-bit codes of the rows' directions propose rows, and the cosines of the stored vectors rank them. Each dimension is
quantised at the quartiles of the rows; two dimensions make one of 16 codes, which FAISS scans in registers (fast scan,
André et al., VLDB 2015) at n/4 bytes a row. The codes propose more and more rows until no other row is likely to reach
the last rank: until the approximate cosine of the last row proposed, plus 4.5 standard deviations of the codes' error,
is below the last rank's cosine. Where the codes tell nothing about the order, fewer than ten of a million rows exceed
that bound. If too many rows would be proposed, all are ranked. Scores of different kinds are never compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vecveil.errors import optional_import
from vecveil.runtime import release_free_memory

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

EXACT = 20_000  # selected rows of a segment: fewer are ranked exactly, without the codes
_FEWEST = 32  # rows of a segment to rank exactly: from them follows how far the codes err
_RANK = 10  # least rank whose cosine the other rows must not reach
_DEVIATIONS = 4.5
_POOR = 0.25  # square of the distance of a unit vector from what its code stands for; most have 0.13
_SHARE = 8  # an exact scan of the segment is faster than the codes once these propose so large a part of it
_SAMPLE = 4000  # rows from which the quartiles are estimated
_RESIDUALS = 128  # of these, rows from which the error of the codes is estimated
_BLOCK = 1024


class Stored(Protocol):
    """Stored vectors (N, n), float16 or int8: an array, or an object that reads rows on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> npt.NDArray[Any]: ...


class VectorScan:
    """The vectors of one segment.

    Args:
        stored: (N, n), float16 or int8.
        scale: (N,) float32 that int8 values are multiplied by, or None.
        codes: returns the codes; called by the first search: a process that only writes or compacts needs none.
        exact: of at most so many selected rows all are ranked, without the codes.
        far: whether each row is a request over a network: then fewer rows are ranked at first.
    """

    def __init__(
        self,
        stored: Stored,
        scale: npt.NDArray[np.float32] | None,
        codes: Callable[[], Codes] | None = None,
        exact: int = EXACT,
        far: bool = False,
    ) -> None:
        self._stored, self._scale, self.exact, self.far = stored, scale, exact, far
        self._codes = codes or (lambda: Codes(**dict(encoded(stored))))
        self._made: Codes | None = None
        self.make_lock()

    def make_lock(self) -> None:
        """Make the lock, anew in a forked process, where a thread of the parent process may have held it."""
        self._making = threading.Lock()

    def __len__(self) -> int:
        return self._stored.shape[0]

    @property
    def codes(self) -> Codes:
        """The codes."""
        if self._made is None:
            with self._making:  # they are large: of the first searches one reads them
                if self._made is None:
                    self._made = self._codes()
                    release_free_memory()  # as much as the codes: FAISS copied them
        return self._made

    def cosines(self, query: npt.NDArray[np.float32], rows: Rows) -> Scores:
        """Return the cosines of ``query``, of norm 1, and the stored ``rows``; 0 for a row of zeros."""
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), _BLOCK):
            # One scale a row does not change a cosine.
            X = _widened(self._stored[_as_slice(rows[start : start + _BLOCK])])
            norms = np.sqrt(np.einsum("ij,ij->i", X, X))
            # Not `X @ query`: the last bits of a BLAS product depend on which other rows are in the block.
            products = np.einsum("ij,j->i", X, query)
            scores[start : start + _BLOCK] = np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)
        return scores

    def vectors(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the vectors of ``rows``, float32."""
        X = _widened(self._stored[rows])
        return X if self._scale is None else X * self._scale[rows, None]


class Codes:
    """The 2-bit codes of the rows' directions, so that scores approximate cosines whatever the lengths.

    Args:
        packed: codes (N, n/4, rounded up), four dimensions a byte.
        levels: what each code of a dimension stands for (4, n).
        residuals: of some rows, what their codes leave out (m, n).
        poor: rows that their codes describe badly, as in sparse or heavy-tailed data; to be ranked exactly.

    Attributes:
        useful: False if too many rows are poor; then `best` must not be called.
    """

    def __init__(
        self,
        packed: npt.NDArray[np.uint8],
        levels: npt.NDArray[np.float32],
        residuals: npt.NDArray[Any],
        poor: npt.NDArray[np.int32],
    ) -> None:
        self.poor, self._residuals = poor, residuals.astype(np.float32)
        self.useful = len(poor) <= len(packed) // _SHARE
        self._index: Any = None
        if self.useful:
            index = _quantizer(levels)
            index.add_sa_codes(packed)
            self._index = _faiss().IndexPQFastScan(index)

    def best(self, query: npt.NDArray[np.float32], count: int) -> tuple[Rows, Scores]:
        """Return the ``count`` best rows for ``query`` (n,), or fewer, and their approximate cosines, best first."""
        padded = np.pad(query[None], ((0, 0), (0, -len(query) % 4)))
        scores, rows = self._index.search(padded, count)
        found = rows[0] >= 0  # FAISS leaves out rows with the least possible score
        return rows[0][found], scores[0][found]

    def deviation(self, query: npt.NDArray[np.float32]) -> float:
        """Return the standard deviation of cosine and approximate cosine over all rows."""
        return float((self._residuals @ query).std())


def encoded(stored: Stored) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arguments of `Codes` for vectors (N, n), float16 or int8."""
    N, n = stored.shape
    width = -(-n // 4) * 4  # four dimensions a byte
    sample = _unit(stored[np.linspace(0, N - 1, min(N, _SAMPLE)).astype(np.int64)])
    edges = np.quantile(sample, [0.25, 0.5, 0.75], axis=0).astype(np.float32)
    levels = np.zeros((4, width), np.float32)
    quarters = (sample > edges[0]).astype(np.uint8) + (sample > edges[1]) + (sample > edges[2])
    for level in range(4):
        inside = quarters == level
        levels[level, :n] = (sample * inside).sum(axis=0) / np.maximum(inside.sum(axis=0), 1)
    index = _quantizer(levels)  # frees its quantizer when it is collected
    quantizer = index.pq
    some = sample[:: max(len(sample) // _RESIDUALS, 1)]
    packed, errors = np.empty((N, width // 4), np.uint8), np.empty(N, np.float32)
    for start in range(0, N, _BLOCK):
        X = _unit(stored[start : start + _BLOCK])
        packed[start : start + len(X)] = codes = _packed(X, edges, width)
        X -= quantizer.decode(codes)[:, :n]
        errors[start : start + len(X)] = np.einsum("ij,ij->i", X, X)
    yield "packed", packed
    yield "levels", levels
    yield "residuals", (some - quantizer.decode(_packed(some, edges, width))[:, :n]).astype(np.float16)
    yield "poor", np.flatnonzero(errors > _POOR).astype(np.int32)


def _quantizer(levels: npt.NDArray[np.float32]) -> Any:
    """Return an empty index of FAISS with these levels (4, width)."""
    faiss, width = _faiss(), levels.shape[1]
    index = faiss.IndexPQ(width, width // 2, 4, faiss.METRIC_INNER_PRODUCT)
    # Code c of a pair of dimensions stands for level c % 4 of the first and c // 4 of the second.
    centroids = np.empty((width // 2, 16, 2), np.float32)
    pairs = np.arange(16)
    centroids[:, :, 0] = levels[pairs % 4, 0::2].T
    centroids[:, :, 1] = levels[pairs // 4, 1::2].T
    faiss.copy_array_to_vector(centroids.ravel(), index.pq.centroids)
    index.is_trained = True
    return index


def _faiss() -> Any:
    with optional_import("A sealed index of many rows", "faiss", "index"):
        import faiss
    return faiss


class _Search:
    """The rows of one segment that are ranked for one query; `more` ranks further ones.

    Attributes:
        rows, exact: the ranked rows and their cosines.
        bound: above the cosines of all other rows; minus infinity if there are none.
    """

    def __init__(
        self, query: npt.NDArray[np.float32], scan: VectorScan, mask: Mask, selected: int, count: int, ahead: int
    ) -> None:
        self._query, self._scan, self._mask, self._selected = query, scan, mask, selected
        self._count, self._ahead = count, ahead
        self.rows, self.exact = np.empty(0, np.int64), np.empty(0, np.float32)
        self._proposed, self._approximate = self.rows, self.exact
        self.bound = np.inf if selected else -np.inf
        if selected > scan.exact:
            _ = scan.codes  # loaded here: glibc returns little of what other threads have freed

    def more(self) -> None:
        """Rank four times as many rows as before; all rows if that is faster."""
        if self._selected <= self._scan.exact or not self._scan.codes.useful or not self._propose():
            self.rows = np.flatnonzero(self._mask)
            self.exact, self.bound = self._scan.cosines(self._query, self.rows), -np.inf
            return
        poor = self._scan.codes.poor
        self.rows = np.concatenate([self._proposed[: self._count], poor[self._mask[poor]]])
        self.exact = self._scan.cosines(self._query, self.rows)
        error = self.exact[: self._count] - self._approximate[: self._count]
        # The best rows by the codes may share a code, and thus err less than others, or all be overrated.
        deviation = max(float(error.std()), self._scan.codes.deviation(self._query))
        self.bound = float(self._approximate[self._count - 1]) + max(float(error.mean()), 0.0) + _DEVIATIONS * deviation
        self._count *= 4

    def _propose(self) -> bool:
        """Propose the best rows by the codes, as many as `more` ranks; return False if an exact scan is faster."""
        fetched = max(self._count, self._ahead)
        if self._selected < len(self._scan) or len(self._scan.codes.poor):
            fetched = int(1.3 * fetched * len(self._scan) / self._selected) + 32  # the codes know no mask
        while len(self._proposed) < self._count:
            if fetched > len(self._scan) // _SHARE:
                return False
            rows, approximate = self._scan.codes.best(self._query, fetched)
            kept = self._mask[rows]
            if len(self._scan.codes.poor):  # they are ranked anyway
                kept &= ~np.isin(rows, self._scan.codes.poor)
            self._proposed, self._approximate = rows[kept], approximate[kept]
            fetched *= 4
        return True


def nearest(
    query: npt.NDArray[np.float32],
    parts: Sequence[tuple[VectorScan, Mask]],
    top: int,
    candidates: int,
    each: Callable[[Callable[[_Search], None], Sequence[_Search]], Iterable[None]] = map,
    *,
    exact_to: int | None = None,
) -> tuple[Rows, Rows, Scores]:
    """Return part, row and cosine of the ``top`` rows with the largest cosines, best first.

    Args:
        query: (n,), of norm 1.
        parts: segments, with the mask of the rows that count.
        candidates: rows to rank exactly at least.
        each: maps a function over segments, as `map` or in threads.
        exact_to: last rank before which no row may be missing; None for ``top``.
    """
    selected = [int(np.count_nonzero(mask)) for _, mask in parts]
    total = max(sum(selected), 1)
    searches = [
        _Search(query, scan, mask, size, max(_FEWEST, candidates * size // total // (4 if scan.far else 1)), candidates)
        for (scan, mask), size in zip(parts, selected, strict=True)
    ]
    exact, least, rank = np.empty(0, np.float32), -np.inf, max(exact_to or top, _RANK)
    while unfinished := [search for search in searches if search.bound >= least and search.bound > -np.inf]:
        list(each(_Search.more, unfinished))
        exact = np.concatenate([search.exact for search in searches])
        if len(exact) >= rank:
            least = float(np.partition(exact, -rank)[-rank])
    best = np.flatnonzero(exact >= np.partition(exact, -top)[-top]) if len(exact) > top else np.arange(len(exact))
    best = best[np.argsort(-exact[best], kind="stable")][:top]
    owners = np.repeat(np.arange(len(parts)), [len(search.rows) for search in searches])
    rows = np.concatenate([np.empty(0, np.int64), *(search.rows for search in searches)])
    return owners[best], rows[best], exact[best]


def _as_slice(rows: Rows) -> Rows | slice:
    """Return rows that follow each other as a slice, which is read faster."""
    follow = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


def _widened(stored: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return ``stored``, float16 or int8 and finite, as float32."""
    if stored.dtype != np.float16:
        return stored.astype(np.float32)
    # NumPy's own conversion takes four times as long. The exponents differ by 112.
    bits = stored.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # without the copies of the sign
    X = bits.view(np.float32)
    X *= np.float32(2.0**112)
    return X


def _unit(stored: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the vectors with norm 1: the codes approximate cosines, whatever the lengths."""
    X = _widened(stored)
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    X /= np.where(norms > 0, norms, 1)[:, None]
    return X


def _packed(X: npt.NDArray[np.float32], edges: npt.NDArray[np.float32], width: int) -> npt.NDArray[np.uint8]:
    quarters = np.zeros((len(X), width), np.uint8)
    part = quarters[:, : X.shape[1]]
    for edge in edges:
        part += edge < X
    words = quarters.view("<u4")
    packed: npt.NDArray[np.uint8] = (words | (words >> 6) | (words >> 12) | (words >> 18)).astype(np.uint8)
    return packed
