"""MLC, the multi-label classifier of the SPARSE paper, as published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.networks.training import Network, Schedule, train_network
from vecveil.attacks.token_inference.base import TokenInferenceAttack
from vecveil.runtime import progress
from vecveil.types import Embeddings

__all__ = ["PUBLISHED", "MLCAttack"]

PUBLISHED = Schedule(hidden=(512, 256, 128), epochs=20, batch=64, learning_rate=1e-4)


@dataclass(frozen=True, eq=False)
class _Fitted:
    network: Network


class MLCAttack(TokenInferenceAttack):
    """A perceptron n → 512 → 256 → 128 → V on released vectors as they are.

    Binary cross-entropy, Adam at 1e-4, 20 epochs of batches of 64, one release per training text.
    It is far from converged on a few thousand texts, so it understates leakage; it is here to be
    compared with published figures. The validation part only adds to its training texts.
    """

    name = "mlc-published"
    description = "The published multi-label classifier (weak on few texts; for comparison)."
    cost = "seconds on one core"
    source = "SPARSE, its multi-label classification attack (MLC)."
    state_type = _Fitted

    def __init__(self, schedule: Schedule = PUBLISHED, *, device: str = "auto") -> None:
        """Keep the training schedule (the default is the published one) and the device: cuda, cpu or auto."""
        self.schedule = schedule
        self.device = device

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Fitted:
        rng = session.rng
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        inputs = knowledge.draw(X, rng).astype(np.float32)
        steps = train_network(lambda: inputs, L, replace(self.schedule, device=self.device), rng)
        bar = progress(
            steps, self.name, total=self.schedule.epochs, show=session.show_progress, unit="epoch"
        )
        *_, network = bar
        return _Fitted(network)

    def _scores(self, state: _Fitted, X: Embeddings) -> npt.NDArray[Any]:
        return state.network(X.astype(np.float32))
