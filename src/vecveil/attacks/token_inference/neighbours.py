"""Token inference by auxiliary texts: a vote of the nearest ones, and their Bayes posterior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import LabelledVectors, PairedVectors
from vecveil.attacks.release_model import Denoiser, fit_denoiser, fit_release_model, mean_release, spectrum
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.types import Embeddings
from vecveil.validation import check_count

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

_NEIGHBOURS = (1, 10, 30, 100, 300)
# Weights exp(sharpness · cosine); 0 is a plain vote.
_VOTE_SHARPNESS = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)
_TEMPER = 0.25  # full whitening (0.5) amplifies the directions that say least
_TOKEN_PENALTY = 1e-3
_PRIOR = 1e-3  # weight of the base rates: orders the words that no near text holds
_CELLS = 2**23  # numbers held at once
_FLOORS = (1e-1, 1.0, 10.0)  # beside the likeliest; larger: closer to a Euclidean distance
_POSTERIOR_SHARPNESS = tuple(10.0 ** (e / 2) for e in range(-2, 6))  # over the places' variance
_PILOT_ROWS = 500  # validation texts that settings are chosen on


@dataclass(frozen=True, eq=False)
class _NeighbourFit:
    denoiser: Denoiser
    projection: FloatArray
    directions: Array
    labels: Array
    label_mean: Array
    metric: str
    neighbours: int
    sharpness: float


class NearestNeighboursAttack(TokenInferenceAttack):
    """A vote among the k auxiliary texts with the greatest cosine to the vector, both denoised.

    The auxiliary corpus is the training texts, each at the mean of several releases (as it was released,
    without an oracle), so that what a release erases counts on neither side. Cosines are taken of centred
    vectors, in one of three metrics: as they are; with every principal direction divided by the
    fourth root of its variance; or of the estimates that ridge regression makes of the token labels.
    Metric, k and the weights exp(sharpness · cosine) are chosen on validation texts.
    """

    name = "nearest-neighbours"
    description = "Vote of the auxiliary texts nearest to the denoised vector; metric and k chosen on validation texts."
    cost = "seconds on one core"
    source = "Cover and Hart (1967), behind a Wiener filter."
    state_type = _NeighbourFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 8) -> None:
        """Keep the oracle draws per text, for the filter and the auxiliary texts; more leave less noise in them."""
        self.draws = check_count(draws, owner="NearestNeighboursAttack", param="draws")

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _NeighbourFit:
        knowledge, rng = session.knowledge, session.rng
        denoiser = fit_denoiser(train.X, validation.X, knowledge, rng, draws=self.draws)

        def located(X: Embeddings) -> FloatArray:
            adaptive = knowledge.adaptive
            return _denoised(denoiser, mean_release(X, knowledge, rng, draws=self.draws) if adaptive else X)

        # Auxiliary texts stand at their mean release; queries are one release, as in the test.
        known, added = located(train.X), located(validation.X)
        held = _denoised(denoiser, knowledge.draw(validation.X, rng))
        label_mean = train.L.mean(axis=0, dtype=np.float32)
        best = -1.0
        for name, projection in _metrics(known, train.L).items():
            # One ranking of the nearest serves every k and every sharpness.
            ranked = _nearest(_unit(held @ projection), _unit(known @ projection), max(_NEIGHBOURS))
            for k in dict.fromkeys(min(k, len(known)) for k in _NEIGHBOURS):
                for rate in _VOTE_SHARPNESS:
                    scores = _votes(*ranked, train.L, label_mean, k, rate)
                    value = validation_r_precision(scores, validation.L)
                    if value > best:
                        best, choice, chosen = value, (name, k, rate), projection
        directions = _unit(np.concatenate([known, added]) @ chosen)
        labels = np.concatenate([train.L, validation.L])
        return _NeighbourFit(denoiser, chosen, directions, labels, label_mean, *choice)

    def _scores(self, state: _NeighbourFit, X: Embeddings) -> Array:
        queries = _unit(_denoised(state.denoiser, X) @ state.projection)
        ranked = _nearest(queries, state.directions, state.neighbours)
        return _votes(*ranked, state.labels, state.label_mean, state.neighbours, state.sharpness)

    def _details(self, state: _NeighbourFit) -> Mapping[str, Any]:
        return {key: getattr(state, key) for key in ("metric", "neighbours", "sharpness")}


def _denoised(denoiser: Denoiser, Y: Embeddings) -> FloatArray:
    centred: FloatArray = denoiser(Y.astype(np.float64)) - denoiser.centre
    return centred


def _metrics(known: FloatArray, L: Array) -> dict[str, FloatArray]:
    """Return, by name, the matrices (n, r) that vectors are multiplied by before cosines are taken."""
    values, vectors = spectrum(known.T @ known / len(known))
    if not values.size:  # constant vectors
        return {"plain": np.zeros((known.shape[1], 1))}
    labels = L - L.mean(axis=0, dtype=np.float64)
    cross = vectors.T @ (known.T @ labels / len(known))
    regression = vectors @ (cross / (values + _TOKEN_PENALTY * values.max())[:, None])
    spread = labels.std(axis=0)
    regression /= np.where(spread > 0, spread, 1.0)
    return {"plain": vectors, "tempered": vectors * values**-_TEMPER, "tokens": regression}


def _unit(X: Array) -> Array:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


def _nearest(queries: Array, known: Array, count: int) -> tuple[Array, Array]:
    """Return indices and cosines of the ``count`` nearest, (M, count), nearest first."""
    count = min(count, len(known))
    rows = max(1, _CELLS // len(known))
    indices, cosines = [], []
    for i in range(0, len(queries), rows):
        block = queries[i : i + rows] @ known.T
        some = np.argpartition(block, len(known) - count, axis=1)[:, len(known) - count :]
        values = np.take_along_axis(block, some, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        indices.append(np.take_along_axis(some, order, axis=1))
        cosines.append(np.take_along_axis(values, order, axis=1))
    return np.concatenate(indices), np.concatenate(cosines)


def _votes(indices: Array, cosines: Array, labels: Array, label_mean: Array, count: int, rate: float) -> Array:
    """Return the weighted share of the ``count`` nearest that hold each token, with a little of the prior."""
    near, closeness = indices[:, :count], cosines[:, :count]
    # Relative to the nearest text, so that exp cannot overflow.
    weights = np.exp(rate * (closeness - closeness[:, :1]))
    weights /= weights.sum(axis=1, keepdims=True)
    votes = np.empty((len(near), labels.shape[1]), dtype=np.float32)
    rows = max(1, _CELLS // (count * labels.shape[1]))
    for i in range(0, len(near), rows):
        held = labels[near[i : i + rows]].astype(np.float32)
        votes[i : i + rows] = np.matmul(weights[i : i + rows, None, :], held)[:, 0]
    return (1 - _PRIOR) * votes + _PRIOR * label_mean


@dataclass(frozen=True, eq=False)
class _PosteriorFit:
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
    distance from the vector to the expected release of text j; a word's probability is the weighted share of
    texts that hold it. With sharpness 1 and the text in the corpus that is Bayes' rule for Gaussian noise. The
    corpus holds only similar texts, not the text itself: a sharpness below 1 and a floor under the variances, both
    chosen on validation texts, allow for that.
    """

    name = "bayes-posterior"
    description = "Posterior over auxiliary texts from the noise's covariance, sharpness chosen on validation texts."
    cost = "seconds on one core"
    source = "Bayes' rule over a finite set of texts; as a smoother Nadaraya (1964) and Watson (1964)."
    state_type = _PosteriorFit
    scores_are_probabilities = True

    def __init__(self, *, draws: int = 16) -> None:
        """Keep the oracle draws per text: more sharpen the expected releases."""
        self.draws = check_count(draws, owner="BayesPosteriorAttack", param="draws", minimum=2)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _PosteriorFit:
        knowledge, rng = session.knowledge, session.rng
        # Without an oracle the vectors are released ones: the pairs then teach the identity.
        pairs, other = (PairedVectors(part.X, part.X) for part in (train, validation))
        model = fit_release_model(pairs, other, knowledge, rng, draws=self.draws)
        pilot = validation.take(np.sort(rng.permutation(len(validation))[:_PILOT_ROWS]))
        held = knowledge.draw(pilot.X, rng)
        known, added = (model.expected(part.X, knowledge, rng) for part in (train, validation))
        labels = train.L.astype(np.float32)
        label_mean = labels.mean(axis=0)
        best = -1.0
        for floor in dict.fromkeys((model.floor, *_FLOORS)):
            trial = replace(model, floor=floor)
            places, queries = (trial.whiten(Y).astype(np.float32) for Y in (known, held))
            logs = _logarithms(queries, places)
            # Sharpness is tried in units of the places' variance, and at 1, which is Bayes' rule.
            scale = 1 / max(float(places.var(axis=0).mean()), 1e-12)
            for rate in (*(scale * factor for factor in _POSTERIOR_SHARPNESS), 1.0):
                value = validation_r_precision(_share(logs, labels, label_mean, rate), pilot.L)
                if value > best:
                    best, chosen, sharpness = value, trial, rate
        places = chosen.whiten(np.concatenate([known, added])).astype(np.float32)
        labels = np.concatenate([train.L, validation.L])
        whitener = chosen.basis / np.sqrt(chosen.variance)
        return _PosteriorFit(chosen.mean, whitener, places, labels, label_mean, sharpness, chosen.floor)

    def _scores(self, state: _PosteriorFit, X: Embeddings) -> Array:
        queries = ((X - state.mean) @ state.whitener).astype(np.float32)
        labels = state.labels.astype(np.float32)
        rows = max(1, _CELLS // len(labels))
        blocks = [
            _share(_logarithms(part, state.places), labels, state.label_mean, state.sharpness)
            for part in (queries[i : i + rows] for i in range(0, len(queries), rows))
        ]
        return np.concatenate(blocks)

    def _details(self, state: _PosteriorFit) -> Mapping[str, Any]:
        return {"sharpness": state.sharpness, "floor": state.floor}


def _logarithms(queries: Array, places: Array) -> Array:
    """Return -½ of the squared distances, (M, A), up to a constant in each row."""
    logs: Array = queries @ places.T
    logs -= 0.5 * np.einsum("pr,pr->p", places, places)
    # The greatest becomes 0, so that exp cannot overflow.
    logs -= logs.max(axis=1, keepdims=True)
    return logs


def _share(logs: Array, labels: Array, label_mean: Array, sharpness: float) -> Array:
    """Return P(token | vector), (M, V), with a little of the prior."""
    weights = np.exp(np.float32(sharpness) * logs)
    weights /= weights.sum(axis=1, keepdims=True)
    return (1 - _PRIOR) * (weights @ labels) + _PRIOR * label_mean
