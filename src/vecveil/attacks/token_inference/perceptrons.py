"""Perceptrons for token inference: the tuned MLP, and MLC as published in the SPARSE paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import Knowledge, LabelledVectors
from vecveil.attacks.release_model import InputMap, fit_input_map
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.attacks.training import Network, Schedule, train_network
from vecveil.runtime import progress
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive, check_probability

__all__ = ["PUBLISHED", "MLCAttack", "MLPAttack"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _MLPFit:
    inputs: InputMap
    network: Network
    epoch: int


class MLPAttack(TokenInferenceAttack):
    """A multi-label perceptron on standardised released vectors.

    With an oracle every epoch sees freshly protected vectors, so that the network cannot learn the
    noise by heart. Without one the same vectors come back every epoch, and noise on the inputs and
    weight decay take that part.

    The network of the last epoch is kept unless an earlier one was clearly better on validation
    texts (by a standard error): the learning rate falls to zero, so the last is the best unless
    the network has overfitted, and small validation parts are too noisy to pick a single epoch.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "10 seconds to a minute on one core"
    source = "Own; the classifier of SPARSE (MLC), tuned, on fresh protected vectors."
    state_type = _MLPFit

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
        """Keep the network's shape and its training.

        Args:
            hidden: Units per hidden layer; larger finds a little more and takes longer.
            epochs: Passes over the training texts.
            batch: Texts per step.
            learning_rate: Adam's, falling to zero along a cosine.
            dropout: Share of hidden units dropped while training.
            input_noise: Standard deviation of noise on the inputs, used only without an oracle.
            weight_decay: Decoupled weight decay, used only without an oracle.
            device: ``"auto"`` takes CUDA where there is one, else the CPU.
        """
        owner = "MLPAttack"
        self.hidden = tuple(check_count(units, owner=owner, param="hidden") for units in hidden)
        self.name = "-".join(["mlp", *map(str, self.hidden)])
        self.epochs = check_count(epochs, owner=owner, param="epochs")
        self.batch = check_count(batch, owner=owner, param="batch")
        self.learning_rate = check_positive(learning_rate, owner=owner, param="learning_rate")
        self.dropout = check_probability(dropout, owner=owner, param="dropout")
        self.input_noise = check_positive(
            input_noise, owner=owner, param="input_noise", allow_zero=True
        )
        self.device = device
        self.weight_decay = check_positive(
            weight_decay, owner=owner, param="weight_decay", allow_zero=True
        )

    def _fit(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _MLPFit:
        rng = session.rng
        inputs = fit_input_map(knowledge.draw(train.X, rng))  # unfiltered: measured stronger here
        held_out = inputs(knowledge.draw(validation.X, rng))
        fixed = not knowledge.adaptive
        schedule = Schedule(
            hidden=self.hidden,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            dropout=self.dropout,
            cosine=True,
            input_noise=self.input_noise if fixed else 0.0,
            weight_decay=self.weight_decay if fixed else 0.0,
            device=self.device,
        )
        steps = train_network(lambda: inputs(knowledge.draw(train.X, rng)), train.L, schedule, rng)
        bar = progress(
            steps, self.name, total=self.epochs, show=session.show_progress, unit="epoch"
        )
        best, last, best_epoch = -1.0, 0.0, 0
        kept: Network | None = None
        network: Network | None = None
        for epoch, network in enumerate(bar, start=1):
            last = validation_r_precision(network(held_out), validation.L)
            if last > best:
                best, kept, best_epoch = last, network.copy(), epoch
        assert kept is not None  # epochs >= 1
        assert network is not None
        tokens = max(1, int(validation.L.sum()))
        error = math.sqrt(max(best * (1 - best), 1e-12) / tokens)
        if best - last <= error:
            kept, best_epoch = network, self.epochs
        return _MLPFit(inputs, kept, best_epoch)

    def _scores(self, state: _MLPFit, X: Embeddings) -> Array:
        return state.network(state.inputs(X))

    def _details(self, state: _MLPFit) -> Mapping[str, Any]:
        return {"epoch": state.epoch, "epochs": self.epochs, "hidden": list(self.hidden)}


PUBLISHED = Schedule(hidden=(512, 256, 128), epochs=20, batch=64, learning_rate=1e-4)


@dataclass(frozen=True, eq=False)
class _MLCFit:
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
    state_type = _MLCFit

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
    ) -> _MLCFit:
        rng = session.rng
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        inputs = knowledge.draw(X, rng).astype(np.float32)
        steps = train_network(lambda: inputs, L, replace(self.schedule, device=self.device), rng)
        bar = progress(
            steps, self.name, total=self.schedule.epochs, show=session.show_progress, unit="epoch"
        )
        *_, network = bar
        return _MLCFit(network)

    def _scores(self, state: _MLCFit, X: Embeddings) -> npt.NDArray[Any]:
        return state.network(X.astype(np.float32))
