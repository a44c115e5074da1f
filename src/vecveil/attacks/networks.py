"""Networks on released vectors: perceptrons, their training on fresh releases, and the attacks that use them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from vecveil.attacks.attack import LabelledVectors, Session
from vecveil.attacks.release_model import InputMap, fit_input_map
from vecveil.attacks.token_inference import TokenInferenceAttack, validation_r_precision
from vecveil.attacks.training import Batch, Fit, TrainingRecipe, TrainingRun, fit_model, load_weights, weights_of
from vecveil.runtime import Batches, import_torch, one_thread, resolve_device
from vecveil.types import Embeddings
from vecveil.validation import check_count, check_positive, check_probability

Array = npt.NDArray[Any]

_SCORED_ROWS = 4096  # rows that a perceptron scores at once


@dataclass(frozen=True, slots=True)
class Schedule:
    """Shape and training of a perceptron: binary cross-entropy, AdamW.

    Attributes:
        hidden: Units per hidden layer.
        dropout: Share of hidden units dropped while training.
        decay: Of the learning rate, as in `TrainingRecipe`.
        input_noise: Standard deviation of noise added to the inputs.
        weight_decay: Decoupled weight decay.
        residual: Add every hidden layer after the first to its normalised input, with GELU in place of ReLU.
        device: ``"auto"`` takes CUDA where there is one, else the CPU.
    """

    hidden: tuple[int, ...]
    epochs: int
    batch: int
    learning_rate: float
    dropout: float = 0.0
    decay: str = "none"
    input_noise: float = 0.0
    weight_decay: float = 0.0
    residual: bool = False
    # Not in `repr`, which identifies a checkpoint: a fitted network scores on any device.
    device: str = field(default="cpu", repr=False)

    def __post_init__(self) -> None:
        for units in self.hidden:
            check_count(units, owner="Schedule", param="hidden")
        check_probability(self.dropout, owner="Schedule", param="dropout")
        check_positive(self.input_noise, owner="Schedule", param="input_noise", allow_zero=True)
        self.recipe()

    def recipe(self) -> TrainingRecipe:
        """Return the training without the network's shape."""
        return TrainingRecipe(
            self.epochs,
            self.batch,
            self.learning_rate,
            warmup_share=0.0,
            decay=self.decay,
            patience=self.epochs,
            clip=None,
            weight_decay=self.weight_decay,
            device=self.device,
        )


class Network:
    """A trained perceptron as a function from float32 inputs (N, r) to logits (N, V)."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._batches = Batches(_SCORED_ROWS)

    def __call__(self, inputs: Array) -> Array:
        """Return the logits of ``inputs``."""
        torch = import_torch()
        self.module.eval()
        device = next(self.module.parameters()).device

        def score(i: int, j: int) -> Array:
            logits: Array = self.module(torch.from_numpy(inputs[i:j]).to(device)).cpu().numpy()
            return logits

        with one_thread(), torch.no_grad():
            return np.concatenate(self._batches.run(len(inputs), score))

    def to_arrays(self) -> dict[str, Array]:
        """Return the parameters by name."""
        return {name: value.numpy() for name, value in weights_of(self.module).items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Network:
        """Return the network with the given parameters, for scoring."""
        torch = import_torch()
        # Names begin with the number of the layer, and only weights of linear layers are matrices.
        order = sorted(arrays, key=lambda name: int(name.partition(".")[0]))
        weights = [arrays[name] for name in order if arrays[name].ndim == 2]
        sizes = [weights[0].shape[1], *(len(weight) for weight in weights)]
        residual = any(".inner." in name for name in arrays)
        module = _perceptron(torch, sizes, 0.0, residual, None)
        load_weights(module, {name: torch.from_numpy(array) for name, array in arrays.items()})
        return cls(module)


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A trained network of released vectors.

    ``epoch`` is the one that it was kept from, ``course`` the validation figure after each epoch.
    """

    inputs: InputMap
    network: Network
    epoch: int
    course: Array

    def __call__(self, Y: Embeddings) -> Array:
        """Return the logits of released vectors, (N, V)."""
        return self.network(self.inputs(Y))

    def details(self) -> dict[str, Any]:
        """Return the epochs and the units of the hidden layers."""
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

    With an oracle every epoch sees freshly protected vectors, so that the network cannot memorise the noise.
    Without one the same vectors return in every epoch; the schedule's input noise and weight decay regularise then.
    Of further texts (`LabelledVectors.further`) every epoch draws as many rows as there are training texts.

    Args:
        judge: ``judge(logits, L)`` returns the figure of validation texts.
        slack: Of the best figure.
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


def train_network(
    draw: Callable[[np.random.Generator], tuple[Array, Array]],
    sizes: tuple[int, int],
    schedule: Schedule,
    run: TrainingRun,
    *,
    validate: Callable[[Network], float] = lambda network: 0.0,
) -> tuple[Network, Fit]:
    """Return the network of the last epoch.

    Args:
        draw: Returns the inputs (N, r) and 0/1 labels (N, V) of an epoch, freshly protected if there is an oracle.
        sizes: r and V.
        validate: Returns the validation loss.
    """
    torch = import_torch()
    # A private generator: other threads may use torch's global one meanwhile.
    generator = torch.Generator().manual_seed(int(run.rng.integers(2**63)))
    device = resolve_device(schedule.device, owner="train_network")
    # Masks are drawn on the device: at 4,096 units copying them would take longer than the training.
    drawing = generator if device == "cpu" else torch.Generator(device).manual_seed(generator.initial_seed())
    layers = (sizes[0], *schedule.hidden, sizes[1])
    network = Network(_perceptron(torch, layers, schedule.dropout, schedule.residual, generator, drawing))
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits

    def epoch_batches(epoch: int, rng: np.random.Generator) -> list[Batch]:
        inputs, labels = draw(rng)
        order = rng.permutation(len(inputs))
        parts = (order[i : i + schedule.batch] for i in range(0, len(order), schedule.batch))
        return [{"inputs": inputs[rows], "labels": labels[rows].astype(np.float32)} for rows in parts]

    def loss_of(module: Any, part: Mapping[str, Any]) -> tuple[Any, int]:
        x = part["inputs"]
        if schedule.input_noise:
            x = x + schedule.input_noise * torch.randn(x.shape, generator=drawing, device=device)
        return cross_entropy(module(x), part["labels"]) * len(x), len(x)

    # On one thread: several would add in a varying order, and batches are small.
    with one_thread():
        fit = fit_model(
            network.module,
            epoch_batches,
            loss_of,
            lambda module: validate(network),
            schedule.recipe(),
            run,
            keep_last=True,
        )
    return network, fit


def _perceptron(
    torch: Any, sizes: Sequence[int], dropout: float, residual: bool, generator: Any, drawing: Any = None
) -> Any:
    """Return the module, initialised as torch initialises linear layers but from ``generator``.

    Args:
        sizes: Inputs, units of each hidden layer, outputs.
        generator: None leaves the weights unset: a saved network's replace them.
        drawing: Generator of the dropped units, on the device of the training.
    """

    class Dropout(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if not (self.training and dropout):
                return x
            keep = 1 - dropout
            return x * torch.empty_like(x).bernoulli_(keep, generator=drawing).div_(keep)

    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    def linear(width: int, units: int) -> Any:
        layer = torch.nn.utils.skip_init(torch.nn.Linear, width, units)
        if generator is not None:
            bound = 1 / math.sqrt(width)
            with torch.no_grad():
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.uniform_(-bound, bound, generator=generator)
        return layer

    layers: list[Any] = []
    activation = torch.nn.GELU if residual else torch.nn.ReLU
    for i, (width, units) in enumerate(itertools.pairwise(sizes[:-1])):
        hidden = [linear(width, units), activation(), Dropout()]
        if residual and i:
            hidden = [Residual(torch.nn.Sequential(torch.nn.LayerNorm(width), *hidden))]
        layers += hidden
    return torch.nn.Sequential(*layers, linear(*sizes[-2:]))


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

    The network of the last epoch is kept unless an earlier one was clearly better on validation
    texts (by a standard error): the learning rate falls to zero, so the last is the best unless
    the network has overfitted, and small validation parts are too noisy to pick a single epoch.
    """

    description = "Multi-layer perceptron on standardised released vectors, validation-stopped."
    cost = "10 seconds to a minute on one core"
    source = "Own; the classifier of SPARSE (MLC), tuned, on fresh protected vectors."
    state_type = Perceptron

    def __init__(
        self, hidden: Sequence[int] = (512,), *, device: str = "auto", **training: Unpack[ScheduleOptions]
    ) -> None:
        """Keep the network's shape, and what differs from the training `TUNED`.

        ``input_noise`` and ``weight_decay`` are used only without an oracle.
        """
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
        """Return the schedule for so many texts, and the texts to learn from."""
        return self.schedule, replace(train, further=None)

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
        run = TrainingRun(session.rng, self.name, session.show_progress)
        network, _ = train_network(lambda rng: (inputs, L), (inputs.shape[1], L.shape[1]), self.schedule, run)
        return _MLCFit(network)

    def _scores(self, state: _MLCFit, X: Embeddings) -> Array:
        return state.network(X.astype(np.float32))
