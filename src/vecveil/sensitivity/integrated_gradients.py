"""White-box sensitivity: the dimensions that an attack model relies on, by integrated gradients (SPARSE-WB).

A defender who has the attack model attributes its guess of a sensitive token to dimensions of the embedding
(SPARSE, arXiv 2602.07090, §4.5) and shapes the noise by these attributions instead of the learnt mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError, optional_import, out_of_range
from vecveil.runtime import import_torch, progress
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings, TokenLabels, Vector
from vecveil.validation import check_count, check_embeddings

if TYPE_CHECKING:
    import torch

    Model: TypeAlias = torch.nn.Module | Callable[[torch.Tensor], torch.Tensor]
else:
    Model = Callable

Array = npt.NDArray[np.float64]

BATCH = 4096
"""Points per pass through the model."""
PAIRS = 8192
"""Pairs of text and token whose attributions are in memory at once."""


@contextmanager
def evaluated(model: Model) -> Iterator[None]:
    """Put a module into evaluation mode inside the block; restore the mode of each part after it."""
    torch = import_torch("Integrated gradients")
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


def outputs_of(model: Model, X: Embeddings, owner: str) -> tuple[torch.Tensor, int]:
    """Return a tensor of the dtype and device of ``model``, and its number of outputs V.

    Raises:
        InvalidInputError: the model fails on ``X``, does not return a finite tensor (N, V), or its output
            has no gradient with respect to its input.
    """
    torch = import_torch("Integrated gradients")
    rows = torch.as_tensor(X)
    if isinstance(model, torch.nn.Module) and (first := next(model.parameters(), None)) is not None:
        rows = rows.to(first)  # its dtype and device; a plain function gets the dtype of ``X``, on the CPU
    rows = rows.detach().requires_grad_()

    def refuse(got: str, why: str = "", fix: str = "") -> InvalidInputError:
        constraint = f"a differentiable function from a tensor {tuple(rows.shape)} to (N, V)"
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
        raise refuse(
            "an output without gradient",
            "Integrated gradients need one with respect to the embedding.",
            "Leave out detach(), no_grad() and NumPy inside the model.",
        )
    if not bool(torch.isfinite(outputs).all()) or not bool(torch.isfinite(gradient).all()):
        raise refuse("NaN or infinity in its output or gradient")
    return rows.detach(), int(outputs.shape[1])


def integrated_gradients(
    model: Model, embeddings: Embeddings, targets: npt.NDArray[np.integer[Any]], *, steps: int = 50
) -> Array:
    """Return the attribution of one output of ``model`` per row to each dimension, (N, n) float64.

    IG_i(x) = x_i ∫₀¹ ∂f(αx)/∂x_i dα   (Sundararajan et al. 2017, Eq. 1, with the baseline 0), by Gauss-Legendre
    quadrature. A row's attributions add up to f(x) − f(0), up to the quadrature error.

    Args:
        model: a `torch.nn.Module`, or any differentiable function, from a tensor (N, n) to a tensor (N, V). A
            module runs in evaluation mode and gets the dtype and device of its parameters.
        embeddings: (N, n), clean.
        targets: (N,) integers in [0, V), the output to explain for each row.
        steps: points of the quadrature.

    Raises:
        InvalidInputError: the model has no gradient.
    """
    owner = "integrated_gradients"
    X = check_embeddings(embeddings, owner=owner, param="embeddings", min_rows=1)
    chosen = np.asarray(targets)
    if chosen.shape != (len(X),) or chosen.dtype.kind not in "iu":
        got = f"dtype {chosen.dtype}, shape {chosen.shape}"
        raise InvalidInputError.of(owner, "targets", f"{len(X)} integers", got)
    steps = check_count(steps, owner=owner, param="steps")
    torch = import_torch("Integrated gradients")
    with optional_import("Integrated gradients", "captum", "attacks"):
        from captum.attr import IntegratedGradients
    rows = max(1, BATCH // steps)
    attributions = np.empty(X.shape, dtype=np.float64)
    with evaluated(model), torch.enable_grad():
        # Two rows are enough to check the model before the long part.
        like, outputs = outputs_of(model, X[:2], owner)
        if chosen.min() < 0 or chosen.max() >= outputs:
            constraint = f"in [0, {outputs}), the outputs of the model"
            raise out_of_range(owner, "targets", constraint, "one outside")
        explain = IntegratedGradients(model)
        for i in range(0, len(X), rows):
            part = explain.attribute(
                torch.as_tensor(X[i : i + rows]).to(like),
                baselines=torch.zeros_like(like[:1]),
                target=torch.as_tensor(chosen[i : i + rows].astype(np.int64), device=like.device),
                n_steps=steps,
                # captum has to split only a row whose points exceed a batch.
                internal_batch_size=BATCH if steps > BATCH else None,
            )
            attributions[i : i + rows] = part.detach().double().cpu().numpy()
    if not np.isfinite(attributions).all():
        raise InvalidInputError.of(owner, "model", "of finite gradients", "NaN or infinity in them")
    return attributions


def integrated_gradient_sensitivity(
    model: Model, embeddings: Embeddings, labels: TokenLabels, *, steps: int = 50, show_progress: bool | None = None
) -> Vector:
    """Return the weight of each dimension for a model that guesses sensitive tokens, (n,).

    The mean of |IG_i| of output v at text t, over all pairs (t, v) of a text and a sensitive token in it; a text
    with several tokens counts once for each (SPARSE §4.5 names no average).

    Args:
        model: as in `integrated_gradients`, from embeddings to the logits or probabilities of V tokens.
            Probabilities give less weight to tokens that the model is already sure of.
        labels: (N, V) 0/1, the sensitive tokens of each text.

    Cost: one forward and one backward pass per pair and step.
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
    with evaluated(model):
        _, outputs = outputs_of(model, X[:2], owner)
    if outputs != marks.shape[1]:
        constraint = f"of {marks.shape[1]} outputs, one for each label"
        raise InvalidInputError.of(owner, "model", constraint, f"{outputs}")
    total = np.zeros(X.shape[1])
    starts = range(0, texts.size, PAIRS)
    for i in progress(starts, "White-box sensitivity", total=len(starts), show=show_progress):
        block = slice(i, i + PAIRS)
        attributions = integrated_gradients(model, X[texts[block]], tokens[block], steps=steps)
        total += np.abs(attributions).sum(axis=0)
    return np.asarray(total / texts.size, dtype=np.float64)


def white_box_shape(
    model: Model,
    embeddings: Embeddings,
    labels: TokenLabels,
    *,
    floor: float = 1e-6,
    steps: int = 50,
    show_progress: bool | None = None,
) -> NoiseShape:
    """Return the diagonal shape of SPARSE-WB: Σ = diag(a/max(a) + floor), scaled to trace n.

    a is `integrated_gradient_sensitivity`. Divided by its largest entry it has the range of the mask that it
    replaces (SPARSE prints no scale).

    Args:
        floor: as in `NoiseShape.from_diagonal`; the published value leaves dimensions that this model
            ignores almost bare to any other model.
    """
    weights = integrated_gradient_sensitivity(model, embeddings, labels, steps=steps, show_progress=show_progress)
    largest = float(weights.max())
    if largest == 0:
        constraint = "one that depends on the embedding"
        raise InvalidInputError.of("white_box_shape", "model", constraint, "no attribution anywhere")
    return NoiseShape.from_diagonal(weights / largest, floor=floor)
