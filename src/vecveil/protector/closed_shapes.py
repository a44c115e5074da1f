"""The ``covariance`` method: Mahalanobis noise of a closed-form shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vecveil.errors import InvalidInputError
from vecveil.protector.candidate import Candidate
from vecveil.sensitivity.closed_forms import (
    diagonal_concept_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.sensitivity.covariance import concept_covariance_shape
from vecveil.sensitivity.differences import difference_shape
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.validation import check_count, check_positive

if TYPE_CHECKING:
    from vecveil.protector.methods import FitData

__all__ = ["SHAPES", "covariance_candidate"]

SHAPES = ("pairs", "labels", "low-rank", "diagonal", "differences")
"""Optimal for pairs, for token labels, its leading directions, its diagonal, and SPARSE's Definition 7."""


def covariance_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return Mahalanobis noise of the shape that the option ``shape`` names, or is."""
    floor = check_positive(options.pop("floor", 1e-2), owner="fit", param="floor")
    kind = options.pop("shape", "labels" if data.negative is None else "pairs")
    rank = options.pop("rank", None)
    if isinstance(kind, NoiseShape):
        return _given(kind, data.dimension, rank)
    if kind not in SHAPES:
        got = repr(kind)[:40] if isinstance(kind, str) else type(kind).__name__
        raise InvalidInputError.of(
            "fit", "shape", "one of " + ", ".join(SHAPES) + ", or a NoiseShape", got
        )
    if kind != "labels":
        data.pairs("shape", kind)
    if (rank is not None) != (kind == "low-rank"):
        wanted = "given with shape 'low-rank' and with no other"
        raise InvalidInputError.of("fit", "rank", wanted, repr(rank))
    shape: NoiseShape
    if kind == "pairs":
        shape = concept_covariance_shape(data.moments, floor=floor)
    elif kind == "labels":
        shape = label_shape(data.moments, floor=floor)
    elif kind == "low-rank":
        rank = check_count(rank, owner="fit", param="rank", maximum=data.dimension)
        shape = low_rank_concept_shape(data.moments, rank, floor=floor)
    elif kind == "diagonal":
        shape = diagonal_concept_shape(data.moments, floor=floor)
    else:
        shape = difference_shape(*data.pairs("shape", kind), floor=floor)
    parameters = {"floor": floor, "shape": kind, **({} if rank is None else {"rank": rank})}
    return Candidate(shape=shape, map_of=lambda _: None, parameters=parameters)


def _given(shape: NoiseShape, dimension: int, rank: int | None) -> Candidate:
    """Return noise of the caller's own shape, such as one that combines several concepts."""
    if rank is not None:
        raise InvalidInputError.of("fit", "rank", "left out with a shape of your own", rank)
    if shape.dimension != dimension:
        got = f"dimension {shape.dimension}"
        raise InvalidInputError.of("fit", "shape", f"of dimension {dimension}", got)
    return Candidate(shape=shape, map_of=lambda _: None, parameters={"shape": "given"})
