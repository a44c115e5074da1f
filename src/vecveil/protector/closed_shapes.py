"""The ``covariance`` method: Mahalanobis noise of a closed-form shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vecveil.checks import check_count, check_positive
from vecveil.errors import InvalidInputError, message
from vecveil.protector.candidate import Candidate
from vecveil.sensitivity.closed_forms import (
    diagonal_concept_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.sensitivity.covariance import concept_covariance_shape
from vecveil.sensitivity.differences import difference_shape
from vecveil.sensitivity.shapes import NoiseShape

if TYPE_CHECKING:
    from vecveil.protector.methods import FitData

__all__ = ["SHAPES", "covariance_candidate"]

SHAPES = ("pairs", "labels", "low-rank", "diagonal", "differences")
"""Optimal for pairs, for token labels, its leading directions, its diagonal, and SPARSE's Definition 7."""


def covariance_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return Mahalanobis noise of the shape that the option ``shape`` names."""
    floor = check_positive(options.pop("floor", 1e-2), owner="fit", param="floor")
    kind = options.pop("shape", "pairs")
    rank = options.pop("rank", None)
    if kind not in SHAPES:
        raise InvalidInputError(
            message("fit", "shape", "one of " + ", ".join(SHAPES), repr(kind)[:40])
        )
    if (rank is not None) != (kind == "low-rank"):
        wanted = "given with shape 'low-rank' and with no other"
        raise InvalidInputError(message("fit", "rank", wanted, repr(rank)))
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
        shape = difference_shape(data.positive, data.negative, floor=floor)
    parameters = {"floor": floor, "shape": kind, **({} if rank is None else {"rank": rank})}
    return Candidate(shape=shape, map_of=lambda _: None, parameters=parameters)
