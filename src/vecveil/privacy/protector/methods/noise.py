"""Methods that only add noise: isotropic, on the sphere, or shaped by the concept's covariance; and the shuffle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from vecveil.errors import CalibrationError, InvalidInputError, unknown_name, wrong_type
from vecveil.privacy.mechanisms import (
    Gaussian,
    LdpGaussian,
    Purkayastha,
    Shuffle,
    epsilon_of_rms_norm,
    random_permutation,
    rms_norm_of_epsilon,
)
from vecveil.privacy.mechanisms.purkayastha import angle_moments
from vecveil.privacy.protector.data import Data
from vecveil.privacy.protector.method import Aim, Candidate, Method, NoiseFamily, isotropic
from vecveil.privacy.sensitivity.closed_forms import (
    concept_covariance_shape,
    diagonal_concept_shape,
    difference_shape,
    label_shape,
    low_rank_concept_shape,
)
from vecveil.privacy.sensitivity.concept_subspace import Moments
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.validation import check_count, check_positive

LAPLACE = Method("laplace", "isotropic Laplace noise", isotropic)

_GAUSSIAN = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Gaussian(
        shape, noise * rms_norm / float(np.sqrt(shape.dimension)), splits
    ),
    ratio=lambda sigma, rms_norm, n: sigma * float(np.sqrt(n)) / rms_norm,
    scales=("sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage"),
    can_split=True,
)


def _ldp_family(delta: float | None) -> NoiseFamily:
    """Return the family of noise calibrated to (ε, δ) on the unit ball."""
    probability = 0.5 if delta is None else delta  # any δ: only its scales are read

    def refuse(*arguments: object) -> NoReturn:
        raise TypeError("ldp-gaussian is scaled by epsilon and delta")

    return NoiseFamily(
        mechanism=refuse,
        ratio=lambda epsilon, rms_norm, n: LdpGaussian(n, epsilon, probability).sigma * float(np.sqrt(n)),
        scales=("epsilon",),
        can_split=True,
        of_epsilon=lambda n, epsilon, splits: LdpGaussian(n, epsilon, probability, splits),
    )


GAUSSIAN = Method("gaussian", "isotropic Gaussian noise", isotropic, family=lambda _: _GAUSSIAN)
LDP_GAUSSIAN = Method(
    "ldp-gaussian",
    "normalise, then Gaussian noise calibrated to (ε, δ) on the unit sphere",
    isotropic,
    metric="none",
    family=_ldp_family,
    delta=True,
    before="normalise",
)


def _cosine_ratio(cosine: float, dimension: int) -> float:
    """Return the ratio whose ε has E cos θ = ``cosine``, by root finding in log space."""
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        epsilon = epsilon_of_rms_norm(float(np.exp(log_ratio)), dimension)
        return angle_moments(dimension, epsilon)[0] - cosine

    ends = (float(np.log(1e-6)), float(np.log(1e6)))
    if excess(ends[0]) < 0 or excess(ends[1]) > 0:
        raise CalibrationError(
            f"fit: no ε gives a `target_cosine` of {cosine}. Choose one further from 0 and 1.", param="target_cosine"
        )
    return float(np.exp(brentq(excess, *ends, xtol=1e-6)))


# The norm of the vectors is not released, so it counts as 1.
_SPHERE = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Purkayastha(
        shape.dimension, epsilon_of_rms_norm(noise, shape.dimension)
    ),
    ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, n),
    cosine_ratio=_cosine_ratio,
    is_linear=False,
)

PURKAYASTHA = Method(
    "purkayastha",
    "a random direction near the vector's, on the unit sphere",
    isotropic,
    metric="angle",
    family=lambda _: _SPHERE,
)

_SHUFFLED = NoiseFamily(
    mechanism=lambda shape, noise, rms_norm, splits: Shuffle(random_permutation(shape.dimension)),
    ratio=lambda value, rms_norm, n: 0.0,
    scales=(),
)

SHUFFLE = Method(
    "shuffle",
    "one secret permutation of the coordinates",
    isotropic,
    kind="obfuscation",
    metric="none",
    family=lambda _: _SHUFFLED,
)


SHAPES = ("pairs", "labels", "low-rank", "diagonal", "differences")
"""Optimal for pairs, for token labels, leading directions of the first, its diagonal, SPARSE's Δ over pairs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CovarianceOptions:
    """Options of ``covariance``.

    Attributes:
        floor: minimum share of the noise in any direction.
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
