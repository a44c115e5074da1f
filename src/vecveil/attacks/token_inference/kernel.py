"""The kernel attack: Gaussian kernel ridge regression from released vectors to token labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.features import InputMap, fit_input_map
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.checks import check_count
from vecveil.types import Embeddings

__all__ = ["KernelAttack"]

Array = npt.NDArray[Any]

_SHARPNESS = (0.5, 1.0, 2.0, 4.0)  # 1: a kernel of 1/e at the median squared distance
_PENALTIES = (0.03, 0.1, 0.3, 1.0)
_PILOT_ROWS = 2000
_COPIES = 4  # fresh releases of each training text at most: more add little and cost their cube
_BLOCK = 2000


@dataclass(frozen=True, eq=False)
class _Fitted:
    inputs: InputMap
    centres: Array
    weights: Array
    label_mean: Array
    scale: float
    sharpness: float
    penalty: float


class KernelAttack(TokenInferenceAttack):
    """Kernel ridge regression: non-linear like the MLP, closed form like the linear attack.

    Width and penalty are chosen on validation texts with a part of the training rows. With an
    oracle the training rows are filled up to ``rows`` with further fresh releases.
    """

    name = "kernel"
    description = "Gaussian kernel ridge regression, width and penalty chosen on validation texts."
    cost = "10 seconds and a few hundred MiB on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = _Fitted

    def __init__(self, *, rows: int = 8192) -> None:
        """Keep the most training rows to use: time grows with its cube, memory with its square."""
        self.rows = check_count(rows, owner="KernelAttack", param="rows", minimum=2)

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        pilot = train.take(np.sort(rng.permutation(len(train))[:_PILOT_ROWS]))
        sharpness, penalty = self._choose(pilot, validation, knowledge, rng)
        X, L = self._rows(train, validation, knowledge, rng)
        Y = knowledge.draw(X, rng)
        inputs = fit_input_map(Y, knowledge.noise_covariance)
        centres, labels = inputs(Y), L.astype(np.float32)
        label_mean = labels.mean(axis=0)
        scale = _median_distance(centres)
        kernel = _kernel(centres, centres, sharpness / scale)
        weights = _solve(kernel, labels - label_mean, penalty)
        return _Fitted(inputs, centres, weights, label_mean, scale, sharpness, penalty)

    def _rows(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> tuple[Embeddings, Array]:
        """Return the vectors to learn from, which are then released, and their labels."""
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        rows = rng.permutation(len(X))[: self.rows]
        if knowledge.adaptive and _is_noisy(train.X[:_PILOT_ROWS], knowledge, rng):
            copies = [rng.permutation(len(X)) for _ in range(min(_COPIES, -(-self.rows // len(X))))]
            rows = np.concatenate(copies)[: self.rows]
        return X[rows], L[rows]

    def _choose(
        self,
        pilot: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> tuple[float, float]:
        Y = knowledge.draw(pilot.X, rng)
        inputs = fit_input_map(Y, knowledge.noise_covariance)
        centres, held_out = inputs(Y), inputs(knowledge.draw(validation.X, rng))
        labels = pilot.L.astype(np.float32)
        label_mean = labels.mean(axis=0)
        scale = _median_distance(centres)
        best, chosen = -1.0, (1.0, 0.1)
        for sharpness in _SHARPNESS:
            kernel = _kernel(centres, centres, sharpness / scale)
            across = _kernel(held_out, centres, sharpness / scale)
            for penalty in _PENALTIES:
                weights = _solve(kernel.copy(), labels - label_mean, penalty)
                value = validation_r_precision(across @ weights + label_mean, validation.L)
                if value > best:
                    best, chosen = value, (sharpness, penalty)
        return chosen

    def _scores(self, state: _Fitted, X: Embeddings) -> Array:
        inputs = state.inputs(X)
        rate = state.sharpness / state.scale
        blocks = [
            _kernel(inputs[i : i + _BLOCK], state.centres, rate) @ state.weights
            for i in range(0, len(inputs), _BLOCK)
        ]
        return np.concatenate(blocks) + state.label_mean

    def _probabilities(self, scores: Array) -> Array:
        return np.clip(scores, 0.0, 1.0)

    def _details(self, state: _Fitted) -> Mapping[str, Any]:
        return {
            "sharpness": state.sharpness,
            "penalty": state.penalty,
            "rows": len(state.centres),
        }


def _is_noisy(X: Array, knowledge: Knowledge, rng: np.random.Generator) -> bool:
    return not np.array_equal(knowledge.draw(X, rng), knowledge.draw(X, rng))


def _squared_distances(left: Array, right: Array) -> Array:
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None, :]
    squares -= 2 * (left @ right.T)
    distances: Array = np.maximum(squares, 0, out=squares)
    return distances


def _kernel(left: Array, right: Array, rate: float) -> Array:
    kernel = _squared_distances(left, right)
    kernel *= -rate
    result: Array = np.exp(kernel, out=kernel)
    return result


def _median_distance(inputs: Array) -> float:
    """Return the median squared distance between some rows of ``inputs``; 1 if that is 0."""
    part = inputs[:700]
    distances = _squared_distances(part, part)[np.triu_indices(len(part), k=1)]
    median = float(np.median(distances)) if distances.size else 0.0
    return median if median > 0 else 1.0


def _solve(kernel: Array, target: Array, penalty: float) -> Array:
    """Return (kernel + penalty · I)⁻¹ target; overwrites ``kernel``."""
    diagonal = np.diag_indices(len(kernel))
    kernel[diagonal] += penalty
    try:
        weights: Array = cho_solve(cho_factor(kernel, lower=True, check_finite=False), target)
    except LinAlgError:  # float32 is not enough when many rows coincide
        exact = kernel.astype(np.float64)
        exact[diagonal] += 1e-6 * len(kernel)
        weights = cho_solve(cho_factor(exact, lower=True, check_finite=False), target)
    return weights
