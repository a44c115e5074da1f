"""A differentiable model from embeddings to outputs: checked, and left as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.types import Embeddings

if TYPE_CHECKING:
    import torch

    Model: TypeAlias = torch.nn.Module | Callable[[torch.Tensor], torch.Tensor]
else:
    Model = Callable

__all__ = ["Model", "evaluated", "import_torch", "outputs_of"]


def import_torch() -> Any:
    """Return torch, or raise the error that says how to install it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("Integrated gradients", "torch", "attacks") from error
    return torch


@contextmanager
def evaluated(model: Model) -> Iterator[None]:
    """Put a module into evaluation mode inside the block; after it, each part is as it was before."""
    torch = import_torch()
    parts = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def outputs_of(model: Model, X: Embeddings, *, device: str, owner: str) -> tuple[torch.Tensor, int]:
    """Return a tensor of the dtype and device that ``model`` takes, and its number of outputs V.

    Raises:
        InvalidInputError: the model fails on ``X``, returns anything but a finite tensor (N, V), or its
            output has no gradient with respect to its input.
    """
    torch = import_torch()
    rows = torch.as_tensor(X)
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    first = next(parameters, None)
    try:
        where = torch.device(device)
        rows = rows.to(device=where, dtype=rows.dtype if first is None else first.dtype)
    except (RuntimeError, AssertionError, TypeError) as error:
        wanted = "a device that torch can use here"
        raise InvalidInputError.of(owner, "device", wanted, repr(device)[:40]) from error
    if first is not None and first.device.type != where.type:
        wanted = f"on the device {where.type!r} that was asked for"
        raise InvalidInputError.of(owner, "model", wanted, repr(first.device.type))
    rows = rows.detach().requires_grad_()
    constraint = f"a differentiable function from a tensor {tuple(rows.shape)} to (N, V)"
    with torch.enable_grad():
        try:
            outputs = model(rows)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            got = f"a {type(error).__name__} from it"
            raise InvalidInputError.of(owner, "model", constraint, got) from error
        if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2:
            found = getattr(outputs, "shape", type(outputs).__name__)
            got = f"{found if isinstance(found, str) else tuple(found)}"
            raise InvalidInputError.of(owner, "model", constraint, got)
        if len(outputs) != len(rows) or outputs.shape[1] == 0:
            got = f"an output of shape {tuple(outputs.shape)}"
            raise InvalidInputError.of(owner, "model", constraint, got)
        gradient = None
        if outputs.requires_grad:
            (gradient,) = torch.autograd.grad(outputs.sum(), rows, allow_unused=True)
    if gradient is None:
        raise InvalidInputError.of(owner, "model", constraint, "an output without gradient",
                                   "Integrated gradients need one with respect to the embedding.",
                                   "Leave out detach(), no_grad() and NumPy inside the model.")  # fmt: skip
    if not bool(torch.isfinite(outputs).all()) or not bool(torch.isfinite(gradient).all()):
        got = "NaN or infinity in its output or gradient"
        raise InvalidInputError.of(owner, "model", constraint, got)
    return rows.detach(), int(outputs.shape[1])
