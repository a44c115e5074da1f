"""Noise scales: literal ε, effective ε, or a share of utility.

SPARSE's printed ε is not Algorithm 1's: on unit vectors of n = 384 its noise has a norm of n/ε, about 25 times what
matches the utility curves. Therefore both are measured: ``literal 10`` is Algorithm 1 with ε = 10; ``effective 10`` is
noise of norm 15.5 / 10, the scale that reproduces the relative utility (within 5 % on MiniLM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from vecveil.errors import InvalidInputError
from vecveil.privacy.protector.methods import METHODS

EFFECTIVE_NORM = 15.5
ROOM = 0.002  # margin above a target, since search and measurement use different noise

Kind = Literal["clean", "literal", "effective", "utility", "radius", "fixed"]
DELTA = 1e-5  # of (ε, δ) where a method has one


@dataclass(frozen=True)
class Scale:
    """One point of an axis.

    Attributes:
        kind: ``clean`` (no protection), ``literal`` and ``effective`` (ε), ``utility`` (share kept),
            ``radius`` (norm of the noise), ``fixed`` (a method without a scale).
        value: infinite for ``clean`` and ``fixed``.
    """

    kind: Kind
    value: float = math.inf

    def fits(self, method: str) -> bool:
        """Return whether a method has this scale; ``clean`` belongs to the method ``none``."""
        if method == "none" or self.kind == "clean":
            return method == "none" and self.kind == "clean"
        return self._needed(method) <= set(METHODS[method].scales)

    def _needed(self, method: str) -> set[str]:
        """Return the scales that a method must have; none for a method without scales."""
        if self.kind == "fixed":
            return {"no scale"} if METHODS[method].scales else set()
        return set(self.arguments(method)) - {"delta"}

    def arguments(self, method: str) -> dict[str, Any]:
        """Return the arguments of `vecveil.fit_pairs` for this scale."""
        scales = METHODS[method].scales
        if self.kind == "fixed":
            return {}
        if self.kind == "literal":
            if "epsilon" not in scales:
                return {"sigma": 1 / self.value}
            return {"epsilon": self.value, **({"delta": DELTA} if METHODS[method].delta else {})}
        if self.kind == "effective":
            return {"noise_to_signal": EFFECTIVE_NORM / self.value}
        if self.kind == "radius":
            return {"radius" if "radius" in scales else "noise_to_signal": self.value}
        return {"target_utility": min(1.0, self.value + ROOM)}


def parse_scale(text: str) -> Scale:
    """Return the scale of ``clean``, ``fixed``, ``literal E``, ``effective E``, ``utility U`` or ``radius R``."""
    kind, _, rest = text.partition(" ")
    try:
        if kind in ("clean", "fixed") and not rest:
            return Scale(kind)  # type: ignore[arg-type]
        value = float(rest)
        if kind in ("literal", "effective", "radius") and 0 < value < math.inf:
            return Scale(kind, value)  # type: ignore[arg-type]
        if kind == "utility" and 0 < value < 1:
            return Scale("utility", value)
    except ValueError:
        pass
    forms = "'clean', 'literal E', 'effective E', 'utility U' or 'radius R'"
    raise InvalidInputError(f"experiment: `scales` has {repr(text)[:40]}; write {forms}.", param="scales")
