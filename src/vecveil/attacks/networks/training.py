"""Training of multi-label perceptrons in torch: deterministic under a seed, safe to run side by side."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.runtime import Batches, import_torch, one_thread, resolve_device

__all__ = ["Network", "Schedule", "train_network"]

Array = npt.NDArray[Any]
_ROWS = 4096  # rows scored at once


@dataclass(frozen=True, slots=True)
class Schedule:
    """A perceptron's shape and how it is trained (binary cross-entropy, Adam)."""

    hidden: tuple[int, ...]
    epochs: int
    batch: int
    learning_rate: float
    dropout: float = 0.0
    cosine: bool = False
    input_noise: float = 0.0
    weight_decay: float = 0.0
    device: str = "cpu"


class Network:
    """A trained perceptron as a function from float32 inputs (N, r) to logits (N, V)."""

    def __init__(self, module: Any) -> None:
        """Keep the torch module."""
        self._module = module
        self._batches = Batches(_ROWS)

    @property
    def module(self) -> Any:
        """Return the torch module."""
        return self._module

    def __call__(self, inputs: Array) -> Array:
        """Return the logits of ``inputs``."""
        torch = import_torch()
        was_training = self._module.training
        self._module.eval()
        device = next(self._module.parameters()).device
        with one_thread(), torch.no_grad():
            parts = self._batches.run(
                len(inputs),
                lambda i, j: self._module(torch.from_numpy(inputs[i:j]).to(device)).cpu().numpy(),
            )
        self._module.train(was_training)
        return np.concatenate(parts)

    def copy(self) -> Network:
        """Return a copy that further training does not change."""
        return Network(copy.deepcopy(self._module))

    def to_arrays(self) -> dict[str, Array]:
        """Return weights and biases of the layers, in order."""
        linear = [layer for layer in self._module if hasattr(layer, "weight")]
        return {
            f"{kind}{i}": getattr(layer, kind).detach().cpu().numpy()
            for i, layer in enumerate(linear)
            for kind in ("weight", "bias")
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Network:
        """Return the network with the given weights and biases, for scoring."""
        torch = import_torch()
        layers: list[Any] = []
        for i in range(len(arrays) // 2):
            weight, bias = arrays[f"weight{i}"], arrays[f"bias{i}"]
            layer = torch.nn.utils.skip_init(torch.nn.Linear, weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
            layers += [layer, torch.nn.ReLU()]
        return cls(torch.nn.Sequential(*layers[:-1]))


def train_network(
    draw: Callable[[], Array], labels: Array, schedule: Schedule, rng: np.random.Generator
) -> Iterator[Network]:
    """Yield the network after each epoch; it is one object that training goes on to change.

    Args:
        draw: Returns the inputs (N, r) of an epoch, freshly protected if there is an oracle.
        labels: (N, V) 0/1.
        schedule: Shape and training.
        rng: Gives the seed of torch's own generator, which nobody else draws from, and the order of the texts.
    """
    torch = import_torch()
    device = resolve_device(schedule.device, owner="train_network")
    target = torch.from_numpy(labels.astype(np.float32)).to(device)
    inputs = draw()
    rows = len(inputs)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    module = _perceptron(torch, inputs.shape[1], labels.shape[1], schedule, generator).to(device)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )
    steps = schedule.epochs * -(-rows // schedule.batch)
    decay = None
    if schedule.cosine:
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network = Network(module)
    batches = Batches(schedule.batch)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    for epoch in range(schedule.epochs):
        if epoch:
            inputs = draw()
        order = torch.from_numpy(rng.permutation(rows)).to(device)
        with one_thread():
            module.train()
            given = torch.from_numpy(inputs).to(device)
            for i in range(0, rows, schedule.batch):
                part = order[i : i + schedule.batch]
                optimiser.zero_grad(set_to_none=True)

                def learn(start: int, stop: int, part: Any = part, given: Any = given) -> None:
                    some = part[start:stop]
                    x = given[some]
                    if schedule.input_noise:
                        noise = torch.randn(x.shape, generator=generator)
                        x = x + schedule.input_noise * noise.to(device)
                    share = len(some) / len(part)
                    (share * loss_of(module(x), target[some])).backward()

                batches.run(len(part), learn, undo=optimiser.zero_grad)
                optimiser.step()
                if decay is not None:
                    decay.step()
        yield network


def _perceptron(torch: Any, inputs: int, outputs: int, schedule: Schedule, generator: Any) -> Any:
    """Return the module, started as torch starts linear layers but from ``generator``."""

    class Dropout(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if not self.training:
                return x
            kept = 1 - schedule.dropout
            mask = torch.empty(x.shape).bernoulli_(kept, generator=generator)
            return x * mask.div_(kept).to(x.device)

        def __deepcopy__(self, memo: Any) -> Any:
            return Dropout()  # the generator is shared, and a copy is only scored with

    layers: list[Any] = []
    width = inputs
    for units in (*schedule.hidden, outputs):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, width, units)
        bound = 1 / math.sqrt(width)
        with torch.no_grad():
            torch.nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
        layers += [layer, torch.nn.ReLU()]
        if schedule.dropout:
            layers.append(Dropout())
        width = units
    while not hasattr(layers[-1], "weight"):
        layers.pop()
    return torch.nn.Sequential(*layers)
