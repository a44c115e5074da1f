"""What every candidate-matching attack shares: expected releases of the candidates, ranks, the figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Attack, Finding, Session
from vecveil.attacks.evidence import CandidateVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.checks import check_count
from vecveil.errors import InvalidInputError, message
from vecveil.metrics.matching import candidate_matching, candidate_matching_of_ranks

__all__ = ["CandidateAttack"]

FloatArray = npt.NDArray[np.float64]

_CELLS = 2**23  # distances (or coordinates of options) held at once: 64 MiB
_TIE = 1e-12  # share of the squared lengths below which two squared distances are equal


class CandidateAttack(Attack[PairedVectors, CandidateVectors]):
    """A matching attack: the candidates' expected releases are ranked by distance to the released vector.

    Subclasses give `_embed`, the space in which distances are taken. Estimates: ``top_1`` (the main one;
    its metric says of how many, ``top-1 of 10``) and ``mrr``. The candidates are each vector's
    ``options``, or the whole pool.
    """

    family = "candidates"
    state_type = ReleaseModel

    def __init__(self, *, draws: int = 16) -> None:
        """Keep the oracle draws per text: more sharpen the expected releases and take longer."""
        self.draws = check_count(draws, owner=type(self).__name__, param="draws", minimum=2)

    @abstractmethod
    def _embed(self, model: ReleaseModel, Y: FloatArray) -> FloatArray:
        """Return released vectors, or expected ones, where the Euclidean distance decides, (N, r)."""

    @final
    def _fit(
        self,
        train: PairedVectors,
        validation: PairedVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> ReleaseModel:
        return fit_release_model(train, validation, knowledge, session.rng, draws=self.draws)

    @final
    def _judge(
        self,
        state: ReleaseModel,
        train: PairedVectors,
        test: CandidateVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Finding:
        expected = state.expected(test.pool, knowledge, rng)
        places = self._embed(state, expected)
        found = self._embed(state, test.X.astype(np.float64))
        seed = int(rng.integers(2**31))
        if test.options is None:
            ranks = _ranks(found, places, test.truth, rng)
            both = candidate_matching_of_ranks(ranks, len(places), test.groups, seed=seed)
        else:
            scores = -_option_distances(found, places, test.options)
            both = candidate_matching(scores, test.truth, test.groups, seed=seed)
        top_1, mrr = both.values()
        count = len(places) if test.options is None else test.options.shape[1]
        top_1 = replace(top_1, metric=f"top-1 of {count:,}")
        return Finding({"top_1": top_1, "mrr": mrr}, details=_details(state))

    @final
    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        wanted, got = train.clean.shape[1], test.pool.shape[1]
        if wanted != got:
            raise InvalidInputError(
                message(type(self).__name__, "test", f"a set whose pool has the dimension {wanted} of `train.clean`",
                        f"{got}", "Candidates are released as the training texts are.")
            )  # fmt: skip


def _details(state: ReleaseModel) -> Mapping[str, Any]:
    expectation = f"mean of {state.draws} draws" if state.draws else "affine map"
    return {"expectation": expectation, "penalty": state.penalty, "floor": state.floor}


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


def _ranks(
    found: FloatArray, places: FloatArray, truth: npt.NDArray[np.intp], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return the rank of the true candidate in the pool, from 1; ties are broken at random."""
    ranks = np.empty(len(found), dtype=np.int64)
    lengths = np.einsum("pr,pr->p", places, places)
    rows = max(1, _CELLS // len(places))
    for i in range(0, len(found), rows):
        part, right = found[i : i + rows], truth[i : i + rows]
        # |y - p|² without |y|², which is the same for every candidate.
        distances = part @ places.T
        distances *= -2
        distances += lengths
        own = distances[np.arange(len(part)), right]
        slack = _TIE * (lengths[right] + np.einsum("mr,mr->m", part, part))
        closer = (distances < (own - slack)[:, None]).sum(axis=1)
        tied = (distances <= (own + slack)[:, None]).sum(axis=1) - closer
        ranks[i : i + rows] = closer + rng.integers(tied) + 1
    return ranks
