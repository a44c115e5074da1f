"""The Bayes posterior: auxiliary texts weighted by how likely each would be released as the vector seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors, PairedVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.release_model import ReleaseModel, fit_release_model
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["BayesPosteriorAttack"]

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_FLOORS = (1e-1, 1.0, 10.0)  # beside the likeliest; larger: closer to a Euclidean distance
_SHARPNESS = tuple(10.0 ** (e / 2) for e in range(-2, 6))  # over the variance of expected releases
_PILOT_ROWS = 500  # validation texts that settings are chosen on
_PRIOR = 1e-3  # weight of the base rates: orders the words that no likely text holds
_CELLS = 2**23


@dataclass(frozen=True, eq=False)
class _Fitted:
    mean: FloatArray
    whitener: FloatArray
    places: Array
    labels: Array
    label_mean: Array
    sharpness: float
    floor: float


class BayesPosteriorAttack(TokenInferenceAttack):
    """Token probabilities under the posterior over auxiliary texts.

    Text j of the auxiliary corpus (the training texts) has the weight exp(-½ · sharpness · d²), d the Mahalanobis
    distance from the vector seen to the expected release of text j; a word's probability is the weighted share of
    texts that hold it. With sharpness 1 and the text in the corpus that is Bayes' rule for Gaussian noise. The text
    is not in the corpus, only texts like it are: sharpness below 1, and a floor under the variances, both
    chosen on validation texts, allow for that.
    """

    name = "bayes-posterior"
    description = "Posterior over auxiliary texts from the noise's covariance, sharpness chosen on validation texts."
    cost = "seconds on one core"
    source = (
        "Bayes' rule over a finite set of texts; as a smoother Nadaraya (1964) and Watson (1964)."
    )
    state_type = _Fitted

    def __init__(self, *, draws: int = 16) -> None:
        """Keep the oracle draws per text: more sharpen the expected releases."""
        self.draws = check_count(draws, owner="BayesPosteriorAttack", param="draws", minimum=2)

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        pairs, other = (PairedVectors(part.X, part.X) for part in (train, validation))
        model = fit_release_model(pairs, other, knowledge, rng, draws=self.draws)
        pilot = validation.take(np.sort(rng.permutation(len(validation))[:_PILOT_ROWS]))
        held = knowledge.draw(pilot.X, rng)
        known, added = (model.expected(part.X, knowledge, rng) for part in (train, validation))
        labels = train.L.astype(np.float32)
        label_mean = labels.mean(axis=0)
        best = -1.0
        chosen: tuple[ReleaseModel, float] | None = None
        for floor in dict.fromkeys((model.floor, *_FLOORS)):
            trial = replace(model, floor=floor)
            places, wanted = (trial.whiten(Y).astype(np.float32) for Y in (known, held))
            logs = _logarithms(wanted, places)
            scale = 1 / max(float(places.var(axis=0).mean()), 1e-12)
            for rate in (*(scale * factor for factor in _SHARPNESS), 1.0):
                scores = _share(logs, labels, label_mean, rate)
                value = validation_r_precision(scores, pilot.L)
                if value > best:
                    best, chosen = value, (trial, rate)
        assert chosen is not None  # every list of settings holds one
        model, rate = chosen
        places = model.whiten(np.concatenate([known, added])).astype(np.float32)
        everything = np.concatenate([train.L, validation.L])
        whitener = model.basis / np.sqrt(model.variance)
        return _Fitted(model.mean, whitener, places, everything, label_mean, rate, model.floor)

    def _scores(self, state: _Fitted, X: Embeddings) -> Array:
        wanted = ((X - state.mean) @ state.whitener).astype(np.float32)
        labels = state.labels.astype(np.float32)
        rows = max(1, _CELLS // len(labels))
        blocks = [
            _share(_logarithms(part, state.places), labels, state.label_mean, state.sharpness)
            for part in (wanted[i : i + rows] for i in range(0, len(wanted), rows))
        ]
        return np.concatenate(blocks)

    def _probabilities(self, scores: Array) -> Array:
        return np.clip(scores, 0.0, 1.0)

    def _details(self, state: _Fitted) -> Mapping[str, Any]:
        return {"sharpness": state.sharpness, "floor": state.floor}


def _logarithms(wanted: Array, places: Array) -> Array:
    """Return -½ of the squared distances, (M, A), up to a constant in each row."""
    logs: Array = wanted @ places.T
    logs -= 0.5 * np.einsum("pr,pr->p", places, places)
    logs -= logs.max(axis=1, keepdims=True)
    return logs


def _share(logs: Array, labels: Array, label_mean: Array, sharpness: float) -> Array:
    """Return P(token | vector), (M, V), with a little of the prior."""
    weights = np.exp(np.float32(sharpness) * logs)
    weights /= weights.sum(axis=1, keepdims=True)
    return (1 - _PRIOR) * (weights @ labels) + _PRIOR * label_mean
