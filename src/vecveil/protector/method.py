"""Building blocks of methods: noise families, the noise scale, the data of a fit, and candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from vecveil.concepts.pairs import WordMarks
from vecveil.errors import InvalidInputError, out_of_range
from vecveil.mechanisms import (
    NOTHING_BEFORE,
    Before,
    Laplace,
    Mahalanobis,
    Mechanism,
    Step,
    epsilon_of_rms_norm,
    rms_norm_of_epsilon,
)
from vecveil.mechanisms.textcrafter import check_radius
from vecveil.metrics import UtilityTask
from vecveil.sensitivity.moments import Moments
from vecveil.sensitivity.shapes import LinearMap, NoiseShape
from vecveil.types import Embeddings, Groups, TokenLabels
from vecveil.validation import check_positive, check_probability

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9
SCALES = ("epsilon", "sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage", "radius")


@dataclass(frozen=True, kw_only=True)
class NoiseFamily:
    """A law of noise with one free scale, the noise-to-signal ratio.

    The ratio is the root mean square norm of the noise over that of the vectors. (For the sphere it is that of Laplace
    noise at the same ε, the limit of the Purkayastha mechanism for large ε.)

    Attributes:
        mechanism: from a shape, a ratio, the root mean square norm of the vectors, and splits.
        ratio: from ε, σ or a radius, that norm, and n.
        cosine_ratio: from the mean cosine of clean and noisy vectors, and n. The default, √(1/c² − 1), is exact up
            to 1/n for vectors of one norm and isotropic noise; a fit measures it.
        is_linear: noise at ratio r is r times the noise at ratio 1, so one draw serves every ratio.
        can_split: each normal variate of the noise can be a sum of several.
        of_epsilon: the mechanism from n, ε and splits, where the ratio does not determine ε.
    """

    mechanism: Callable[[NoiseShape, float, float, int], Mechanism]
    ratio: Callable[[float, float, int], float]
    cosine_ratio: Callable[[float, int], float] = lambda cosine, n: float(np.sqrt(1 / cosine**2 - 1))
    scales: tuple[str, ...] = ("epsilon", "noise_to_signal", "target_utility", "target_cosine", "target_advantage")
    is_linear: bool = True
    can_split: bool = False
    of_epsilon: Callable[[int, float, int], Mechanism] | None = None


def _elliptical_laplace(shape: NoiseShape, noise: float, rms_norm: float, splits: int) -> Mechanism:
    epsilon = epsilon_of_rms_norm(noise * rms_norm, shape.dimension)
    if shape.is_isotropic:
        return Laplace(shape.dimension, epsilon, splits)
    return Mahalanobis(shape, epsilon, splits)


ELLIPTICAL_LAPLACE = NoiseFamily(
    mechanism=_elliptical_laplace,
    ratio=lambda epsilon, rms_norm, n: rms_norm_of_epsilon(epsilon, n) / rms_norm,
    can_split=True,
)
"""Density ∝ exp(−ε‖z‖_Σ): Laplace noise for Σ = I, else Mahalanobis noise."""


@dataclass(frozen=True)
class NoiseScale:
    """The scale of the noise: one field of `vecveil.fit_pairs`, and δ with ε for some methods."""

    epsilon: float | None = None
    noise_to_signal: float | None = None
    target_utility: float | None = None
    sigma: float | None = None
    delta: float | None = None
    target_cosine: float | None = None
    target_advantage: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        # None is not set; 0 is set and refused here.
        for name, value in self.to_record().items():
            if name in ("epsilon", "sigma", "noise_to_signal"):
                check_positive(value, owner="fit", param=name)
            elif name == "radius":
                check_radius(value, owner="fit")
            else:
                check_probability(value, owner="fit", param=name, open_interval=True)

    @property
    def name(self) -> str | None:
        return next((name for name in SCALES if getattr(self, name) is not None), None)

    def check(self, method: str, allowed: tuple[str, ...], *, delta: bool) -> None:
        """Raise InvalidInputError unless exactly one scale of the method is set, and δ if it takes one."""
        given = [name for name in SCALES if getattr(self, name) is not None]
        if not allowed and (given or self.delta is not None):
            raise InvalidInputError.of(
                "fit",
                (given or ["delta"])[0],
                f"left out for method {method!r}",
                "a value",
                "It adds no noise, so it has no scale.",
            )
        if allowed and len(given) != 1:
            others = ", or ".join(f"`{name}`" for name in allowed[1:])
            hint = "; target_utility=0.95 is a usual start." if "target_utility" in allowed else "."
            raise InvalidInputError.of(
                "fit",
                allowed[0],
                "given alone" + (f", or {others}" if others else ""),
                " and ".join(given) or "none of them",
                "The noise has one scale.",
                f"Give exactly one{hint}",
            )
        if given and given[0] not in allowed:
            raise InvalidInputError.of(
                "fit", given[0], f"left out for method {method!r}", "a value", fix=f"It takes {' or '.join(allowed)}."
            )
        if delta != (self.delta is not None):
            constraint = "given beside epsilon" if delta else f"left out for method {method!r}"
            raise InvalidInputError.of("fit", "delta", constraint, self.delta)

    def noise(self, rms_norm: float, dimension: int, family: NoiseFamily) -> float | None:
        """Return the noise-to-signal ratio, or None if a target needs a search.

        Raises:
            InvalidInputError: the ratio is not in [1e-9, 1e9], where floating-point arithmetic is meaningful.
        """
        name = self.name
        if name == "target_cosine":
            assert self.target_cosine is not None
            return family.cosine_ratio(self.target_cosine, dimension)
        if name is None or name.startswith("target"):
            return None

        def ratio(value: float) -> float:
            return value if name == "noise_to_signal" else family.ratio(value, rms_norm, dimension)

        value = float(getattr(self, name))
        with np.errstate(over="ignore"):  # an overflow is outside the range below
            noise = ratio(value)
        if not LEAST_RATIO <= noise <= MOST_RATIO:
            # The ratio is proportional to σ and r, and to 1/ε.
            unit = ratio(1.0)
            ends = sorted(unit / r if name == "epsilon" else r / unit for r in (LEAST_RATIO, MOST_RATIO))
            if name == "noise_to_signal":
                ends = [LEAST_RATIO, MOST_RATIO]
            raise out_of_range(
                "fit",
                name,
                f"between {ends[0]:.3g} and {ends[1]:.3g} for these vectors",
                value,
                "Beyond that nothing is left of the vectors, or nothing of the noise.",
            )
        return noise

    def to_record(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


def no_map(noise: float) -> LinearMap | None:
    return None


@dataclass(frozen=True, eq=False)
class Candidate:
    """Family, shape and map of one parameter setting, before its noise is known.

    Attributes:
        map_of: the map T at a noise-to-signal ratio; only a Wiener filter depends on it.
        fixed_map: True if ``map_of`` ignores its argument.
        before, after: steps around noise and map.
        mechanism: of a method with a fixed scale; None takes that of the family.
    """

    shape: NoiseShape
    map_of: Callable[[float], LinearMap | None] = no_map
    parameters: dict[str, Any] = field(default_factory=dict)
    fixed_map: bool = True
    family: NoiseFamily = ELLIPTICAL_LAPLACE
    before: Before = NOTHING_BEFORE
    after: tuple[Step, ...] = ()
    mechanism: Mechanism | None = None


@dataclass(frozen=True, eq=False, repr=False)
class FitData:
    """The data that a method learns from.

    Attributes:
        positive: (N, n) of texts with the concept.
        negative: (N, n) of the same texts without it, or None for a concept given by labels.
        token_labels: (N, V) 0/1, or None.
        background: (K, n) of ordinary texts, or None.
        groups: (N,) ids of rows that belong together, or None.
        findings: entries that the method adds to the report of the fit.
        words: marks of the words in the texts of the positives and, after them, of the background, or None.
    """

    positive: Embeddings
    negative: Embeddings | None
    token_labels: TokenLabels | None
    background: Embeddings | None
    groups: Groups | None
    moments: Moments
    task: UtilityTask
    scale: NoiseScale
    seed: int
    show_progress: bool | None
    before: Before = NOTHING_BEFORE
    findings: dict[str, Any] = field(default_factory=dict)
    words: WordMarks | None = None

    @property
    def dimension(self) -> int:
        return int(self.positive.shape[1])

    def pairs(self, param: str, value: object) -> tuple[Embeddings, Embeddings]:
        """Return positives and negatives; the error for a concept given by labels names ``param``."""
        if self.negative is None:
            raise InvalidInputError.of(
                "fit",
                param,
                "one that works without pairs for a concept given by labels",
                repr(value)[:40],
                "It compares texts with the same texts without the concept.",
            )
        return self.positive, self.negative


@dataclass(frozen=True)
class Method:
    """A method: its name, summary and builder.

    Attributes:
        build: makes a candidate from the data of a fit and the method's options.
        kind: basis of its protection: ``formal`` (proof), ``empirical`` (measurements), ``obfuscation`` (neither).
        metric: distance of its guarantee.
        options: option names that `fit` accepts for it.
        postprocess: its default post-processing of noisy vectors.
        without_map: the method that remains when another map replaces its ``own map``.
        family: law of its noise, as a function of δ or None.
        delta: True if it takes δ with ε.
        revision: raised when the fit changes, so that experiments measure it again.
        before: its default preprocessing.
        labels: True if it can learn from labels without pairs.
    """

    name: str
    summary: str
    build: Callable[[FitData, dict[str, Any]], Candidate]
    options: tuple[str, ...] = ()
    postprocess: Literal["none", "wiener", "own map"] = "none"
    without_map: str | None = None
    kind: Literal["formal", "empirical", "obfuscation"] = "formal"
    metric: str = "Euclidean"
    family: Callable[[float | None], NoiseFamily] = lambda _: ELLIPTICAL_LAPLACE
    delta: bool = False
    revision: int = 1
    before: str = "none"
    labels: bool = True

    @property
    def scales(self) -> tuple[str, ...]:
        """Return the names of its scales, exactly one of which a caller sets."""
        # Any δ: the names do not depend on it.
        return self.family(0.5).scales


def isotropic(data: FitData, options: dict[str, Any]) -> Candidate:
    """Return the candidate of a method that learns nothing: Σ = I, no map."""
    return Candidate(NoiseShape.isotropic(data.dimension))
