"""What the training of every language model needs: seeds, weights, batches, the mean loss.

Models of `transformers` draw their first weights and their dropout from torch's global generator. `seeded` lends it
out under a process-wide lock and puts it back; attacks may therefore run in several threads. Models that are trained
from scratch here have no dropout, and then the lock is held while they are built only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.runtime import Batches, import_torch

__all__ = [
    "ALL_ROWS",
    "Batch",
    "LossOf",
    "load_weights",
    "mean_loss",
    "piece",
    "rows_by_length",
    "rows_of",
    "seeded",
    "weights_of",
]

Batch = Mapping[str, npt.NDArray[Any]]
"""Arrays with one row for each text."""

LossOf = Callable[[Any, Mapping[str, Any]], tuple[Any, Any]]
"""``loss_of(model, tensors)``: the summed loss of a piece of a batch, and the number of tokens in it."""

ALL_ROWS = 1 << 30  # rows that a piece of a batch may have until the device says otherwise

_lock = threading.RLock()


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Lend torch's global generator, started from ``seed``; it is as before afterwards."""
    torch = import_torch()
    kind = torch.device(device)
    devices = [kind.index or 0] if kind.type == "cuda" else []
    with _lock, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def weights_of(model: Any) -> dict[str, Any]:
    """Return the parameters by name, tied ones once, as tensors on the CPU (copies)."""
    return {name: p.detach().cpu().clone().contiguous() for name, p in model.named_parameters()}


def load_weights(model: Any, weights: Mapping[str, Any]) -> None:
    """Put ``weights`` into ``model``.

    Raises:
        ValueError: they are another model's.
    """
    torch = import_torch()
    own = dict(model.named_parameters())
    if {k: tuple(p.shape) for k, p in own.items()} != {
        k: tuple(t.shape) for k, t in weights.items()
    }:
        raise ValueError("the weights are of another model")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def rows_by_length(
    lengths: npt.NDArray[Any], batch: int, rng: np.random.Generator, *, pool: int = 50
) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each batch: texts of like length together, everything else at random.

    Rows are shuffled, those of ``pool`` batches sorted by length, cut into batches, and these shuffled.
    """
    order = rng.permutation(len(lengths))
    batches = []
    for i in range(0, len(order), pool * batch):
        part = order[i : i + pool * batch]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches += [part[j : j + batch] for j in range(0, len(part), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]


def mean_loss(model: Any, batches: Sequence[Batch], loss_of: LossOf) -> float:
    """Return the loss of a token, in nats, over ``batches``; for `fit_model`'s ``validate``."""
    torch = import_torch()
    device = next(model.parameters()).device
    total = count = 0.0
    pieces = Batches(ALL_ROWS)
    with torch.no_grad():
        for batch in batches:

            def work(i: int, j: int, batch: Batch = batch) -> tuple[Any, Any]:
                return loss_of(model, piece(batch, i, j, device))

            found = pieces.run(rows_of(batch), work)
            total += sum(float(loss) for loss, _ in found)
            count += sum(float(tokens) for _, tokens in found)
    return total / max(count, 1.0)


def rows_of(batch: Batch) -> int:
    """Return the number of texts in a batch."""
    return len(next(iter(batch.values())))


def piece(batch: Batch, start: int, stop: int, device: Any) -> dict[str, Any]:
    """Return the rows ``start`` to ``stop`` of a batch as tensors on ``device``."""
    torch = import_torch()
    return {key: torch.as_tensor(a[start:stop]).to(device) for key, a in batch.items()}
