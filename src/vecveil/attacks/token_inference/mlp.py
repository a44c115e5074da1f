"""The strong MLP attack: fresh protected noise every epoch, tuned, validation-stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.features import InputMap, fit_input_map
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.networks.training import Network, Schedule, train_network
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.runtime import progress
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive, check_probability

__all__ = ["MLPAttack"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Fitted:
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
    state_type = _Fitted

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
    ) -> _Fitted:
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
        return _Fitted(inputs, kept, best_epoch)

    def _scores(self, state: _Fitted, X: Embeddings) -> Array:
        return state.network(state.inputs(X))

    def _details(self, state: _Fitted) -> Mapping[str, Any]:
        return {"epoch": state.epoch, "epochs": self.epochs, "hidden": list(self.hidden)}
