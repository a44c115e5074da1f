"""Linear token inference: ridge regression on releases, and on the directions that other attacks drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.release_model import CUT_OFF, ReleaseMoments, choose_penalty, release_moments, ridge, spectrum
from vecveil.attacks.token_inference.base import TokenInferenceAttack, held_out, validation_r_precision
from vecveil.types import Embeddings

FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, 0))
_FAINT_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
_MOST_SPREAD = 4.0  # of validation texts, in standard deviations of the training texts


@dataclass(frozen=True, eq=False)
class _LinearFit:
    mean: FloatArray
    label_mean: FloatArray
    weights: FloatArray
    penalty: float


def fit_linear(
    train: LabelledVectors,
    validation: LabelledVectors,
    session: Session,
    judge: Callable[[FloatArray, npt.NDArray[Any]], float],
    *,
    draws: int,
) -> tuple[ReleaseMoments, float, FloatArray]:
    """Return the moments of the training releases, the ridge penalty that ``judge`` prefers, and its weights.

    ``judge(scores, L)`` returns the figure of scores of validation texts.
    """
    knowledge, rng = session.knowledge, session.rng
    moments = release_moments(train.X, train.L, knowledge, rng, draws=draws)
    held, labels = held_out(validation, knowledge, rng)
    chosen = choose_penalty(moments, held, lambda scores: judge(scores, labels), _PENALTIES)
    return moments, *chosen


class LinearAttack(TokenInferenceAttack):
    """Least squares with the noise covariance that the attacker knows.

    With an oracle the labels are regressed on released vectors whose noise is averaged over many
    draws; a declared noise covariance replaces the sampled one exactly. This is the Wiener solution
    Cov(y)⁻¹ Cov(y, L). The ridge penalty is chosen on validation texts from one
    eigendecomposition; directions without variance are dropped, so singular releases are safe.
    """

    name = "linear"
    description = "Closed-form ridge regression from released vectors to tokens."
    cost = "a second on one core"
    source = "The Wiener filter as a classifier; what linear erasure is built against (Belrose et al. 2023, LEACE)."
    state_type = _LinearFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 8) -> None:
        """Keep the number of oracle draws; more of them bring the moments closer to their limit."""
        self.draws = draws

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _LinearFit:
        knowledge, rng = session.knowledge, session.rng
        judge = validation_r_precision
        _, penalty, _ = fit_linear(train, validation, session, judge, draws=self.draws)
        # With the penalty chosen, the final fit uses the validation texts as well.
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        whole = release_moments(X, L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(whole.covariance)
        weights = vectors @ ridge(vectors.T @ whole.cross, values, penalty)
        return _LinearFit(whole.mean, whole.target_mean, weights, penalty)

    def _scores(self, state: _LinearFit, X: Embeddings) -> FloatArray:
        return (X.astype(np.float64) - state.mean) @ state.weights + state.label_mean

    def _details(self, state: _LinearFit) -> Mapping[str, Any]:
        return {"penalty": state.penalty}


@dataclass(frozen=True, eq=False)
class _FaintFit:
    mean: FloatArray
    strong: FloatArray
    weights: FloatArray
    label_mean: FloatArray


class FaintDirectionsAttack(TokenInferenceAttack):
    """Ridge regression on a release outside its directions of visible variance.

    A map that drops directions may leave traces of them far below the noise, as in the last digits of a rounded
    matrix product; without traces the attack is at chance. The other attacks drop such directions for numerical
    health. A direction counts only if validation texts spread in it as training texts do: with fewer texts than
    dimensions some directions are empty by chance.
    """

    name = "faint-directions"
    description = "Closed-form ridge regression on the directions that other attacks drop as empty."
    cost = "seconds on one core"
    source = "Own: what a rounded matrix product leaves behind an erasure."
    state_type = _FaintFit
    scores_are_probabilities = True

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _FaintFit:
        Y = session.draw(train.X).astype(np.float64)
        L = train.L.astype(np.float64)
        mean, label_mean = Y.mean(axis=0), L.mean(axis=0)
        centred = Y - mean
        _, strengths, axes = np.linalg.svd(centred, full_matrices=False)
        # Squared singular values are variances up to the number of rows.
        shown = strengths**2 > CUT_OFF * max(float(strengths[0]) ** 2, np.finfo(np.float64).tiny)
        strong = axes[shown].T
        faint = centred - (centred @ strong) @ strong.T
        spread = np.sqrt((faint**2).mean(axis=0))
        # Below this lies the rounding of our own projection, which is a linear map of the whole release.
        rounding = max(Y.shape) * np.finfo(np.float64).eps * strengths[0] / np.sqrt(len(Y))
        held = session.draw(validation.X)
        rest = held.astype(np.float64) - mean
        rest = rest - (rest @ strong) @ strong.T
        # A direction that is empty in the sample alone, for lack of rows, is not faint: other texts vary in it.
        held_spread = np.sqrt((rest**2).mean(axis=0))
        live = (spread > rounding) & (held_spread <= _MOST_SPREAD * spread)
        # Without faint directions every score is a label mean, which is chance.
        state = _FaintFit(mean, strong, np.zeros((Y.shape[1], L.shape[1])), label_mean)
        # At full rank only rounding errors of this projection are left over, as large as the BLAS kernel makes them.
        if not live.any() or strong.shape[1] == Y.shape[1]:
            return state
        standard = np.zeros(Y.shape[1])
        standard[live] = 1 / spread[live]
        inputs = faint * standard
        gram = inputs.T @ inputs / len(inputs)
        cross = inputs.T @ (L - label_mean) / len(inputs)
        best = -1.0
        for penalty in _FAINT_PENALTIES:
            solved = np.linalg.solve(gram + penalty * np.eye(len(gram)), cross)
            trial = _FaintFit(mean, strong, standard[:, None] * solved, label_mean)
            value = validation_r_precision(self._scores(trial, held), validation.L)
            if value > best:
                best, state = value, trial
        return state

    def _scores(self, state: _FaintFit, X: Embeddings) -> FloatArray:
        centred = X.astype(np.float64) - state.mean
        faint = centred - (centred @ state.strong) @ state.strong.T
        scores: FloatArray = faint @ state.weights + state.label_mean
        return scores
