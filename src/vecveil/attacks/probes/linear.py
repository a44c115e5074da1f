"""The linear probe: the regularised discriminant of texts with the concept and texts without it."""

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
from vecveil.attacks.probes.base import ProbeAttack, validation_auc
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["LinearProbe"]

FloatArray = npt.NDArray[np.float64]

_PENALTIES = tuple(10.0**e for e in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, 0))
_TRIALS = 3  # releases of each validation text that the penalty is chosen on


@dataclass(frozen=True, eq=False)
class _Model:
    mean: FloatArray
    weights: FloatArray
    penalty: float


@dataclass(frozen=True, eq=False)
class _Fitted:
    model: _Model
    scores: FloatArray
    labels: npt.NDArray[Any]


class LinearProbe(ProbeAttack):
    """Fisher's discriminant (Cov(y) + penalty)⁻¹ Cov(y, label), the ridge solution.

    With an oracle the covariances are averages over several releases of each text, and a declared
    noise covariance is put in exactly. Directions without variance are dropped.
    """

    name = "probe-linear"
    description = (
        "Regularised linear discriminant between texts with the concept and texts without."
    )
    cost = "a second on one core"
    source = "Fisher (1936), regularised; as a probe Alain and Bengio (2016)."
    state_type = _Fitted

    def __init__(self, *, draws: int = 8) -> None:
        """Keep the number of oracle draws; more of them bring the moments closer to their limit."""
        self.draws = check_count(draws, owner="LinearProbe", param="draws")

    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Model:
        rng = session.rng
        found = release_moments(train.X, train.L, knowledge, rng, draws=self.draws)
        values, vectors = spectrum(found.covariance)
        target = vectors.T @ found.cross[:, 0]
        trials = _TRIALS if knowledge.adaptive else 1
        held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
        inputs = (held.astype(np.float64) - found.mean) @ vectors
        labels = np.tile(validation.L, (trials, 1))
        best, penalty = -1.0, _PENALTIES[0]
        for candidate in _PENALTIES:
            scores = inputs @ (target / (values + candidate * values.max(initial=0.0)))
            value = validation_auc(scores, labels)
            if value >= best:
                best, penalty = value, candidate
        weights = vectors @ (target / (values + penalty * values.max(initial=0.0)))
        return _Model(found.mean, weights, penalty)

    def _scores(self, model: _Model, X: Embeddings) -> FloatArray:
        scores: FloatArray = (X.astype(np.float64) - model.mean) @ model.weights
        return scores

    def _details(self, model: _Model) -> Mapping[str, Any]:
        return {"penalty": model.penalty}
