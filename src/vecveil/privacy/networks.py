"""Train perceptrons on vectors, and score with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.privacy.training import Batch, Fit, TrainingRecipe, TrainingRun, fit_model, load_weights, weights_of
from vecveil.runtime import Batches, import_torch, one_thread, resolve_device
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
        device: ``"auto"`` takes CUDA if available, else the CPU.
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
        torch = import_torch()
        self.module.eval()
        device = next(self.module.parameters()).device

        def score(i: int, j: int) -> Array:
            logits: Array = self.module(torch.from_numpy(inputs[i:j]).to(device)).cpu().numpy()
            return logits

        with one_thread(), torch.no_grad():
            return np.concatenate(self._batches.run(len(inputs), score))

    def to_arrays(self) -> dict[str, Array]:
        return {name: value.numpy() for name, value in weights_of(self.module).items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Network:
        torch = import_torch()
        # Names begin with the number of the layer, and only weights of linear layers are matrices.
        order = sorted(arrays, key=lambda name: int(name.partition(".")[0]))
        weights = [arrays[name] for name in order if arrays[name].ndim == 2]
        sizes = [weights[0].shape[1], *(len(weight) for weight in weights)]
        residual = any(".inner." in name for name in arrays)
        module = _perceptron(torch, sizes, 0.0, residual, None)
        load_weights(module, {name: torch.from_numpy(array) for name, array in arrays.items()})
        return cls(module)


def train_network(
    draw: Callable[[np.random.Generator], tuple[Array, Array]],
    sizes: tuple[int, int],
    schedule: Schedule,
    run: TrainingRun,
    *,
    validate: Callable[[Network], float] = lambda network: 0.0,
) -> tuple[Network, Fit]:
    """Return the network of the last epoch, for ``sizes`` r and V.

    ``draw`` returns the inputs (N, r) and 0/1 labels (N, V) of an epoch; ``validate`` returns the validation loss.
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

    # One thread: several would sum in a varying order, and batches are small.
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
    """Return the module, initialised from ``generator`` (None: not at all); ``drawing`` is the generator of dropout."""

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


# MLC as the SPARSE paper describes it.
PUBLISHED = Schedule(hidden=(512, 256, 128), epochs=20, batch=64, learning_rate=1e-4)
