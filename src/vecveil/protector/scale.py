"""How much noise: exactly one of ε, noise-to-signal or a target utility, found by bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecveil.checks import check_positive, check_probability
from vecveil.errors import CalibrationError, InvalidInputError, message
from vecveil.mechanisms import epsilon_of_rms_norm, rms_norm_of_epsilon

__all__ = ["Scale", "largest_noise"]

SMALLEST_NOISE = 0.02
"""Least noise-to-signal ratio that a calibration tries: below it the noise protects nothing."""

LARGEST_NOISE = 100.0

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9


@dataclass(frozen=True)
class Scale:
    """The caller's choice of scale; exactly one field is set.

    Attributes:
        epsilon: ε > 0 per unit of the mechanism's norm.
        noise_to_signal: root mean square norm of the noise before any map, over that of the
            embeddings.
        target_utility: share of the clean utility to keep, in (0, 1), with both sides protected.
    """

    epsilon: float | None = None
    noise_to_signal: float | None = None
    target_utility: float | None = None

    def __post_init__(self) -> None:
        owner = "fit"
        given = {k: v for k, v in vars(self).items() if v is not None}
        if len(given) != 1:
            raise InvalidInputError(
                message(owner, "epsilon", "given alone, or `noise_to_signal`, or `target_utility`",
                        " and ".join(given) or "none of the three", "The noise has one scale.",
                        "Give exactly one; target_utility=0.95 is a usual start.")
            )  # fmt: skip
        if self.epsilon is not None:
            check_positive(self.epsilon, owner=owner, param="epsilon")
        if self.noise_to_signal is not None:
            check_positive(self.noise_to_signal, owner=owner, param="noise_to_signal")
        if self.target_utility is not None:
            check_probability(
                self.target_utility, owner=owner, param="target_utility", open_interval=True
            )

    def noise(self, rms_norm: float, dimension: int) -> float | None:
        """Return the noise-to-signal ratio that is asked for, or None if a target decides.

        Raises:
            InvalidInputError: the ratio is not in [1e-9, 1e9], where arithmetic still means something.
        """
        if self.target_utility is not None:
            return None
        if self.epsilon is None:
            param, given, noise = "noise_to_signal", self.noise_to_signal, self.noise_to_signal
        else:
            param, given = "epsilon", self.epsilon
            noise = rms_norm_of_epsilon(self.epsilon, dimension) / rms_norm
        if noise is None or not LEAST_RATIO <= noise <= MOST_RATIO:
            unit = rms_norm_of_epsilon(1.0, dimension) / rms_norm
            low, high = (
                (LEAST_RATIO, MOST_RATIO)
                if param == "noise_to_signal"
                else (unit / MOST_RATIO, unit / LEAST_RATIO)
            )
            raise InvalidInputError(
                message("fit", param, f"between {low:.3g} and {high:.3g} for these vectors", given,
                        "Beyond that nothing is left of the vectors, or nothing of the noise.")
            )  # fmt: skip
        return noise

    def to_record(self) -> dict[str, Any]:
        """Return what was asked for."""
        return {k: v for k, v in vars(self).items() if v is not None}


def epsilon_of_noise(noise: float, rms_norm: float, dimension: int) -> float:
    """Return the ε of a noise-to-signal ratio."""
    return epsilon_of_rms_norm(noise * rms_norm, dimension)


def largest_noise(
    utility: Callable[[float], float], target: float, *, steps: int = 24
) -> float | None:
    """Return the largest noise-to-signal ratio whose utility is at least ``target``, or None.

    Args:
        utility: relative utility as a function of the ratio, falling up to sampling error. Draws
            should be common to all calls, or bisection chases the sampling error.
    """
    low, high = SMALLEST_NOISE, LARGEST_NOISE
    if utility(low) < target:
        return None
    if utility(high) >= target:
        return high
    for _ in range(steps):
        middle = float(np.sqrt(low * high))
        if utility(middle) >= target:
            low = middle
        else:
            high = middle
        if high / low < 1.002:
            break
    return low


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
