"""The perturbation as stated, for training: d* = r d⊥/‖d⊥‖, orthogonal to v, of norm r (TextCrafter, Eq. 17, 18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vecveil.mechanisms.textcrafter import REDRAWS, degenerate_below

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["fixed_orthogonal", "orthogonal_part", "perturbation"]


def orthogonal_part(d: Tensor, v: Tensor) -> Tensor:
    """Return d⊥ = d − (d·v) v; twice, since the first time leaves a rounding error along v.

    Args:
        d: (..., n).
        v: of norm 1, (n,) or (..., n).
    """
    d = d - (d * v).sum(dim=-1, keepdim=True) * v
    return d - (d * v).sum(dim=-1, keepdim=True) * v


def fixed_orthogonal(v: Tensor) -> Tensor:
    """Return a unit vector orthogonal to each v: the axis that v leans on least, less its part along v.

    Args:
        v: of norm 1, (..., n), n ≥ 2.
    """
    import torch

    least = v.abs().argmin(dim=-1, keepdim=True)
    axis = torch.zeros_like(v).scatter_(-1, least, 1.0)
    part = orthogonal_part(axis, v)
    unit: Tensor = part / torch.linalg.vector_norm(part, dim=-1, keepdim=True)
    return unit


def perturbation(
    d: Tensor, v: Tensor, radius: float, resample: Callable[[], Tensor] | None = None
) -> Tensor:
    """Return d* of each draw: norm ``radius``, orthogonal to v. What is NaN stays NaN.

    A draw that lies along v up to rounding has no d⊥ to speak of. It is drawn again, up to `REDRAWS` times, and
    then replaced by `fixed_orthogonal`; under a normal distribution this has probability zero.

    Args:
        d: draws, (..., n), n ≥ 2.
        v: of norm 1, the last dimensions of ``d`` or those that broadcast to it.
        radius: r > 0.
        resample: returns other draws in the shape of ``d``; without it the fixed direction is taken at once.
    """
    import torch

    v = v.expand_as(d)
    tolerance = degenerate_below(torch.finfo(d.dtype).eps)
    for attempt in range(REDRAWS + 1):
        part = orthogonal_part(d, v)
        norms = torch.linalg.vector_norm(part, dim=-1, keepdim=True)
        lost = norms <= tolerance * torch.linalg.vector_norm(d, dim=-1, keepdim=True)
        if not bool(lost.any()):
            break
        if resample is None or attempt == REDRAWS:
            break
        d = torch.where(lost, resample(), d)
    if not bool(lost.any()):
        scaled: Tensor = part * (radius / norms)
        return scaled
    unit: Tensor = torch.where(lost, fixed_orthogonal(v), part / torch.where(lost, 1.0, norms))
    return radius * unit
