"""The ``covariance`` method: Mahalanobis noise of a closed-form shape, then the Wiener filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError, unknown_name, wrong_type
from vecveil.protector.method import Candidate, FitData, Method
from vecveil.sensitivity.closed_forms import (
    concept_covariance_shape,
    diagonal_concept_shape,
    difference_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.validation import check_count, check_positive

SHAPES = ("pairs", "labels", "low-rank", "diagonal", "differences")
"""Optimal for pairs, optimal for token labels, its leading directions, its diagonal, SPARSE's Definition 7."""


def covariance_candidate(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return Mahalanobis noise of the shape in the option ``shape``, given by name or as a `NoiseShape`."""
    floor = check_positive(options.pop("floor", 1e-2), owner="fit", param="floor")
    kind = options.pop("shape", "labels" if data.negative is None else "pairs")
    rank = options.pop("rank", None)
    if isinstance(kind, NoiseShape):  # such as one that combines several concepts
        if rank is not None:
            raise InvalidInputError.of("fit", "rank", "left out with a shape of your own", rank)
        if kind.dimension != data.dimension:
            got = f"dimension {kind.dimension}"
            raise InvalidInputError.of("fit", "shape", f"of dimension {data.dimension}", got)
        return Candidate(kind, parameters={"shape": "given"})
    if not isinstance(kind, str):
        raise wrong_type("fit", "shape", f"one of {', '.join(SHAPES)}, or a NoiseShape", kind)
    if kind not in SHAPES:
        raise unknown_name("fit", "shape", SHAPES, kind)
    if kind != "labels":  # every other shape compares the two sides of pairs
        data.pairs("shape", kind)
    if (rank is not None) != (kind == "low-rank"):
        constraint = "given with shape 'low-rank' and with no other"
        raise InvalidInputError.of("fit", "rank", constraint, repr(rank))
    parameters = {"floor": floor, "shape": kind, **({} if rank is None else {"rank": rank})}
    return Candidate(_shape(kind, data, floor, rank), parameters=parameters)


def _shape(kind: str, data: FitData, floor: float, rank: Any) -> NoiseShape:
    if kind == "pairs":
        return concept_covariance_shape(data.moments, floor=floor)
    if kind == "labels":
        return label_shape(data.moments, floor=floor)
    if kind == "low-rank":
        rank = check_count(rank, owner="fit", param="rank", maximum=data.dimension)
        return low_rank_concept_shape(data.moments, rank, floor=floor)
    if kind == "diagonal":
        return diagonal_concept_shape(data.moments, floor=floor)
    return difference_shape(*data.pairs("shape", kind), floor=floor)


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
    options=("floor", "shape", "rank"),
    postprocess="wiener",
    metric="Mahalanobis",
)
