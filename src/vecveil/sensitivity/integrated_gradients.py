"""White-box sensitivity: dimensions that an attack model relies on, by integrated gradients (SPARSE-WB).

A defender who has the attack model attributes its guess of a sensitive token to dimensions of the embedding
(SPARSE, arXiv 2602.07090, §4.5) and shapes the noise by these attributions instead of the learnt mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, MissingDependencyError, out_of_range, wrong_shape
from vecveil.runtime import progress
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, TokenLabels, Vector
from vecveil.validation import check_count, check_embeddings, check_positive

if TYPE_CHECKING:
    import torch

    Model: TypeAlias = torch.nn.Module | Callable[[torch.Tensor], torch.Tensor]
else:
    Model = Callable

__all__ = ["integrated_gradient_sensitivity", "integrated_gradients", "white_box_shape"]


Array = npt.NDArray[np.float64]


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("Integrated gradients", "torch", "attacks") from error
    return torch


@contextmanager
def evaluated(model: Model) -> Iterator[None]:
    """Put a module into evaluation mode inside the block; restore the mode of each part after it."""
    torch = _import_torch()
    parts = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    # Per part: model.train() would also switch layers that the caller keeps in evaluation mode.
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode


def outputs_of(model: Model, X: Embeddings, *, device: str, owner: str) -> tuple[torch.Tensor, int]:
    """Return a tensor of the dtype and device of ``model``, and its number of outputs V.

    Raises:
        InvalidInputError: the model fails on ``X``, does not return a finite tensor (N, V), or its output
            has no gradient with respect to its input.
    """
    torch = _import_torch()
    rows = torch.as_tensor(X)
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
    # Parameters determine dtype and device; a plain function gets the dtype of ``X``.
    first = next(parameters, None)
    try:
        where = torch.device(device)
        rows = rows.to(device=where, dtype=rows.dtype if first is None else first.dtype)
    except (RuntimeError, AssertionError, TypeError) as error:
        constraint = "a device that torch can use here"
        raise InvalidInputError.of(owner, "device", constraint, repr(device)[:40]) from error
    if first is not None and first.device.type != where.type:
        constraint = f"on the device {where.type!r}"
        raise InvalidInputError.of(owner, "model", constraint, repr(first.device.type))
    rows = rows.detach().requires_grad_()
    constraint = f"a differentiable function from a tensor {tuple(rows.shape)} to (N, V)"

    def refuse(got: str, why: str = "", fix: str = "") -> InvalidInputError:
        return InvalidInputError.of(owner, "model", constraint, got, why, fix)

    with torch.enable_grad():
        try:
            outputs = model(rows)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise refuse(f"a {type(error).__name__} from it") from error
        shape = getattr(outputs, "shape", None)
        if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2:
            raise refuse(type(outputs).__name__ if shape is None else f"{tuple(shape)}")
        if len(outputs) != len(rows) or outputs.shape[1] == 0:
            raise refuse(f"an output of shape {tuple(outputs.shape)}")
        gradient = None
        if outputs.requires_grad:
            # allow_unused: a model that ignores its input is refused below, not a torch error.
            (gradient,) = torch.autograd.grad(outputs.sum(), rows, allow_unused=True)
    if gradient is None:
        raise refuse("an output without gradient",
                     "Integrated gradients need one with respect to the embedding.",
                     "Leave out detach(), no_grad() and NumPy inside the model.")  # fmt: skip
    if not bool(torch.isfinite(outputs).all()) or not bool(torch.isfinite(gradient).all()):
        raise refuse("NaN or infinity in its output or gradient")
    return rows.detach(), int(outputs.shape[1])


def integrated_gradients(
    model: Model,
    embeddings: Embeddings,
    targets: npt.NDArray[np.integer[Any]],
    *,
    baseline: Vector | None = None,
    steps: int = 50,
    batch_size: int = 4096,
    device: str = "cpu",
    show_progress: bool | None = None,
) -> Array:
    """Return the attribution of one output of ``model`` per row to each dimension, (N, n) float64.

    IG_i(x) = (x_i − b_i) ∫₀¹ ∂f(b + α(x − b))/∂x_i dα   (Sundararajan et al. 2017, Eq. 1), by
    Gauss-Legendre quadrature. A row's attributions add up to f(x) − f(b), up to the quadrature error.

    Args:
        model: a `torch.nn.Module` on ``device``, or any differentiable function, from a tensor (N, n) to a
            tensor (N, V). A module runs in evaluation mode and gets the dtype of its parameters.
        embeddings: (N, n), clean.
        targets: (N,) integers in [0, V), the output to explain for each row.
        baseline: (n,), the vector without information; None is zeros, the mean embedding another usual choice.
        steps: points of the quadrature.
        batch_size: points per pass through the model.

    Raises:
        InvalidInputError: the model has no gradient.
    """
    owner = "integrated_gradients"
    X = check_embeddings(embeddings, owner=owner, param="embeddings", min_rows=1)
    chosen = np.asarray(targets)
    if chosen.shape != (len(X),) or chosen.dtype.kind not in "iu":
        got = f"dtype {chosen.dtype}, shape {chosen.shape}"
        raise InvalidInputError.of(owner, "targets", f"{len(X)} integers", got)
    start = _check_baseline(baseline, X.shape[1], owner)
    steps = check_count(steps, owner=owner, param="steps")
    batch_size = check_count(batch_size, owner=owner, param="batch_size")
    torch = _import_torch()
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise MissingDependencyError("Integrated gradients", "captum", "attacks") from error
    rows = max(1, batch_size // steps)
    attributions = np.empty(X.shape, dtype=np.float64)
    with evaluated(model), torch.enable_grad():
        # Two rows are enough to check the model before the long part.
        like, outputs = outputs_of(model, X[:2], device=device, owner=owner)
        if chosen.min() < 0 or chosen.max() >= outputs:
            constraint = f"in [0, {outputs}), the outputs of the model"
            raise out_of_range(owner, "targets", constraint, "one outside")
        zero = torch.as_tensor(start).to(like)[None]
        explain = IntegratedGradients(model)
        starts = range(0, len(X), rows)
        for i in progress(starts, "Integrated gradients", total=len(starts), show=show_progress):
            part = explain.attribute(
                torch.as_tensor(X[i : i + rows]).to(like),
                baselines=zero,
                target=torch.as_tensor(chosen[i : i + rows].astype(np.int64), device=like.device),
                n_steps=steps,
                # captum has to split only a row whose points exceed a batch.
                internal_batch_size=batch_size if batch_size < steps else None,
            )
            attributions[i : i + rows] = part.detach().double().cpu().numpy()
    if not np.isfinite(attributions).all():
        raise InvalidInputError.of(owner, "model", "of finite gradients", "NaN or infinity in them")
    return attributions


def integrated_gradient_sensitivity(
    model: Model,
    embeddings: Embeddings,
    labels: TokenLabels,
    *,
    baseline: Vector | None = None,
    steps: int = 50,
    batch_size: int = 4096,
    device: str = "cpu",
    show_progress: bool | None = None,
) -> Vector:
    """Return the weight of each dimension for a model that guesses sensitive tokens, (n,).

    The mean of |IG_i| of output v at text t, over all pairs (t, v) of a text and a sensitive token in it; a text
    with several tokens counts once for each (SPARSE §4.5 names no average).

    Args:
        model: from embeddings (N, n) to the logits or probabilities (N, V) of the tokens. Probabilities give
            less weight to tokens that the model is already sure of.
        labels: (N, V) 0/1, the sensitive tokens of each text.

    The other arguments are those of `integrated_gradients`.

    Cost: one forward and one backward pass per pair and step; memory for ``batch_size`` points.
    """
    owner = "integrated_gradient_sensitivity"
    X = check_embeddings(embeddings, owner=owner, param="embeddings", min_rows=1)
    marks = np.asarray(labels)
    if marks.ndim != 2 or len(marks) != len(X) or not np.isin(marks, (0, 1)).all():
        got = f"dtype {marks.dtype}, shape {marks.shape}"
        raise InvalidInputError.of(owner, "labels", f"0/1 of shape ({len(X)}, V)", got)
    texts, tokens = np.nonzero(marks)
    if texts.size == 0:
        raise InvalidInputError.of(owner, "labels", "1 for at least one text and token", "zeros only")
    # Compare outputs and labels before the long part.
    with evaluated(model):
        _, outputs = outputs_of(model, X[:2], device=device, owner=owner)
    if outputs != marks.shape[1]:
        constraint = f"of {marks.shape[1]} outputs, one for each label"
        raise InvalidInputError.of(owner, "model", constraint, f"{outputs}")
    total = np.zeros(X.shape[1])
    # Blocks of pairs bound the memory of the attributions: only their sum is kept.
    block = 8192
    starts = range(0, texts.size, block)
    for i in progress(starts, "White-box sensitivity", total=len(starts), show=show_progress):
        attributions = integrated_gradients(
            model, X[texts[i : i + block]], tokens[i : i + block], baseline=baseline, steps=steps,
            batch_size=batch_size, device=device, show_progress=False,
        )  # fmt: skip
        total += np.abs(attributions).sum(axis=0)
    return np.asarray(total / texts.size, dtype=np.float64)


def white_box_shape(
    model: Model,
    embeddings: Embeddings,
    labels: TokenLabels,
    *,
    floor: float = 1e-6,
    baseline: Vector | None = None,
    steps: int = 50,
    batch_size: int = 4096,
    device: str = "cpu",
    show_progress: bool | None = None,
) -> NoiseShape:
    """Return the diagonal shape of SPARSE-WB: Σ = diag(a/max(a) + floor), scaled to trace n.

    a is `integrated_gradient_sensitivity`. Divided by its largest entry it has the range of the mask that it
    replaces (SPARSE prints no scale).

    Args:
        floor: as in `NoiseShape.from_diagonal`; the published value leaves dimensions that this model
            ignores almost bare to any other model.
    """
    owner = "white_box_shape"
    floor = check_positive(floor, owner=owner, param="floor")
    weights = integrated_gradient_sensitivity(
        model, embeddings, labels, baseline=baseline, steps=steps, batch_size=batch_size,
        device=device, show_progress=show_progress,
    )  # fmt: skip
    largest = float(weights.max())
    if largest == 0:
        constraint = "one that depends on the embedding"
        raise InvalidInputError.of(owner, "model", constraint, "no attribution anywhere")
    return NoiseShape.from_diagonal(weights / largest, floor=floor)


def _check_baseline(baseline: Any, n: int, owner: str) -> Array:
    if baseline is None:
        return np.zeros(n)
    try:
        values = np.asarray(baseline, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise wrong_shape(owner, "baseline", f"({n},) and finite", values.shape)
    return values
