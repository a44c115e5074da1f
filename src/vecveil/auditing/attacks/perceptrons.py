"""Networks on released vectors: perceptrons, their training on fresh releases, and the attacks that use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.auditing.attacks.attack import LabelledVectors, Session
from vecveil.auditing.attacks.release_model import InputMap, fit_input_map
from vecveil.auditing.attacks.token_inference import TokenInferenceAttack, validation_r_precision
from vecveil.privacy.networks import PUBLISHED, Network, Schedule, train_network
from vecveil.privacy.training import TrainingRun, load_weights
from vecveil.runtime import resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A trained network of released vectors, its ``epoch``, and the validation figure after each (``course``)."""

    inputs: InputMap
    network: Network
    epoch: int
    course: Array

    def __call__(self, Y: Embeddings) -> Array:
        return self.network(self.inputs(Y))

    def details(self) -> dict[str, Any]:
        matrices = [value for value in self.network.to_arrays().values() if value.ndim == 2]
        return {"epoch": self.epoch, "epochs": len(self.course), "hidden": [len(each) for each in matrices[:-1]]}


def fit_perceptron(
    train: LabelledVectors,
    validation: LabelledVectors,
    schedule: Schedule,
    session: Session,
    name: str,
    judge: Callable[[Array, Array], float],
    *,
    slack: Callable[[float], float] = lambda best: 0.0,
) -> Perceptron:
    """Return the network of the last epoch, unless an earlier one was better on validation texts by over ``slack``.

    With an oracle every epoch sees fresh releases, so the network cannot memorise the noise. Without one, the
    schedule's input noise and weight decay regularise. Every epoch draws as many further texts
    (`LabelledVectors.further`) as there are training texts. ``judge(logits, L)`` returns the figure of validation
    texts.
    """
    inputs = fit_input_map(session.draw(train.X))  # unfiltered: measured stronger here
    held_out = inputs(session.draw(validation.X))
    if session.knowledge.adaptive:
        schedule = replace(schedule, input_noise=0.0, weight_decay=0.0)

    def draw(rng: np.random.Generator) -> tuple[Array, Array]:
        X, L, further = train.X, train.L, train.further
        if further is not None:
            some = rng.choice(len(further), min(len(further), len(X)), replace=False)
            X, L = np.concatenate([X, further.X[some]]), np.concatenate([L, further.L[some]])
        return inputs(session.knowledge.draw(X, rng)), L

    network, fit = train_network(
        draw,
        (inputs.weights.shape[1], train.L.shape[1]),
        schedule,
        TrainingRun(session.rng, name, session.show_progress),
        validate=lambda network: -judge(network(held_out), validation.L),
    )
    course = -np.array([value for _, value in fit.history])
    epoch = len(course)
    if course.max() - course[-1] > slack(float(course.max())):
        load_weights(network.module, fit.best)
        epoch = fit.best_epoch
    return Perceptron(inputs, network, epoch, course)


CONVERGED = 0.01
"""Maximum gain of the last two thirds of a converged training, in validation R-precision."""


@dataclass(frozen=True)
class _Size:
    width: int
    batch: int
    steps: int
    epochs: int  # at most: few texts are learnt in fewer steps


LARGE = _Size(width=4096, batch=1024, steps=1500, epochs=600)  # on a GPU
SMALL = _Size(width=1024, batch=256, steps=600, epochs=60)  # on one core


TUNED = Schedule((512,), 25, 128, 2e-3, 0.2, decay="cosine", input_noise=0.5, weight_decay=0.1)


class ScheduleOptions(TypedDict, total=False):
    """Fields of `Schedule` that the perceptrons take as arguments."""

    epochs: int
    batch: int
    learning_rate: float
    dropout: float
    input_noise: float
    weight_decay: float


class MLPAttack(TokenInferenceAttack):
    """A multi-label perceptron on standardised released vectors, freshly protected in every epoch if possible.

    It keeps the last epoch unless an earlier one was better on validation texts by a standard error: the learning rate
    falls to zero, so the last is the best unless the network has overfitted.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "10 seconds to a minute on one core"
    source = "Own; the classifier of SPARSE (MLC), tuned, on fresh protected vectors."
    state_type = Perceptron

    def __init__(
        self, hidden: Sequence[int] = (512,), *, device: str = "auto", **training: Unpack[ScheduleOptions]
    ) -> None:
        """Set the network's shape and changes to `TUNED`; input noise and weight decay apply without an oracle only."""
        self.schedule = replace(TUNED, hidden=tuple(hidden), device=device, **training)
        self.name = "-".join(["mlp", *map(str, self.schedule.hidden)])

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> Perceptron:
        schedule, train = self._training(train, validation)
        tokens = max(1, int(validation.L.sum()))

        def error(best: float) -> float:
            """Return the standard error of a share of so many tokens."""
            return math.sqrt(max(best * (1 - best), 1e-12) / tokens)

        return fit_perceptron(train, validation, schedule, session, self.name, validation_r_precision, slack=error)

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> tuple[Schedule, LabelledVectors]:
        return self.schedule, replace(train, further=None)

    def _scores(self, state: Perceptron, X: Embeddings) -> Array:
        return state(X)

    def _details(self, state: Perceptron) -> Mapping[str, Any]:
        return state.details()


class NetworkAttack(MLPAttack):
    """A wide residual network on freshly protected vectors, half of each batch from further texts if there are any.

    n → width, GELU, then a residual block of as many units with LayerNorm → V. The learning rate falls along a cosine
    twice, over the first third of the steps and over the rest: the gain of the second fall shows whether more training
    would help.
    """

    name = "network"
    description = "Residual network on freshly protected vectors of the training texts, and of further ones if given."
    cost = "a minute on a GPU; half a minute to minutes on one core"
    source = "Own."

    def __init__(self, width: int | None = None, *, effort: float = 1.0, device: str = "auto") -> None:
        """Set the width, None for what the device trains in reasonable time, and a factor of the number of steps."""
        self.width = None if width is None else check_count(width, owner="NetworkAttack", param="width")
        self.effort = check_positive(effort, owner="NetworkAttack", param="effort")
        self._device = device

    def _training(self, train: LabelledVectors, validation: LabelledVectors) -> tuple[Schedule, LabelledVectors]:
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
        return schedule, replace(train, further=further)

    def _details(self, state: Perceptron) -> Mapping[str, Any]:
        course = state.course
        # Each fall ends at a rate of zero, so their ends compare a shorter and a longer training.
        gain = float(course[-1] - course[-(-len(course) // 3) - 1])
        shown = course[np.linspace(0, len(course) - 1, min(12, len(course))).round().astype(int)]
        return {**state.details(), "validation": shown.round(4).tolist(), "gain": gain, "converged": gain <= CONVERGED}


@dataclass(frozen=True, eq=False)
class _MLCFit:
    network: Network


class MLCAttack(TokenInferenceAttack):
    """A perceptron n → 512 → 256 → 128 → V on released vectors without preprocessing.

    Binary cross-entropy, Adam at 1e-4, 20 epochs of batches of 64, one release per training text. It is far from
    converged on a few thousand texts, so it understates leakage; it is for comparison with published figures. The
    validation part only adds to its training texts.
    """

    name = "mlc-published"
    description = "The published multi-label classifier (weak on few texts; for comparison)."
    cost = "seconds on one core"
    source = "SPARSE, its multi-label classification attack (MLC)."
    state_type = _MLCFit

    def __init__(self, schedule: Schedule = PUBLISHED, *, device: str = "auto") -> None:
        """Set the training schedule (the default is the published one) and the device: cuda, cpu or auto."""
        self.schedule = replace(schedule, device=device)

    def _fit(self, train: LabelledVectors, validation: LabelledVectors, session: Session) -> _MLCFit:
        X = np.concatenate([train.X, validation.X])
        L = np.concatenate([train.L, validation.L])
        # A single release, as published: the same vectors in every epoch.
        inputs = session.draw(X).astype(np.float32)
        run = TrainingRun(session.rng, self.name, session.show_progress)
        network, _ = train_network(lambda rng: (inputs, L), (inputs.shape[1], L.shape[1]), self.schedule, run)
        return _MLCFit(network)

    def _scores(self, state: _MLCFit, X: Embeddings) -> Array:
        return state.network(X.astype(np.float32))
