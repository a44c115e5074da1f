"""What one release gives away about the concept itself, over the pairs with and without it.

The pairs D+ and D− say how far apart "with" and "without the concept" are. At each pair's distance the
total variation is the largest advantage that any attacker can have at telling which of the two was
protected, however much it knows: no attack is run, and none can do better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vecveil.accounting.gaussian import gaussian_total_variation
from vecveil.accounting.total_variation import purkayastha_total_variation
from vecveil.errors import InvalidInputError
from vecveil.types import Vector

__all__ = [
    "ConceptLevel",
    "Quantiles",
    "concept_level",
    "gaussian_total_variation",
    "purkayastha_total_variation",
]


@dataclass(frozen=True)
class Quantiles:
    """Quantiles over pairs: a pair in twenty lies above ``p95``."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    largest: float

    @classmethod
    def of(cls, values: Vector) -> Quantiles:
        """Return the quantiles of ``values`` (N,), interpolated linearly."""
        return cls(*(float(q) for q in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95, 1.0])))


@dataclass(frozen=True)
class ConceptLevel:
    """How far the concept moves the vectors, and what the best possible attacker makes of it.

    Attributes:
        pairs: number of pairs.
        distances: quantiles of the distance between the two inputs of a pair, in the mechanism's norm.
        advantages: quantiles of the largest advantage that any attacker can have: 0 is guessing, 1 is
            certainty; a balanced guess is right with probability (1 + advantage)/2.
        mean_advantage: the mean of it over the pairs.
        exact: True if it is attained by some attacker; False if it is an upper bound (a release through
            a map that cannot be inverted, counted at the quotient distance).
    """

    pairs: int
    distances: Quantiles
    advantages: Quantiles
    mean_advantage: float
    exact: bool

    def to_record(self) -> dict[str, Any]:
        """Return the figures as JSON-ready values."""
        return asdict(self)

    def __str__(self) -> str:
        bound = "exactly" if self.exact else "at most"
        median, high = self.advantages.p50, self.advantages.p95
        if self.mean_advantage >= 0.995:
            telling = (
                "an attacker can tell"
                if self.exact
                else "this bound excludes no attacker who tells"
            )
            return (
                f"Over {self.pairs} pairs with and without the concept, {telling} from one release which of "
                f"the two it was: the advantage is {bound} {self.mean_advantage:.3g} on average (0 is guessing, "
                "1 is certainty). Only an audit says what attackers find."
            )
        return (
            f"Over {self.pairs} pairs with and without the concept, no attacker can tell from one release "
            f"which of the two it was with an advantage above {self.mean_advantage:.3g} on average: "
            f"{bound} {median:.3g} for the median pair, {high:.3g} at the 95 % quantile, "
            f"{self.advantages.largest:.3g} for the worst pair (0 is guessing, 1 is certainty)."
        )


def concept_level(
    distances: Vector, *, advantage: Callable[[Vector], Vector], exact: bool = True
) -> ConceptLevel:
    """Return the distribution over pairs of their distance and of the largest possible advantage.

    Args:
        distances: (N,), ≥ 0: of the pairs' two inputs in the mechanism's own metric.
        advantage: total variation at each distance, such as ``laplace_total_variation`` with its
            parameters bound; it must return (N,) values in [0, 1].
        exact: False if the distances are quotient distances under a map that cannot be inverted.
    """
    owner = "concept_level"
    found = np.asarray(distances, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all() or (found < 0).any():
        raise InvalidInputError.of(owner, "distances", "finite and ≥ 0, of shape (N,), N ≥ 1",
                                   f"shape {found.shape} with other values" if found.size else "no pairs")  # fmt: skip
    values = np.asarray(advantage(found), dtype=np.float64)
    if values.shape != found.shape or not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError.of(owner, "advantage",
                                   "a function that returns one value in [0, 1] per distance",
                                   f"shape {values.shape} for {found.shape}, or values out of range")  # fmt: skip
    return ConceptLevel(
        pairs=int(found.size),
        distances=Quantiles.of(found),
        advantages=Quantiles.of(values),
        mean_advantage=float(values.mean()),
        exact=bool(exact),
    )
