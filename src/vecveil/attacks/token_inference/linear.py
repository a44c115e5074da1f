"""The closed-form linear attack: ridge regression from released vectors to token labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.moments import release_moments, spectrum
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.types import Embeddings

__all__ = ["LinearAttack"]

FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, 0))


@dataclass(frozen=True, eq=False)
class _Fitted:
    mean: FloatArray
    label_mean: FloatArray
    weights: FloatArray
    penalty: float


class LinearAttack(TokenInferenceAttack):
    """The least-squares attack, with the noise it knows of put into the covariance.

    With an oracle the labels are regressed on released vectors whose noise is averaged over many
    draws; a declared noise covariance replaces the sampled one exactly. That is the Wiener solution
    Cov(y)⁻¹ Cov(y, L). The ridge penalty is chosen on validation texts from one
    eigendecomposition; directions without variance are dropped, so singular releases are safe.
    """

    name = "linear"
    description = "Closed-form ridge regression from released vectors to tokens."
    cost = "a second on one core"
    source = "The Wiener filter as a classifier; what linear erasure is built against (Belrose et al. 2023, LEACE)."
    state_type = _Fitted

    def __init__(self, *, draws: int = 8) -> None:
        """Keep the number of oracle draws; more of them bring the moments closer to their limit."""
        self.draws = draws

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        own = release_moments(train.X, train.L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(own.covariance)
        trials = 3 if knowledge.adaptive else 1
        held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
        held = (held.astype(np.float64) - own.mean) @ vectors
        labels = np.tile(validation.L, (trials, 1))
        target = vectors.T @ own.cross
        best, penalty = -1.0, _PENALTIES[0]
        for candidate in _PENALTIES:
            weights = target / (values + candidate * values.max(initial=0.0))[:, None]
            value = validation_r_precision(held @ weights + own.target_mean, labels)
            if value >= best:
                best, penalty = value, candidate
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        whole = release_moments(X, L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(whole.covariance)
        scale = values + penalty * values.max(initial=0.0)
        weights = vectors @ ((vectors.T @ whole.cross) / scale[:, None])
        return _Fitted(whole.mean, whole.target_mean, weights, penalty)

    def _scores(self, state: _Fitted, X: Embeddings) -> FloatArray:
        return (X.astype(np.float64) - state.mean) @ state.weights + state.label_mean

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return np.clip(scores, 0.0, 1.0)

    def _details(self, state: _Fitted) -> Mapping[str, Any]:
        return {"penalty": state.penalty}
