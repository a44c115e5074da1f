"""Matching by what a candidate is expected to be released as."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.candidates.base import CandidateAttack
from vecveil.attacks.evidence import CandidateVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.validation import check_count

__all__ = ["ExpectedReleaseMatching"]

FloatArray = npt.NDArray[np.float64]


class ExpectedReleaseMatching(CandidateAttack):
    """Candidates ranked by the distance of the released vector to their expected release, E[y | x].

    Subclasses give `_embed`, the space in which distances are taken.
    """

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
    def _places(
        self,
        state: ReleaseModel,
        test: CandidateVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        expected = state.expected(test.pool, knowledge, rng)
        return self._embed(state, test.X.astype(np.float64)), self._embed(state, expected)

    @final
    def _details(self, state: ReleaseModel) -> Mapping[str, Any]:
        expectation = f"mean of {state.draws} draws" if state.draws else "affine map"
        return {"expectation": expectation, "penalty": state.penalty, "floor": state.floor}
