"""Training of multi-label perceptrons in torch: deterministic under a seed, on one thread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import MissingDependencyError
from vecveil.threads import one_thread

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


class Network:
    """A trained perceptron as a function from float32 inputs (N, r) to logits (N, V)."""

    def __init__(self, module: Any) -> None:
        """Keep the torch module."""
        self._module = module

    @property
    def module(self) -> Any:
        """Return the torch module."""
        return self._module

    def __call__(self, inputs: Array) -> Array:
        """Return the logits of ``inputs``."""
        torch = import_torch()
        was_training = self._module.training
        self._module.eval()
        with one_thread(), torch.no_grad():
            parts = [
                self._module(torch.from_numpy(inputs[i : i + _ROWS])).numpy()
                for i in range(0, len(inputs), _ROWS)
            ]
        self._module.train(was_training)
        return np.concatenate(parts)

    def copy(self) -> Network:
        """Return a copy that further training does not change."""
        return Network(copy.deepcopy(self._module))


def import_torch() -> Any:
    """Return torch, or raise the error that says how to install it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("The MLP attack", "torch", "attacks") from error
    return torch


def train_network(
    draw: Callable[[], Array], labels: Array, schedule: Schedule, rng: np.random.Generator
) -> Iterator[Network]:
    """Yield the network after each epoch; it is one object that training goes on to change.

    Args:
        draw: Returns the inputs (N, r) of an epoch, freshly protected if there is an oracle.
        labels: (N, V) 0/1.
        schedule: Shape and training.
        rng: Gives the torch seed, the order of the texts and the input noise. The global state of
            torch's generator is as before between epochs and at the end.
    """
    torch = import_torch()
    target = torch.from_numpy(labels.astype(np.float32))
    inputs = draw()
    rows = len(inputs)
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        module = _perceptron(torch, inputs.shape[1], labels.shape[1], schedule)
        state = torch.get_rng_state()
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay
    )
    steps = schedule.epochs * -(-rows // schedule.batch)
    decay = None
    if schedule.cosine:
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network = Network(module)
    for epoch in range(schedule.epochs):
        if epoch:
            inputs = draw()
        order = torch.from_numpy(rng.permutation(rows))
        with one_thread(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            module.train()
            given = torch.from_numpy(inputs)
            for i in range(0, rows, schedule.batch):
                part = order[i : i + schedule.batch]
                x = given[part]
                if schedule.input_noise:
                    x = x + schedule.input_noise * torch.randn_like(x)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(module(x), target[part])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                if decay is not None:
                    decay.step()
            state = torch.get_rng_state()
        yield network


def _perceptron(torch: Any, inputs: int, outputs: int, schedule: Schedule) -> Any:
    layers: list[Any] = []
    width = inputs
    for units in schedule.hidden:
        layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
        if schedule.dropout:
            layers.append(torch.nn.Dropout(schedule.dropout))
        width = units
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))
