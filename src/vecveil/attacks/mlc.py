"""MLC, the multi-label classifier of the SPARSE paper, as published."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Attack
from vecveil.attacks.knowledge import Knowledge, LabelledVectors
from vecveil.attacks.training import Network, Schedule, train_network
from vecveil.progress import progress
from vecveil.types import Embeddings

__all__ = ["PUBLISHED", "MLCAttack"]

PUBLISHED = Schedule(hidden=(512, 256, 128), epochs=20, batch=64, learning_rate=1e-4)


class MLCAttack(Attack):
    """A perceptron n → 512 → 256 → 128 → V on released vectors as they are.

    Binary cross-entropy, Adam at 1e-4, 20 epochs of batches of 64, one release per training text.
    It is far from converged on a few thousand texts, so it understates leakage; it is here to be
    compared with published figures. The validation part only adds to its training texts.
    """

    name = "mlc-published"
    description = "The published multi-label classifier (weak on few texts; for comparison)."

    def __init__(self, schedule: Schedule = PUBLISHED) -> None:
        """Keep the training schedule; the default is the published one."""
        self.schedule = schedule

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        rng: np.random.Generator,
        show_progress: bool | None,
    ) -> Network:
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        inputs = knowledge.draw(X, rng).astype(np.float32)
        steps = train_network(lambda: inputs, L, self.schedule, rng)
        bar = progress(
            steps, self.name, total=self.schedule.epochs, show=show_progress, unit="epoch"
        )
        *_, network = bar
        return network

    def _scores(self, state: Network, X: Embeddings) -> npt.NDArray[Any]:
        return state(X.astype(np.float32))
