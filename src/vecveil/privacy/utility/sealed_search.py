"""Sealed search: the quality of exact re-ranking among protected candidates, in a collection of a given size.

A search finds a neighbour if fewer than ``candidates`` rows have a higher protected score. Rows of the sample are
counted. Each further row of the collection scores higher with a probability p, so their number is Poisson with mean (N
− n) p; p comes from a generalised Pareto tail of the protected scores of the query with the sample's rows, or with
distractors. The same tail of the clean scores gives the probability that a row of the sample is among the nearest of
the whole collection, which weights the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import betaincinv, pdtr

from vecveil.errors import InvalidInputError, out_of_range, wrong_shape
from vecveil.privacy.utility.estimates import NORMAL, Estimate
from vecveil.privacy.utility.tasks import Sides, UtilityRelease, UtilityTask, check_own, rank_discounts, unit_rows
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_embeddings

FloatArray = npt.NDArray[np.floating[Any]]

K = 10
DEPTH = 50
"""Number of nearest clean rows for the nDCG: rows after the tenth move up when others are missed."""
TAIL_ROWS = 20
"""Maximum number of a query's highest scores for the tail fit, and at most a tenth of the rows."""
LEAST_ROWS = 100
CHECK_SHARES = (0.25, 0.5)
"""Shares of the available rows from which the model predicts the figure among all of them."""
REACH = 30
"""Maximum size of a collection, in samples, whose nearest rows a sample without distractors determines."""
GROWTH = 10
LEAST_MISSED = 0.005
"""Minimum missed share when comparing predictions with measurements: less is sampling error."""
MOST_CANDIDATES = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class _ScoreTail:
    """Sorted scores (Q, R) of each query, and the generalised Pareto tail of the highest ``top`` of them."""

    ordered: FloatArray
    top: int
    threshold: FloatArray
    scale: FloatArray
    shape: float

    @classmethod
    def of(cls, scores: FloatArray) -> _ScoreTail:
        ordered = np.sort(scores, axis=1)
        rows = ordered.shape[1]
        top = min(TAIL_ROWS, rows // 10)
        threshold = ordered[:, -top - 1]
        excess = (ordered[:, -top:] - threshold[:, None]).astype(np.float64)
        # Probability-weighted moments (Hosking and Wallis 1987); the shape is shared, since one query has few scores.
        mean = np.maximum(excess.mean(axis=1), 1e-12)
        weighted = (excess * (1 - (np.arange(1, top + 1) - 0.35) / top)).mean(axis=1)
        shapes = 2 - mean / np.maximum(mean - 2 * weighted, 1e-12)
        shape = float(np.clip(np.median(shapes), -0.5, 0.5))
        return cls(ordered, top, threshold, mean * (1 - shape), shape if abs(shape) > 1e-3 else 1e-3)

    def at_least(self, scores: FloatArray) -> FloatArray:
        """Return the number of rows that score at least each of ``scores`` (Q, L): ties count as missed."""
        rows = self.ordered.shape[1]
        return np.stack(
            [rows - np.searchsorted(mine, s, side="left") for mine, s in zip(self.ordered, scores, strict=True)]
        ).astype(np.float64)

    def exceedance(self, scores: FloatArray) -> FloatArray:
        """Return the probability that a further row scores higher than each of ``scores`` (Q, L)."""
        rows = self.ordered.shape[1]
        above = (scores - self.threshold[:, None]) / self.scale[:, None]
        base = np.maximum(1 + self.shape * above, 1e-12)
        beyond = self.top / rows * base ** (-1 / self.shape)
        exceeding: FloatArray = np.where(above > 0, beyond, self.at_least(scores) / rows)
        return exceeding


class _Sample:
    """The nearest clean rows of each query, and how they would rank in a larger collection.

    ``own`` (Q, n) and ``further`` (Q, R) are clean scores of the sample and of rows like the rest of the collection;
    ``gains`` (Q, n) are judgements over each query's ideal DCG, None for the nearest rows themselves.
    """

    def __init__(self, own: FloatArray, further: FloatArray, gains: FloatArray | None) -> None:
        self.rows = own.shape[1]
        depth = min(K if gains is None else DEPTH, self.rows - 1)
        nearest = np.argpartition(-own, depth, axis=1)[:, :depth]
        scores = np.take_along_axis(own, nearest, axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")
        self.nearest = np.take_along_axis(nearest, order, axis=1)
        self.gains = None if gains is None else np.take_along_axis(gains, self.nearest, axis=1)
        self.exceedance = _ScoreTail.of(further).exceedance(np.take_along_axis(scores, order, axis=1))
        # In a far larger collection too few rows of the sample are among the nearest: those of the largest size with
        # enough of them stand in. A larger collection has nearer ones, so its figure is underestimated.
        self.most_further = (REACH - 1) * self.rows if further is own else np.inf
        if further is own:
            # Of rows drawn like the further ones, the j-th nearest has an exceedance of law Beta(j, n + 1 - j).
            # The tails order the queries, and these quantiles replace their values: a tail that is too short for some
            # query would make its rows count for ever.
            rank = np.argsort(np.argsort(self.exceedance, axis=0, kind="stable"), axis=0)
            place = np.arange(1, depth + 1)
            self.exceedance = betaincinv(place, self.rows + 1 - place, (rank + 0.5) / len(own))

    def places(self, own: FloatArray, further: FloatArray) -> _Places:
        scores = np.take_along_axis(own, self.nearest, axis=1)
        tail = _ScoreTail.of(further)
        counted = tail if further is own else _ScoreTail.of(own)
        return _Places(self, counted.at_least(scores), tail.exceedance(scores))


@dataclass(frozen=True, eq=False, repr=False)
class _Places:
    """Ranks (Q, L) of the nearest rows in the protected sample, and the share of further rows above each."""

    sample: _Sample
    ranks: FloatArray
    exceedance: FloatArray

    def kept(self, size: int, candidates: int) -> tuple[FloatArray, FloatArray]:
        """Return the expected figure of each query in ``size`` rows: after re-ranking, and clean."""
        further = max(size - self.sample.rows, 0)
        room = candidates - self.ranks
        inside = np.where(room >= 0, pdtr(np.maximum(room, 0), further * self.exceedance), 0.0)
        nearer = min(further, self.sample.most_further) * self.sample.exceedance
        if self.sample.gains is not None:
            # Further rows nearer than a row are among the candidates about as often as it is.
            return (
                _expected_dcg(inside, nearer * inside, self.sample.gains),
                _expected_dcg(np.ones_like(inside), nearer, self.sample.gains),
            )
        # A row counts by the probability that it is among the K nearest of the whole collection.
        counts = pdtr(K - 1 - np.arange(nearer.shape[1]), nearer)
        return (counts * inside).sum(axis=1), counts.sum(axis=1)

    def share(self, size: int, candidates: int) -> tuple[float, float, float]:
        """Return the share of the clean figure that is kept, with its 95 % interval over queries."""
        kept, clean = self.kept(size, candidates)
        if clean.sum() <= 0:  # no judged row is among the nearest
            return 0.0, 0.0, 0.0
        value = float(kept.sum() / clean.sum())
        influence = (kept - value * clean) / clean.sum()
        # At least the variance of one missed neighbour: where nothing is missed, queries do not differ.
        half = NORMAL * float(np.sqrt(influence @ influence + 1 / (K * len(kept)) ** 2))
        return value, value - half, value + half


@dataclass(frozen=True, eq=False, repr=False)
class _Forecast:
    """The share kept in collections of any size; ``checks`` are predicted and measured figures of parts of the rows."""

    places: _Places
    candidates: int
    checks: list[dict[str, Any]]

    @property
    def error(self) -> float:
        return max(float(abs(check["predicted"] - check["measured"])) for check in self.checks)

    @property
    def factor(self) -> float:
        """Largest factor by which the model misjudged the missed share, at least 1."""
        missed = [[max(1 - check[key], LEAST_MISSED) for key in ("predicted", "measured")] for check in self.checks]
        return max(float(max(pair) / min(pair)) for pair in missed)

    def share(self, size: int) -> tuple[float, float, float]:
        value, low, high = self.places.share(size, self.candidates)
        if size > self.places.sample.rows + 1:  # a text that serves as the query is not among the rows
            # The error shrinks with the missed share.
            missed = max(0.0, 1 - value)
            low -= min(self.error, (self.factor - 1) * missed)
            high += min(self.error, (1 - 1 / self.factor) * missed)
        return value, max(0.0, low), max(value, min(high, 1.0))

    def least_candidates(self, size: int, target: float) -> int | None:
        """Return the least number of candidates that is expected to reach the target in ``size`` rows, or None."""
        low, high = K, min(MOST_CANDIDATES, size)
        if self.places.share(size, high)[1] < target:
            return None
        while low < high:
            middle = (low + high) // 2
            reached = self.places.share(size, middle)[1] >= target
            low, high = (low, middle) if reached else (middle + 1, high)
        return low


def _expected_dcg(inside: FloatArray, nearer: FloatArray, gains: FloatArray) -> FloatArray:
    """Return the expected DCG@K of each query, for rows with ``gains`` (Q, L), nearest first.

    ``inside`` (Q, L) is the probability that each is a candidate, ``nearer`` the expected number of nearer other ones.
    """
    total = np.zeros(len(inside))
    before = np.zeros((len(inside), K))  # distribution of the number of nearer rows that are candidates
    before[:, 0] = 1.0
    padded = np.concatenate([rank_discounts(K), np.zeros(K)])
    discount = np.stack([padded[i : i + K] for i in range(K)])
    for row in range(inside.shape[1]):
        p, mean = inside[:, row, None], nearer[:, row, None]
        number = np.diff(pdtr(np.arange(K), mean), axis=1, prepend=0.0)
        total += gains[:, row] * p[:, 0] * (before * (number @ discount)).sum(axis=1)
        moved = before * p
        before = before - moved
        before[:, 1:] += moved[:, :-1]
    return total


def check_query_noise(value: Any, *, owner: str) -> float:
    """Return the ``query_noise`` to measure sealed search with: 1, or 0 for queries through the map alone."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in (0, 1):
        raise out_of_range(owner, "query_noise", "0 or 1", repr(value)[:40])
    return float(value)


class SealedSearchTask(UtilityTask):
    """Search by exact ranking of the protected candidates, in a collection of ``collection_size`` rows.

    Without judgements the figure is recall@10 of the exact neighbours, and documents serve as queries, each excluding
    itself. With ``queries`` (Q, n), ``relevance`` (Q, D) and ``own``, as of a `RetrievalTask`, it is nDCG@10.

    Args:
        documents: (D, n) clean embeddings, a sample of the collection.
        candidates: rows that a search fetches and ranks exactly.
        collection_size: rows of the collection, at least D.
        distractors: (R, n) clean embeddings of texts like the rest of the collection; None models it like the
            documents.
        query_noise: 1, or 0 sends queries through the map without noise.
        target: share of the clean figure that the forecast's number of candidates keeps.
        sample: maximum number of queries, drawn at random.
    """

    key = "sealed_search"
    sides = ("both", "documents")

    def __init__(
        self,
        documents: Embeddings,
        *,
        candidates: int,
        collection_size: int,
        queries: Embeddings | None = None,
        relevance: Any = None,
        own: Any = None,
        distractors: Embeddings | None = None,
        query_noise: float = 1,
        target: float = 0.99,
        sample: int = 300,
        seed: int = 0,
    ) -> None:
        owner = "SealedSearchTask"
        self.documents = check_embeddings(documents, owner=owner, param="documents", min_rows=LEAST_ROWS)
        rows, dimension = self.documents.shape
        self.collection_size = check_count(collection_size, owner=owner, param="collection_size", minimum=rows)
        self.candidates = check_count(
            candidates, owner=owner, param="candidates", minimum=K, maximum=self.collection_size
        )
        if (queries is None) != (relevance is None):
            raise InvalidInputError("Pass `queries` and `relevance` together, or neither.", param="relevance")
        self._own_rows: npt.NDArray[np.intp] | None = None
        self._gains: FloatArray | None = None
        rng, most = np.random.default_rng(seed), check_count(sample, owner=owner, param="sample")
        if queries is None:
            self._own_rows = np.sort(rng.permutation(rows)[:most])
            self.queries = self.documents[self._own_rows]
        else:
            queries = check_embeddings(queries, owner=owner, param="queries", dimension=dimension)
            self._gains, judged = _checked_gains(relevance, len(queries), rows, rng, most, owner)
            self.queries = queries[judged]
            self._own = check_own(own, len(queries), rows, owner=owner)[judged]
        self.distractors = None
        if distractors is not None:
            self.distractors = check_embeddings(
                distractors, owner=owner, param="distractors", dimension=dimension, min_rows=LEAST_ROWS
            )
        self.query_noise = check_query_noise(query_noise, owner="SealedSearchTask")
        self.target, self.seed = target, seed
        self.metric = f"{'recall' if queries is None else 'nDCG'}@{K}"
        self.label = f"Sealed search, {self.candidates:,} candidates ({self.metric})"

    def clean(self) -> Estimate:
        """Return 1 for recall, else the expected nDCG@10 of the clean collection."""
        if self._gains is None:
            return Estimate(self.metric, 1.0, 1.0, 1.0, len(self.queries))
        _, clean = self._sample.places(*self._clean).kept(self.collection_size, self.candidates)
        value = float(clean.mean())
        if value <= 0:
            raise InvalidInputError("Clean search finds no document of `relevance`.", param="relevance")
        return Estimate(self.metric, value, value, value, len(clean))

    def protected(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> Estimate:
        return self._estimate(self._forecast(self._protected(release, rng, sides=sides)))

    def _estimate(self, forecast: _Forecast) -> Estimate:
        clean = self.clean_value
        value, low, high = forecast.share(self.collection_size)
        return Estimate(self.metric, value * clean, low * clean, high * clean, len(self.queries))

    def relative(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        """Return the lower limit of the share of the clean figure that is kept; it must meet a target."""
        return self.protected(release, rng).low / self.clean_value

    def to_record(self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both") -> dict[str, Any]:
        """Return the entry of a record's ``utility``, with a forecast of the share kept as the collection grows.

        The intervals cover the choice of the queries (95 %); beyond the available rows also the model's largest error
        on sizes that these rows reach.
        """
        forecast = self._forecast(self._protected(release, rng, sides=sides))
        return self._entry(self._estimate(forecast), "both" if self._noisy(sides) else "documents") | {
            "outlook": self._outlook(forecast)
        }

    def _outlook(self, forecast: _Forecast) -> dict[str, Any]:
        expected = []
        for size in (self.collection_size, GROWTH * self.collection_size):
            value, low, high = forecast.share(size)
            expected.append({"collection_size": size, "value": value, "low": low, "high": high})
        return {
            "metric": self.metric,
            "candidates": self.candidates,
            "query_noise": self.query_noise,
            "texts": self._sample.rows,
            "queries": len(self.queries),
            "texts_as_queries": self._gains is None,
            "distractors": 0 if self.distractors is None else len(self.distractors),
            "expected": expected,
            "candidates_after_growth": forecast.least_candidates(GROWTH * self.collection_size, self.target),
            "model_error": forecast.error,
            "model_checks": forecast.checks,
        }

    def _forecast(self, scores: tuple[FloatArray, FloatArray]) -> _Forecast:
        """Return the places of the protected rows, and the model's error where it can be measured."""
        own, further = scores
        places = self._sample.places(own, further)
        whole = places
        if self.distractors is not None:
            everything = np.hstack(scores)
            whole = self._whole.places(everything, everything)
        size = whole.sample.rows
        # As scarce as in the whole collection: with all candidates a sample would find everything.
        candidates = min(self.candidates, max(2 * K, round(self.candidates * size / self.collection_size)))
        measured = whole.share(size, candidates)[0]
        checks = []
        for rows, sample in self._parts:
            part = np.ascontiguousarray(further[:, rows])
            predicted = sample.places(own if self.distractors is not None else part, part).share(size, candidates)[0]
            checks.append(
                {
                    "from": len(rows),
                    "to": further.shape[1],
                    "candidates": candidates,
                    "predicted": predicted,
                    "measured": measured,
                }
            )
        return _Forecast(places, self.candidates, checks)

    @cached_property
    def _whole(self) -> _Sample:
        everything = np.hstack(self._clean)
        extra = everything.shape[1] - self._sample.rows
        gains = None if self._gains is None else np.pad(self._gains, ((0, 0), (0, extra)))
        return _Sample(everything, everything, gains)

    @cached_property
    def _parts(self) -> list[tuple[npt.NDArray[np.intp], _Sample]]:
        """Parts of the rows from which the model predicts the figure of all rows."""
        own, further = self._clean
        order = np.random.default_rng(self.seed).permutation(further.shape[1])
        parts = []
        for share in CHECK_SHARES:
            rows = np.sort(order[: max(LEAST_ROWS, round(share * len(order)))])
            part = np.ascontiguousarray(further[:, rows])
            if self.distractors is None:
                parts.append((rows, _Sample(part, part, None if self._gains is None else self._gains[:, rows])))
            else:
                parts.append((rows, _Sample(own, part, self._gains)))
        return parts

    def _noisy(self, sides: Sides) -> bool:
        return self.query_noise > 0 and sides == "both"

    @cached_property
    def _clean(self) -> tuple[FloatArray, FloatArray]:
        return self._scores(self.queries, self.documents, self.distractors)

    @cached_property
    def _sample(self) -> _Sample:
        return _Sample(*self._clean, self._gains)

    def _protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> tuple[FloatArray, FloatArray]:
        queries = release(self.queries, rng if self._noisy(sides) else None)
        others = None if self.distractors is None else release(self.distractors, rng)
        return self._scores(queries, release(self.documents, rng), others)

    def _scores(
        self, queries: Embeddings, documents: Embeddings, others: Embeddings | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the cosines of the queries with the documents, except themselves, and with further rows."""
        unit = unit_rows(np.asarray(queries, dtype=np.float32))
        own = unit @ unit_rows(np.asarray(documents, dtype=np.float32)).T
        if self._own_rows is not None:
            other = np.ones(own.shape, dtype=bool)
            other[np.arange(len(own)), self._own_rows] = False
            own = own[other].reshape(len(own), -1)
        else:
            copies = np.flatnonzero(self._own >= 0)
            own[copies, self._own[copies]] = -2.0  # below every cosine
        return own, own if others is None else unit @ unit_rows(np.asarray(others, dtype=np.float32)).T


def _checked_gains(
    relevance: Any, queries: int, documents: int, rng: np.random.Generator, most: int, owner: str
) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Return the judgements of at most ``most`` judged queries over their ideal DCG, and the rows of these queries."""
    given = csr_array(relevance, dtype=np.float64)
    if given.shape != (queries, documents):
        raise wrong_shape(owner, "relevance", f"({queries}, {documents})", given.shape)
    judged = np.flatnonzero(given.sum(axis=1) > 0)
    if not judged.size:
        raise InvalidInputError(f"{owner}: `relevance` names no relevant document.", param="relevance")
    judged = np.sort(rng.permutation(judged)[:most])
    gains = given[judged].toarray()
    best = -np.sort(-gains, axis=1)[:, :K]
    return gains / (best @ rank_discounts(K)[: best.shape[1]])[:, None], judged
