"""Networks for token inference: the tuned MLP, a residual network, and MLC as published in the SPARSE paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import Session
from vecveil.attacks.evidence import FurtherVectors, LabelledVectors
from vecveil.attacks.perceptron import Network, Perceptron, Schedule, fit_perceptron, train_network
from vecveil.attacks.token_inference.base import TokenInferenceAttack, validation_r_precision
from vecveil.runtime import resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive

Array = npt.NDArray[Any]

CONVERGED = 0.01
"""Gain of the last two thirds of a training, in validation R-precision, up to which it counts as converged."""


@dataclass(frozen=True)
class _Size:
    width: int
    batch: int
    steps: int
    epochs: int  # at most: few texts are learnt in fewer steps


LARGE = _Size(width=4096, batch=1024, steps=1500, epochs=600)  # on a GPU
SMALL = _Size(width=1024, batch=256, steps=600, epochs=60)  # on one core

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
            tuple(hidden),
            epochs,
            batch,
            learning_rate,
            dropout,
            decay="cosine",
            input_noise=input_noise,
            weight_decay=weight_decay,
            device=device,
        )
        self.name = "-".join(["mlp", *map(str, self.schedule.hidden)])

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Perceptron:
        schedule, further = self._training(train, validation)
        tokens = max(1, int(validation.L.sum()))

        def error(best: float) -> float:
            """Return the standard error of a share of so many tokens."""
            return math.sqrt(max(best * (1 - best), 1e-12) / tokens)

        return fit_perceptron(
            train, validation, schedule, session, self.name, validation_r_precision, further=further, slack=error
        )

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> tuple[Schedule, FurtherVectors | None]:
        """Return the schedule for so many texts, and the further texts to learn from."""
        return self.schedule, None

    def _scores(self, state: Perceptron, X: Embeddings) -> Array:
        return state(X)

    def _details(self, state: Perceptron) -> Mapping[str, Any]:
        return state.details()


class NetworkAttack(MLPAttack):
    """A wide residual network on freshly protected vectors, half of each batch from further texts if there are any.

    n → width, GELU, then a residual block of as many units with LayerNorm → V. The learning rate falls along a cosine
    twice, over the first third of the steps and over the others: the gain of the second fall shows whether more
    training would find more.
    """

    name = "network"
    description = "Residual network on freshly protected vectors of the training texts, and of further ones if given."
    cost = "a minute on a GPU; half a minute to minutes on one core"
    source = "Own."

    def __init__(self, width: int | None = None, *, effort: float = 1.0, device: str = "auto") -> None:
        """Keep the width, None for what the device trains in reasonable time, and a factor of its number of steps."""
        self.width = None if width is None else check_count(width, owner="NetworkAttack", param="width")
        self.effort = check_positive(effort, owner="NetworkAttack", param="effort")
        self._device = device

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> tuple[Schedule, FurtherVectors | None]:
        device = resolve_device(self._device, owner="NetworkAttack")
        size = SMALL if device == "cpu" else LARGE
        width = self.width or size.width
        further = None if train.further is None else train.further.collected([train.groups, validation.groups])
        rows = len(train) + (0 if further is None else min(len(train), len(further)))
        # Three at least: the first fall of the rate takes one of them.
        epochs = max(3, round(self.effort * min(size.epochs, size.steps / -(-rows // size.batch))))
        schedule = Schedule(
            (width, width),
            epochs,
            size.batch,
            1e-3,
            0.2,
            decay="twice",
            input_noise=0.5,
            weight_decay=0.01,
            residual=True,
            device=device,
        )
        return schedule, further

    def _details(self, state: Perceptron) -> Mapping[str, Any]:
        course = state.course
        # Each of the falls ends at a rate of zero: their ends are figures of a shorter and of a longer training.
        gain = float(course[-1] - course[-(-len(course) // 3) - 1])
        shown = course[np.linspace(0, len(course) - 1, min(12, len(course))).round().astype(int)]
        return {**state.details(), "validation": shown.round(4).tolist(), "gain": gain, "converged": gain <= CONVERGED}


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

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _MLCFit:
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        # A single release, as published: the same vectors in every epoch.
        inputs = session.draw(X).astype(np.float32)
        sizes, show = (inputs.shape[1], L.shape[1]), session.show_progress
        network, _ = train_network(
            lambda rng: (inputs, L), sizes, self.schedule, session.rng, self.name, show_progress=show
        )
        return _MLCFit(network)

    def _scores(self, state: _MLCFit, X: Embeddings) -> Array:
        return state.network(X.astype(np.float32))
