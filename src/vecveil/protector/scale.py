"""`Scale`, how strong the noise is, and `NoiseFamily`, a law of noise with one free scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecveil.errors import InvalidInputError, out_of_range, unknown_name, wrong_type
from vecveil.mechanisms import Laplace, Mahalanobis, Mechanism, epsilon_of_rms_norm, rms_norm_of_epsilon
from vecveil.mechanisms.textcrafter import check_radius
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.validation import check_positive, check_probability

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9
KINDS = ("epsilon", "sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage", "radius")


@dataclass(frozen=True)
class Scale:
    """Strength of the noise: one measure and its value. `vecveil.fit` takes it as ``scale``.

    Attributes:
        kind: the keyword of `vecveil.fit` for this measure, such as ``epsilon`` or ``target_utility``.
        delta: δ of ``ldp-gaussian``, with ``epsilon``.
    """

    kind: str
    value: float
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.kind in ("epsilon", "sigma", "noise_to_signal"):
            check_positive(self.value, owner="fit", param=self.kind)
        elif self.kind == "radius":
            check_radius(self.value, owner="fit")
        elif self.kind in KINDS:
            check_probability(self.value, owner="fit", param=self.kind, open_interval=True)
        else:
            raise unknown_name("Scale", "kind", KINDS, self.kind)
        if self.delta is not None:
            check_probability(self.delta, owner="fit", param="delta", open_interval=True)

    @classmethod
    def epsilon(cls, value: float, *, delta: float | None = None) -> Scale:
        """Return ε per unit of the mechanism's norm, or (ε, δ) for ``ldp-gaussian``.

        With unit-norm vectors the noise has a norm of about n/ε: below ε ≈ n/2 little is left of the vector.
        """
        return cls("epsilon", value, delta)

    @classmethod
    def noise_to_signal(cls, value: float) -> Scale:
        """Return the root mean square norm of the noise, before the map, over that of the vectors."""
        return cls("noise_to_signal", value)

    @classmethod
    def utility(cls, value: float) -> Scale:
        """Return the most noise that keeps this share of the clean utility, with both sides protected."""
        return cls("target_utility", value)

    @classmethod
    def cosine(cls, value: float) -> Scale:
        """Return the noise with this mean cosine between clean and noisy vectors, before the map."""
        return cls("target_cosine", value)

    @classmethod
    def advantage(cls, value: float) -> Scale:
        """Return the least noise at which no attacker has a larger advantage, for 95 % of the pairs.

        The advantage is that of distinguishing a text with the concept from the same text without it.
        """
        return cls("target_advantage", value)

    @classmethod
    def sigma(cls, value: float) -> Scale:
        """Return the standard deviation per coordinate, of ``gaussian``."""
        return cls("sigma", value)

    @classmethod
    def radius(cls, value: float) -> Scale:
        """Return the norm of every perturbation, of ``textcrafter``, whose vectors have norm 1."""
        return cls("radius", value)

    @classmethod
    def of(
        cls, scale: Any, keywords: Mapping[str, Any], *, method: str, allowed: tuple[str, ...], takes_delta: bool
    ) -> Scale | None:
        """Return the one scale in ``scale`` and ``keywords``, or None for a method without a scale.

        Raises:
            InvalidInputError: none, several, or one that the method does not take.
        """
        scales = [cls(kind, keywords[kind]) for kind in KINDS if keywords.get(kind) is not None]
        delta = keywords.get("delta")
        if scale is not None:
            if not isinstance(scale, Scale):
                raise wrong_type("fit", "scale", "a vecveil.Scale, such as Scale.utility(0.95)", scale)
            if scales or delta is not None:
                name = scales[0].kind if scales else "delta"
                raise InvalidInputError(f"Pass `scale` or `{name}`, not both.", param="scale")
            scales, delta = [scale], scale.delta
        kinds = [each.kind for each in scales]
        if not allowed:
            if kinds or delta is not None:
                name = (kinds or ["delta"])[0]
                raise InvalidInputError(f"Method {method!r} adds no noise: leave out `{name}`.", param=name)
            return None
        if len(kinds) != 1:
            names = " or ".join(f"`{name}`" for name in allowed)
            start = ", for example target_utility=0.95" if "target_utility" in allowed else ""
            raise InvalidInputError(f"Method {method!r} needs exactly one of {names}{start}.", param=allowed[0])
        if kinds[0] not in allowed:
            names = " or ".join(allowed)
            raise InvalidInputError(f"Method {method!r} does not take `{kinds[0]}`; it takes {names}.", param=kinds[0])
        if takes_delta != (delta is not None):
            verb = "needs `delta` with `epsilon`" if takes_delta else "does not take `delta`"
            raise InvalidInputError(f"Method {method!r} {verb}.", param="delta")
        return cls(kinds[0], scales[0].value, delta)

    @property
    def utility_target(self) -> float | None:
        """Return the share of the clean utility to keep, or None for another measure."""
        return self.value if self.kind == "target_utility" else None

    def noise(self, rms_norm: float, dimension: int, family: NoiseFamily) -> float | None:
        """Return the noise-to-signal ratio, or None if a target needs a search.

        Raises:
            InvalidInputError: the ratio is not in [1e-9, 1e9], where floating-point arithmetic is meaningful.
        """
        if self.kind == "target_cosine":
            return family.cosine_ratio(self.value, dimension)
        if self.kind.startswith("target"):
            return None

        def ratio(value: float) -> float:
            return value if self.kind == "noise_to_signal" else family.ratio(value, rms_norm, dimension)

        value = float(self.value)
        with np.errstate(over="ignore"):  # an overflow is outside the range below
            noise = ratio(value)
        if not LEAST_RATIO <= noise <= MOST_RATIO:
            # The ratio is proportional to σ and r, and to 1/ε.
            unit = ratio(1.0)
            ends = sorted(unit / r if self.kind == "epsilon" else r / unit for r in (LEAST_RATIO, MOST_RATIO))
            if self.kind == "noise_to_signal":
                ends = [LEAST_RATIO, MOST_RATIO]
            raise out_of_range(
                "fit",
                self.kind,
                f"between {ends[0]:.3g} and {ends[1]:.3g} for these vectors",
                value,
                "Beyond that nothing is left of the vectors, or nothing of the noise.",
            )
        return noise

    def to_record(self) -> dict[str, float]:
        return {self.kind: self.value, **({} if self.delta is None else {"delta": self.delta})}


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
