"""How much noise: exactly one of ε, σ, a noise-to-signal ratio, or a target; and the search for a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecveil.errors import CalibrationError, InvalidInputError, message
from vecveil.mechanisms.textcrafter import check_radius
from vecveil.protector.families import Family
from vecveil.validation import check_positive, check_probability

__all__ = ["Scale", "bisect", "largest_noise"]

SMALLEST_NOISE = 0.02
"""Least noise-to-signal ratio that a calibration tries: below it the noise protects nothing."""

LARGEST_NOISE = 100.0

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9

_NAMES = (
    "epsilon", "sigma", "noise_to_signal", "target_utility", "target_cosine", "target_advantage",
    "radius",
)  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """The caller's choice of scale; exactly one field is set, and δ beside ε where a method takes it.

    Attributes:
        epsilon: ε > 0 per unit of the mechanism's norm.
        noise_to_signal: root mean square norm of the noise before any map, over that of the
            embeddings.
        target_utility: share of the clean utility to keep, in (0, 1), with both sides protected.
        sigma: standard deviation of Gaussian noise per coordinate.
        delta: δ of ``ldp-gaussian``, in (0, 1).
        target_cosine: mean cosine of a vector and its noisy self before any map, in (0, 1).
        target_advantage: the largest advantage that any attacker may have, in (0, 1), at telling a text with the
            concept from the same text without it, for 95 % of the pairs.
        radius: norm of every perturbation of ``textcrafter``.
    """

    epsilon: float | None = None
    noise_to_signal: float | None = None
    target_utility: float | None = None
    sigma: float | None = None
    delta: float | None = None
    target_cosine: float | None = None
    target_advantage: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "sigma", "noise_to_signal"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), owner="fit", param=name)
        if self.radius is not None:
            check_radius(self.radius, owner="fit")
        for name in ("target_utility", "target_cosine", "target_advantage", "delta"):
            if getattr(self, name) is not None:
                check_probability(getattr(self, name), owner="fit", param=name, open_interval=True)

    @property
    def name(self) -> str | None:
        """Return which of the scales is set, or None."""
        return next((name for name in _NAMES if getattr(self, name) is not None), None)

    def check(self, method: str, allowed: tuple[str, ...], *, delta: bool) -> None:
        """Refuse none or several scales, and one that the method does not have.

        Args:
            allowed: names of the method's scales; none at all for a method without noise.
            delta: whether the method takes δ beside ε.
        """
        given = [name for name in _NAMES if getattr(self, name) is not None]
        if not allowed and (given or self.delta is not None):
            raise InvalidInputError.of("fit", (given or ["delta"])[0], f"left out for method {method!r}",
                                       "a value", "It adds no noise, so it has no scale.")  # fmt: skip
        if allowed and len(given) != 1:
            listed = ", or ".join(f"`{name}`" for name in allowed[1:])
            raise InvalidInputError(
                message("fit", allowed[0], "given alone" + (f", or {listed}" if listed else ""),
                        " and ".join(given) or "none of them", "The noise has one scale.",
                        "Give exactly one; target_utility=0.95 is a usual start."
                        if "target_utility" in allowed else "Give exactly one.")
            )  # fmt: skip
        if given and given[0] not in allowed:
            raise InvalidInputError.of("fit", given[0], f"left out for method {method!r}", "a value",
                                       fix="It takes " + " or ".join(allowed) + ".")  # fmt: skip
        if delta != (self.delta is not None):
            wanted = "given beside epsilon" if delta else f"left out for method {method!r}"
            got = "None" if self.delta is None else self.delta
            raise InvalidInputError.of("fit", "delta", wanted, got)

    def noise(self, rms_norm: float, dimension: int, family: Family | None = None) -> float | None:
        """Return the noise-to-signal ratio that is asked for, or None if a target decides.

        Raises:
            InvalidInputError: the ratio is not in [1e-9, 1e9], where arithmetic still means something.
        """
        from vecveil.protector.families import EllipticalLaplace

        family = EllipticalLaplace() if family is None else family
        name = self.name
        if name == "target_cosine":
            assert self.target_cosine is not None
            return family.noise_of_cosine(self.target_cosine, dimension)
        if name is None or name.startswith("target"):
            return None
        value = float(getattr(self, name))

        def ratio(given: float) -> float:
            if name == "noise_to_signal":
                return given
            return family.noise_of(name, given, rms_norm, dimension)

        with np.errstate(over="ignore"):
            noise = ratio(value)
        if not LEAST_RATIO <= noise <= MOST_RATIO:
            unit = ratio(1.0)
            ends = sorted(
                unit / r if name == "epsilon" else r / (1.0 if name == "noise_to_signal" else unit)
                for r in (LEAST_RATIO, MOST_RATIO)
            )
            raise InvalidInputError(
                message("fit", name, f"between {ends[0]:.3g} and {ends[1]:.3g} for these vectors", value,
                        "Beyond that nothing is left of the vectors, or nothing of the noise.")
            )  # fmt: skip
        return noise

    def to_record(self) -> dict[str, Any]:
        """Return what was asked for."""
        return {k: v for k, v in vars(self).items() if v is not None}


def bisect(holds: Callable[[float], bool], *, steps: int = 24) -> float | None:
    """Return the largest noise-to-signal ratio in the range that is tried at which ``holds``, or None.

    Args:
        holds: true up to some ratio and false above it. Draws should be common to all calls, or bisection
            chases the sampling error.
    """
    low, high = SMALLEST_NOISE, LARGEST_NOISE
    if not holds(low):
        return None
    if holds(high):
        return high
    for _ in range(steps):
        middle = float(np.sqrt(low * high))
        if holds(middle):
            low = middle
        else:
            high = middle
        if high / low < 1.002:
            break
    return low


def largest_noise(
    utility: Callable[[float], float], target: float, *, steps: int = 24
) -> float | None:
    """Return the largest noise-to-signal ratio whose utility is at least ``target``, or None."""
    return bisect(lambda noise: utility(noise) >= target, steps=steps)


def refuse_target(target: float, reachable: float, what: str) -> CalibrationError:
    """Return the error for a target that no noise reaches.

    The figure is rounded down, so that asking for it works.
    """
    lower = math.floor(max(reachable, 0.0) * 1000) / 1000
    return CalibrationError(
        message("fit", "target_utility", f"at most {lower:.3f} here", target,
                f"{what} keeps {lower:.1%} of the clean utility with the least noise that is "
                f"tried (noise-to-signal {SMALLEST_NOISE:g}).",
                "Lower the target, erase fewer directions, or choose another method or utility.")
    )  # fmt: skip
