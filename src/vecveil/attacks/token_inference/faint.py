"""The faint-directions attack: reads what rounding leaves in directions that look empty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.types import Embeddings

__all__ = ["FaintDirectionsAttack"]

FloatArray = npt.NDArray[np.float64]

_FAINT = 1e-7  # share of the largest variance below which the other attacks see nothing
_MOST_SPREAD = 4.0  # of validation texts, in standard deviations of the training texts
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True, eq=False)
class _Fitted:
    mean: FloatArray
    strong: FloatArray
    weights: FloatArray
    label_mean: FloatArray


class FaintDirectionsAttack(TokenInferenceAttack):
    """Ridge regression on what remains of a release outside its directions of visible variance.

    A map that drops directions may leave traces of them far below the noise, in the low-order digits
    (a matrix product that is rounded after it, for example). The other attacks drop such directions
    for their own numerical health; this one looks at nothing else, standardised. It is at chance
    where a release has none. A direction counts only if validation texts spread in it as training texts do: with
    fewer texts than dimensions the others are empty by chance, and nothing is read from them.
    """

    name = "faint-directions"
    description = "Closed-form ridge regression on the directions that other attacks drop as empty."
    cost = "seconds on one core"
    source = "Own: what a rounded matrix product leaves behind an erasure."
    state_type = _Fitted

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        Y = knowledge.draw(train.X, rng).astype(np.float64)
        L = train.L.astype(np.float64)
        mean, label_mean = Y.mean(axis=0), L.mean(axis=0)
        centred = Y - mean
        _, strengths, axes = np.linalg.svd(centred, full_matrices=False)
        shown = strengths**2 > _FAINT * max(float(strengths[0]) ** 2, np.finfo(np.float64).tiny)
        strong = axes[shown].T
        faint = centred - (centred @ strong) @ strong.T
        spread = np.sqrt((faint**2).mean(axis=0))
        held = knowledge.draw(validation.X, rng)
        rest = held.astype(np.float64) - mean
        rest = rest - (rest @ strong) @ strong.T
        # What is null in the sample only, for want of rows, is not faint: other texts are far outside it.
        live = (spread > 0) & (np.sqrt((rest**2).mean(axis=0)) <= _MOST_SPREAD * spread)
        state = _Fitted(mean, strong, np.zeros((Y.shape[1], L.shape[1])), label_mean)
        if not live.any():
            return state
        standard = np.zeros(Y.shape[1])
        standard[live] = 1 / spread[live]
        inputs = faint * standard
        gram = inputs.T @ inputs / len(inputs)
        cross = inputs.T @ (L - label_mean) / len(inputs)
        best, chosen = -1.0, state
        for penalty in _PENALTIES:
            solved = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross)
            trial = _Fitted(mean, strong, standard[:, None] * solved, label_mean)
            value = validation_r_precision(self._scores(trial, held), validation.L)
            if value > best:
                best, chosen = value, trial
        return chosen

    def _scores(self, state: _Fitted, X: Embeddings) -> FloatArray:
        centred = X.astype(np.float64) - state.mean
        faint = centred - (centred @ state.strong) @ state.strong.T
        scores: FloatArray = faint @ state.weights + state.label_mean
        return scores

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return np.clip(scores, 0.0, 1.0)
