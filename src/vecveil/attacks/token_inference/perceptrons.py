"""Perceptrons for token inference: the tuned MLP, and MLC as published in the SPARSE paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.attacks.training import Network, Perceptron, Schedule, perceptron_epochs, train_network
from vecveil.runtime import progress
from vecveil.types import Embeddings

Array = npt.NDArray[Any]

# MLC as the SPARSE paper describes it.
PUBLISHED = Schedule(hidden=(512, 256, 128), epochs=20, batch=64, learning_rate=1e-4)


class MLPAttack(TokenInferenceAttack):
    """A multi-label perceptron on standardised released vectors, freshly protected in every epoch if possible.

    The network of the last epoch is kept unless an earlier one was clearly better on validation
    texts (by a standard error): the learning rate falls to zero, so the last is the best unless
    the network has overfitted, and small validation parts are too noisy to pick a single epoch.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "10 seconds to a minute on one core"
    source = "Own; the classifier of SPARSE (MLC), tuned, on fresh protected vectors."
    state_type = Perceptron

    def __init__(
        self,
        hidden: Sequence[int] = (512,),
        *,
        epochs: int = 25,
        batch: int = 128,
        learning_rate: float = 2e-3,
        dropout: float = 0.2,
        input_noise: float = 0.5,
        weight_decay: float = 0.1,
        device: str = "auto",
    ) -> None:
        """Keep the network's shape and training, as `Schedule` describes them.

        ``input_noise`` and ``weight_decay`` are used only without an oracle.
        """
        self.schedule = Schedule(
            tuple(hidden), epochs, batch, learning_rate, dropout,
            cosine=True, input_noise=input_noise, weight_decay=weight_decay, device=device,
        )  # fmt: skip
        self.name = "-".join(["mlp", *map(str, self.schedule.hidden)])

    def _fit(
        self, train: LabelledVectors, validation: LabelledVectors, session: Session
    ) -> Perceptron:
        inputs, epochs = perceptron_epochs(train, validation, self.schedule, session, self.name)
        best, last, best_epoch = -1.0, 0.0, 0
        for epoch, (network, logits) in enumerate(epochs, start=1):
            last = validation_r_precision(logits, validation.L)
            if last > best:
                # A copy: training goes on in the same network.
                best, best_network, best_epoch = last, network.copy(), epoch
        # The standard error of a share of so many tokens.
        tokens = max(1, int(validation.L.sum()))
        error = math.sqrt(max(best * (1 - best), 1e-12) / tokens)
        if best - last <= error:
            best_network, best_epoch = network, self.schedule.epochs
        return Perceptron(inputs, best_network, best_epoch)

    def _scores(self, state: Perceptron, X: Embeddings) -> Array:
        return state(X)

    def _details(self, state: Perceptron) -> Mapping[str, Any]:
        return state.details(self.schedule)


@dataclass(frozen=True, eq=False)
class _MLCFit:
    network: Network


class MLCAttack(TokenInferenceAttack):
    """A perceptron n → 512 → 256 → 128 → V on released vectors as they are.

    Binary cross-entropy, Adam at 1e-4, 20 epochs of batches of 64, one release per training text.
    It is far from converged on a few thousand texts, so it understates leakage; it serves the
    comparison with published figures. The validation part only adds to its training texts.
    """

    name = "mlc-published"
    description = "The published multi-label classifier (weak on few texts; for comparison)."
    cost = "seconds on one core"
    source = "SPARSE, its multi-label classification attack (MLC)."
    state_type = _MLCFit

    def __init__(self, schedule: Schedule = PUBLISHED, *, device: str = "auto") -> None:
        """Keep the training schedule (the default is the published one) and the device: cuda, cpu or auto."""
        self.schedule = replace(schedule, device=device)

    def _fit(
        self, train: LabelledVectors, validation: LabelledVectors, session: Session
    ) -> _MLCFit:
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        # A single release, as published: the same vectors in every epoch.
        inputs = session.draw(X).astype(np.float32)
        steps = train_network(lambda: inputs, L, self.schedule, session.rng)
        show, total = session.show_progress, self.schedule.epochs
        # The iterator yields one network again and again; it must run to its end.
        *_, network = progress(steps, self.name, total=total, show=show, unit="epoch")
        return _MLCFit(network)

    def _scores(self, state: _MLCFit, X: Embeddings) -> Array:
        return state.network(X.astype(np.float32))
