"""The kernel attack: Gaussian kernel ridge regression from released vectors to token labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.kernel_ridge import KernelModel, Setting, choose_setting, fit_kernel_ridge
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.types import Embeddings
from vecveil.validation import check_count

__all__ = ["KernelAttack", "Material", "held_out", "is_noisy"]

Array = npt.NDArray[Any]

_PILOT_ROWS = 2000
_TRIALS = 3  # releases of each validation text that settings are chosen on
_COPIES = 4  # fresh releases of each training text at most: more add little and cost their cube


@dataclass(frozen=True, eq=False)
class Material:
    """What a regression is fitted on: vectors that are still to be released, labels, weights.

    Attributes:
        X: (N, n) vectors.
        L: (N, V) labels.
        weight: (N,) what each row counts.
        blocks: Rows that are fitted together; empty: all of them.
    """

    X: Embeddings
    L: Array
    weight: Array
    blocks: tuple[npt.NDArray[np.intp], ...] = ()


class KernelAttack(TokenInferenceAttack):
    """Kernel ridge regression: non-linear like the MLP, closed form like the linear attack.

    Width and penalty are chosen on validation texts with a part of the training rows, and, where a noise
    covariance is declared, whether the Wiener filter comes first. With an oracle the training rows are filled
    up to ``rows`` with further fresh releases.
    """

    name = "kernel"
    description = "Gaussian kernel ridge regression, width and penalty chosen on validation texts."
    cost = "10 seconds and a few hundred MiB on one core"
    source = "Own; kernel ridge regression, Saunders, Gammerman and Vovk (1998)."
    state_type = KernelModel

    def __init__(self, *, rows: int = 8192) -> None:
        """Keep the most training rows to use: time grows with its cube, memory with its square."""
        self.rows = check_count(rows, owner=type(self).__name__, param="rows", minimum=2)

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> KernelModel:
        self.require(train)
        rng = session.rng
        setting = self.choose(train, validation, knowledge, rng)
        return self.learn([train, validation], setting, knowledge, rng)

    def require(self, train: LabelledVectors) -> None:
        """Refuse evidence that lacks what this attack learns from."""

    def choose(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Setting:
        """Return the setting that finds most in validation texts."""
        pilot = train.take(np.sort(rng.permutation(len(train))[:_PILOT_ROWS]))
        Y = knowledge.draw(pilot.X, rng)
        held, labels = held_out(validation, knowledge, rng)
        return choose_setting(
            Y,
            pilot.L,
            held,
            lambda scores: validation_r_precision(scores, labels),
            knowledge.noise_covariance,
        )

    def learn(
        self,
        parts: list[LabelledVectors],
        setting: Setting,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> KernelModel:
        """Return the regression fitted on the texts of all parts."""
        given = self._material(parts, knowledge, rng)
        Y = knowledge.draw(given.X, rng)
        S = knowledge.noise_covariance
        return fit_kernel_ridge(Y, given.L, given.weight, setting, S, given.blocks)

    def _material(
        self, parts: list[LabelledVectors], knowledge: Knowledge, rng: np.random.Generator
    ) -> Material:
        """Return what to learn from."""
        X = np.concatenate([part.X for part in parts])
        L = np.concatenate([part.L for part in parts])
        rows = rng.permutation(len(X))[: self.rows]
        if is_noisy(X, knowledge, rng):
            copies = [rng.permutation(len(X)) for _ in range(min(_COPIES, -(-self.rows // len(X))))]
            rows = np.concatenate(copies)[: self.rows]
        return Material(X[rows], L[rows], np.ones(len(rows), dtype=np.float32))

    def _scores(self, state: KernelModel, X: Embeddings) -> Array:
        return state(X)

    def _probabilities(self, scores: Array) -> Array:
        return np.clip(scores, 0.0, 1.0)

    def _details(self, state: KernelModel) -> Mapping[str, Any]:
        return state.details()


def held_out(
    validation: LabelledVectors, knowledge: Knowledge, rng: np.random.Generator
) -> tuple[Embeddings, Array]:
    """Return releases of the validation texts that settings are chosen on, and their labels."""
    trials = _TRIALS if is_noisy(validation.X, knowledge, rng) else 1
    held = np.concatenate([knowledge.draw(validation.X, rng) for _ in range(trials)])
    return held, np.tile(validation.L, (trials, 1))


def is_noisy(X: Embeddings, knowledge: Knowledge, rng: np.random.Generator) -> bool:
    """Return whether two releases of the same vectors differ: only then do more of them teach something."""
    if not knowledge.adaptive:
        return False
    some = X[:64]
    return not np.array_equal(knowledge.draw(some, rng), knowledge.draw(some, rng))
