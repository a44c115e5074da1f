"""Norm matching: the candidate from which the released vector lies as far as releases always do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.candidates.base import CandidateAttack
from vecveil.attacks.evidence import CandidateVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.errors import InvalidInputError

__all__ = ["FixedNorm", "FixedNormMatching"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FixedNorm:
    """How far releases lie from the vectors that they are releases of.

    Attributes:
        norm: Median of ‖y − x‖.
        spread: Distance of the quartiles of ‖y − x‖, as a share of the median; 0 where the median is 0.
    """

    norm: float
    spread: float


class FixedNormMatching(CandidateAttack):
    """Candidates ranked by |‖y − x‖² − r²|, the least first; r is the median of ‖y − x‖ on training texts.

    A method that moves every vector by exactly r tells by that which vector it has moved: the true
    candidate is at r from the release to the last bits, any other almost never is, however large r. Nothing is
    subtracted from y − x: its mean may depend on x, its length does not. Where the norm is random, r says little
    and the likelihood says more.
    """

    name = "matching-norm"
    description = "Candidates ranked by how near their distance to the vector is to the usual length of the noise."
    cost = "seconds on one core; the encoder's vectors of every candidate"
    source = "Consistency with a known distortion: ‖e' − e‖ = r, as TextCrafter states it of its releases."
    state_type = FixedNorm

    def _fit(
        self,
        train: PairedVectors,
        validation: PairedVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> FixedNorm:
        # Nothing is chosen, so nothing is set aside.
        norms = np.concatenate([_norms(each, knowledge, session) for each in (train, validation)])
        low, norm, high = (float(q) for q in np.quantile(norms, (0.25, 0.5, 0.75)))
        return FixedNorm(norm, (high - low) / norm if norm else 0.0)

    def _places(
        self,
        state: FixedNorm,
        test: CandidateVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        return test.X.astype(np.float64), test.pool.astype(np.float64)

    def _misfit(self, state: FixedNorm, squares: FloatArray) -> FloatArray:
        # In squares: near r it is the order of |‖y − x‖ − r|, without the root's errors near 0.
        misfit: FloatArray = np.abs(squares - state.norm**2)
        return misfit

    def _details(self, state: FixedNorm) -> Mapping[str, Any]:
        return {"norm": state.norm, "relative_spread": state.spread}

    def _check(self, train: PairedVectors, test: CandidateVectors, knowledge: Knowledge) -> None:
        super()._check(train, test, knowledge)
        wanted = test.pool.shape[1]
        if test.dimension != wanted:
            raise InvalidInputError.of(type(self).__name__, "test",
                                       f"of released vectors with the dimension {wanted} of its pool",
                                       f"dimension {test.dimension}",
                                       "The length of a difference is taken between vectors of one space.",
                                       "Match reduced releases by cosine or by likelihood.")  # fmt: skip


def _norms(pairs: PairedVectors, knowledge: Knowledge, session: Session) -> FloatArray:
    """Return ‖y − x‖ of one release of each vector, (N,)."""
    adaptive = knowledge.adaptive
    released = knowledge.draw(pairs.clean, session.rng) if adaptive else pairs.X
    norms: FloatArray = np.linalg.norm(
        released.astype(np.float64) - pairs.clean.astype(np.float64), axis=1
    )
    return norms
