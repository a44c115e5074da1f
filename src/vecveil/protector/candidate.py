"""A method before its scale is known: a family of noise, a shape, an optional map, and releases at any scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.mechanisms import NOTHING_BEFORE, OPEN_RANGE, Before, Mechanism, Step
from vecveil.protector.families import EllipticalLaplace, Family
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings

__all__ = ["Candidate", "CommonDraws"]

MapOfNoise = Callable[[float], LinearMap | None]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Family, shape and map of one parameter setting.

    Attributes:
        shape: Σ.
        map_of: the map T for a given noise-to-signal ratio; a Wiener filter depends on it, others do not.
        parameters: the setting, for the record.
        fixed_map: whether ``map_of`` ignores its argument.
        family: the law of the noise.
        before, after: steps around noise and map.
        made: the mechanism, where building the candidate makes it at its one scale; else the family makes it.
    """

    shape: NoiseShape
    map_of: MapOfNoise
    parameters: dict[str, Any] = field(default_factory=dict)
    fixed_map: bool = True
    family: Family = field(default_factory=EllipticalLaplace)
    before: Before = NOTHING_BEFORE
    after: tuple[Step, ...] = ()
    made: Mechanism | None = None


class CommonDraws:
    """Releases of one candidate at any noise level from the same draws, so that utility is smooth in it.

    For a linear family T x and T z are kept for each array that asks, so a further level costs one addition.
    """

    def __init__(
        self, candidate: Candidate, rms_norm: float, seed: int, *, reduced: bool = True
    ) -> None:
        self.candidate = candidate
        self.reduced = reduced and not candidate.after
        self.rms_norm = rms_norm
        self.seed = seed
        self._unit: dict[int, tuple[Embeddings, Embeddings, Embeddings | None, int]] = {}

    def _draw(self, X: Embeddings, noise: float, place: int) -> Embeddings:
        one = self.candidate
        mechanism = one.family.mechanism(one.shape, noise, self.rms_norm)
        rng = np.random.default_rng([self.seed, place])
        return mechanism.protect(X, rng=rng)

    def at(self, noise: float) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
        """Return the release at a noise-to-signal ratio."""
        one = self.candidate
        linear = one.map_of(noise)

        def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            _, x, z, place = self._kept(X, linear)
            if rng is None:
                y = x
            elif z is not None:
                y = x + np.float32(noise) * z
            else:
                y = self._draw(x, noise, place)
            if linear is not None and not (one.fixed_map and one.family.is_linear):
                y = linear.apply(y, reduced=self.reduced)
            for step in one.after:
                if step.value == OPEN_RANGE:  # set once the noise is: here by what comes
                    step = Step("int8", float(np.quantile(np.abs(y), 0.9999)) or 1.0)
                y = step.apply(y)
            return y

        return release

    def _kept(
        self, X: Embeddings, linear: LinearMap | None
    ) -> tuple[Embeddings, Embeddings, Embeddings | None, int]:
        one, key = self.candidate, id(X)
        if key not in self._unit:
            place = len(self._unit)
            rows = one.before.apply(np.asarray(X, dtype=np.float32), owner="fit")
            z = self._draw(np.zeros_like(rows), 1.0, place) if one.family.is_linear else None
            if one.fixed_map and linear is not None and z is not None:
                rows = linear.apply(rows, reduced=self.reduced)
                z = linear.apply(z, reduced=self.reduced)
            self._unit[key] = (X, rows, z, place)
        return self._unit[key]
