"""A measured figure: never a bare float, always with its interval, count and chance level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One measured figure with its 95 % interval.

    Attributes:
        metric: Name of the metric, such as ``"R-precision"``.
        value: The figure itself.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
        n: How many units the figure is a mean or share of (the metric's docstring names them).
        chance: What somebody reaches who never saw the vectors; None where there is no such figure.
    """

    metric: str
    value: float
    low: float
    high: float
    n: int
    chance: float | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the estimate as a JSON object; a figure that is not finite becomes None."""
        return {
            "metric": self.metric,
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "n": self.n,
            "chance": None if self.chance is None else _finite(self.chance),
        }


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
