"""The ``covariance`` method: Mahalanobis noise of a closed-form shape, then the Wiener filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError, unknown_name, wrong_type
from vecveil.protector.data import Data
from vecveil.protector.method import Aim, Candidate, Method
from vecveil.sensitivity.closed_forms import (
    concept_covariance_shape,
    diagonal_concept_shape,
    difference_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.sensitivity.subspace import Moments
from vecveil.validation import check_count, check_positive

SHAPES = ("pairs", "labels", "low-rank", "diagonal", "differences")
"""Optimal for pairs, optimal for token labels, its leading directions, its diagonal, SPARSE's Definition 7."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CovarianceOptions:
    """Options of ``covariance``.

    Attributes:
        floor: least share of the noise in any direction.
        shape: one of `SHAPES`, or a `NoiseShape`; None takes "pairs", or "labels" for a concept given by labels.
        rank: number of leading directions, of "low-rank".
    """

    floor: float = 1e-2
    shape: Any = None
    rank: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.floor, owner="fit", param="floor")
        if isinstance(self.shape, NoiseShape):  # such as one that combines several concepts
            if self.rank is not None:
                raise InvalidInputError("A `shape` of your own takes no `rank`.", param="rank")
            return
        if self.shape is not None and not isinstance(self.shape, str):
            raise wrong_type("fit", "shape", f"one of {', '.join(SHAPES)}, or a NoiseShape", self.shape)
        if self.shape is not None and self.shape not in SHAPES:
            raise unknown_name("fit", "shape", SHAPES, self.shape)
        if (self.rank is not None) != (self.shape == "low-rank"):
            raise InvalidInputError("`shape` 'low-rank' needs `rank`, and no other shape takes it.", param="rank")


def covariance_candidate(data: Data, options: CovarianceOptions, aim: Aim) -> Candidate:
    """Return Mahalanobis noise of the shape in the option ``shape``."""
    kind, floor, rank, moments = options.shape, options.floor, options.rank, data.moments
    if isinstance(kind, NoiseShape):
        if kind.dimension != data.dimension:
            raise InvalidInputError(
                f"`shape` has dimension {kind.dimension}, the vectors {data.dimension}.", param="shape"
            )
        return Candidate(kind, parameters={"shape": "given"})
    if kind is None:
        kind = "labels" if data.negative is None else "pairs"
    parameters = {"floor": floor, "shape": kind, **({} if rank is None else {"rank": rank})}
    if kind == "labels":
        return Candidate(label_shape(moments, floor=floor), parameters=parameters)
    sides = data.sides("shape", kind)  # every other shape compares the two sides of pairs
    if kind == "pairs":
        shape = concept_covariance_shape(moments, floor=floor)
    elif kind == "low-rank":
        rank = check_count(rank, owner="fit", param="rank", maximum=data.dimension)
        shape = low_rank_concept_shape(moments, rank, floor=floor)
    elif kind == "diagonal":
        shape = diagonal_concept_shape(moments, floor=floor)
    else:
        shape = difference_shape(*sides, floor=floor)
    return Candidate(shape, parameters=parameters)


def with_wiener(candidate: Candidate, moments: Moments) -> Candidate:
    """Return the candidate followed by the Wiener filter T = K(K + S)⁻¹, S the noise covariance."""
    covariance = candidate.shape.covariance()

    def map_of(noise: float) -> LinearMap:
        # The ratio fixes the trace of S, the shape its directions.
        S = (noise * moments.rms_norm) ** 2 / candidate.shape.dimension * covariance
        # K and S are symmetric: ((K + S)⁻¹K)ᵀ = K(K + S)⁻¹, without an inverse.
        wiener = np.linalg.solve(moments.K + S, moments.K).T
        return LinearMap.quantised(wiener, None, norm=moments.rms_norm)

    return replace(candidate, map_of=map_of, fixed_map=False)


COVARIANCE = Method(
    "covariance",
    "full-matrix Mahalanobis noise shaped by the concept covariance, then the Wiener filter",
    covariance_candidate,
    option_type=CovarianceOptions,
    postprocess="wiener",
    metric="Mahalanobis",
)
