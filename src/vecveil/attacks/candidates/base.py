"""What every candidate-matching attack shares: distances to the candidates, ranks, the figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Attack, Finding
from vecveil.attacks.evidence import CandidateVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.errors import InvalidInputError
from vecveil.metrics.matching import candidate_matching, candidate_matching_of_ranks

__all__ = ["CandidateAttack"]

FloatArray = npt.NDArray[np.float64]

_CELLS = 2**23  # distances (or coordinates of options) held at once: 64 MiB
_TIE = 1e-12  # share of the squared lengths below which two squared distances are equal


class CandidateAttack(Attack[PairedVectors, CandidateVectors]):
    """A matching attack: the candidates are ranked by their distance to the released vector.

    Subclasses give `_places`, where the candidates and the released vectors lie, and may give `_misfit`, what
    of a distance speaks against a candidate. Estimates: ``top_1`` (the main one; its metric says of how many,
    ``top-1 of 10``) and ``mrr``. The candidates are each vector's ``options``, or the whole pool.
    """

    family = "candidates"

    @abstractmethod
    def _places(
        self, state: Any, test: CandidateVectors, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Return the released vectors, (M, r), and the pool, (P, r), where the Euclidean distance decides."""

    def _misfit(self, state: Any, squares: FloatArray) -> FloatArray:
        """Return what speaks against candidates at these squared distances, the least is named first.

        An error of δ in a square may move it by δ at most, or ties are not seen as ties.
        """
        return squares

    @abstractmethod
    def _details(self, state: Any) -> Mapping[str, Any]:
        """Return what was learnt, for the result: numbers and names only."""

    @final
    def _judge(
        self,
        state: Any,
        train: PairedVectors,
        test: CandidateVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        found, places = self._places(state, test, knowledge, rng)
        seed = int(rng.integers(2**31))
        if test.options is None:
            ranks = self._ranks(state, found, places, test.truth, rng)
            both = candidate_matching_of_ranks(ranks, len(places), test.groups, seed=seed)
        else:
            scores = -self._misfit(state, _option_distances(found, places, test.options))
            both = candidate_matching(scores, test.truth, test.groups, seed=seed)
        top_1, mrr = both.values()
        count = len(places) if test.options is None else test.options.shape[1]
        top_1 = replace(top_1, metric=f"top-1 of {count:,}")
        return Finding({"top_1": top_1, "mrr": mrr}, details=self._details(state))

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        wanted, got = train.clean.shape[1], test.pool.shape[1]
        if wanted != got:
            raise InvalidInputError.of(type(self).__name__, "test",
                                       f"a set whose pool has the dimension {wanted} of `train.clean`",
                                       f"{got}", "Candidates are released as the training texts are.")  # fmt: skip

    def _ranks(
        self,
        state: Any,
        found: FloatArray,
        places: FloatArray,
        truth: npt.NDArray[np.intp],
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Return the rank of the true candidate in the pool, from 1; ties are broken at random."""
        ranks = np.empty(len(found), dtype=np.int64)
        lengths = np.einsum("pr,pr->p", places, places)
        rows = max(1, _CELLS // len(places))
        for i in range(0, len(found), rows):
            part, right = found[i : i + rows], truth[i : i + rows]
            own_lengths = np.einsum("mr,mr->m", part, part)
            squares = part @ places.T
            squares *= -2
            squares += lengths
            squares += own_lengths[:, None]
            misfit = self._misfit(state, squares)
            own = misfit[np.arange(len(part)), right]
            slack = _TIE * (lengths[right] + own_lengths)
            closer = (misfit < (own - slack)[:, None]).sum(axis=1)
            tied = (misfit <= (own + slack)[:, None]).sum(axis=1) - closer
            ranks[i : i + rows] = closer + rng.integers(tied) + 1
        return ranks


def _option_distances(
    found: FloatArray, places: FloatArray, options: npt.NDArray[np.intp]
) -> FloatArray:
    """Return squared distances to each vector's options, (M, C); equal options get equal ones."""
    distances = np.empty(options.shape)
    rows = max(1, _CELLS // (options.shape[1] * found.shape[1]))
    for i in range(0, len(found), rows):
        difference = places[options[i : i + rows]] - found[i : i + rows, None]
        distances[i : i + rows] = np.einsum("mcr,mcr->mc", difference, difference)
    return distances
