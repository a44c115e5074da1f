"""The MLP probe: one hidden layer on standardised releases, drawn afresh in every epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.base import Session
from vecveil.attacks.evidence import LabelledVectors
from vecveil.attacks.features import InputMap, fit_input_map
from vecveil.attacks.knowledge import Knowledge
from vecveil.attacks.networks.training import Network, Schedule, train_network
from vecveil.attacks.probes.base import ProbeAttack, validation_auc
from vecveil.runtime import progress
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive

__all__ = ["MLPProbe"]

Array = npt.NDArray[Any]

_DROPOUT = 0.2
_INPUT_NOISE = 0.5  # without an oracle the same vectors come back in every epoch
_WEIGHT_DECAY = 0.1


@dataclass(frozen=True, eq=False)
class _Model:
    inputs: InputMap
    network: Network
    epoch: int


@dataclass(frozen=True, eq=False)
class _Fitted:
    model: _Model
    scores: npt.NDArray[np.float64]
    labels: Array


class MLPProbe(ProbeAttack):
    """A perceptron on standardised released vectors; the epoch with the best validation AUC is kept.

    With an oracle every epoch sees freshly protected vectors. Without one, noise on the inputs and
    weight decay keep the network from learning the vectors by heart.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "seconds to half a minute on one core"
    source = "Own; the tuned token-inference perceptron with one label."
    state_type = _Fitted

    def __init__(
        self,
        hidden: Sequence[int] = (512,),
        *,
        epochs: int = 12,
        batch: int = 256,
        learning_rate: float = 2e-3,
        device: str = "auto",
    ) -> None:
        """Keep the network's shape and its training.

        Args:
            hidden: Units per hidden layer; larger finds a little more and takes longer.
            epochs: Passes over the training texts.
            batch: Texts per step.
            learning_rate: Adam's, falling to zero along a cosine.
            device: ``"auto"`` takes CUDA where there is one, else the CPU.
        """
        owner = "MLPProbe"
        self.hidden = tuple(check_count(units, owner=owner, param="hidden") for units in hidden)
        self.name = "-".join(["probe-mlp", *map(str, self.hidden)])
        self.epochs = check_count(epochs, owner=owner, param="epochs")
        self.batch = check_count(batch, owner=owner, param="batch")
        self.learning_rate = check_positive(learning_rate, owner=owner, param="learning_rate")
        self.device = device

    def _learn(
        self,
        train: LabelledVectors,
        validation: LabelledVectors,
        knowledge: Knowledge,
        session: Session,
    ) -> _Model:
        rng = session.rng
        inputs = fit_input_map(knowledge.draw(train.X, rng))
        held_out = inputs(knowledge.draw(validation.X, rng))
        fixed = not knowledge.adaptive
        schedule = Schedule(
            hidden=self.hidden,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate,
            dropout=_DROPOUT,
            cosine=True,
            input_noise=_INPUT_NOISE if fixed else 0.0,
            weight_decay=_WEIGHT_DECAY if fixed else 0.0,
            device=self.device,
        )
        steps = train_network(lambda: inputs(knowledge.draw(train.X, rng)), train.L, schedule, rng)
        bar = progress(
            steps, self.name, total=self.epochs, show=session.show_progress, unit="epoch"
        )
        best, best_epoch = -1.0, 0
        kept: Network | None = None
        for epoch, network in enumerate(bar, start=1):
            value = validation_auc(network(held_out)[:, 0], validation.L)
            if value >= best:
                best, kept, best_epoch = value, network.copy(), epoch
        assert kept is not None  # epochs >= 1
        return _Model(inputs, kept, best_epoch)

    def _scores(self, model: _Model, X: Embeddings) -> Array:
        scores: Array = model.network(model.inputs(X))[:, 0]
        return scores

    def _details(self, model: _Model) -> Mapping[str, Any]:
        return {"epoch": model.epoch, "epochs": self.epochs, "hidden": list(self.hidden)}
