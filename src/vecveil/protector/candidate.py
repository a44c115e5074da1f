"""A method before its scale is known: a noise shape, an optional map, and how they release vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vecveil.mechanisms import epsilon_of_rms_norm
from vecveil.mechanisms.laplace import elliptical_laplace_noise
from vecveil.sensitivity.linear_map import LinearMap
from vecveil.sensitivity.shapes import NoiseShape
from vecveil.types import Embeddings

__all__ = ["Candidate", "CommonDraws"]

MapOfNoise = Callable[[float], LinearMap | None]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Shape and map of one parameter setting.

    Attributes:
        shape: Σ.
        map_of: the map T for a given noise-to-signal ratio; a Wiener filter depends on it, others do not.
        parameters: the setting, for the record.
        fixed_map: whether ``map_of`` ignores its argument.
    """

    shape: NoiseShape
    map_of: MapOfNoise
    parameters: dict[str, Any] = field(default_factory=dict)
    fixed_map: bool = True


class CommonDraws:
    """Releases of one candidate at any noise level from the same draws, so that utility is smooth in it.

    T x and T z are kept for each array that asks, so a further level costs one addition.
    """

    def __init__(
        self, candidate: Candidate, rms_norm: float, seed: int, *, reduced: bool = True
    ) -> None:
        self.candidate = candidate
        self.reduced = reduced
        self.rms_norm = rms_norm
        self.seed = seed
        self._unit: dict[int, tuple[Embeddings, Embeddings, Embeddings]] = {}

    def _noise(self, X: Embeddings) -> Embeddings:
        shape = self.candidate.shape
        n = shape.dimension
        rng = np.random.default_rng([self.seed, len(self._unit)])
        return elliptical_laplace_noise(
            len(X), shape, epsilon_of_rms_norm(self.rms_norm, n), rng, np.float32
        )

    def at(self, noise: float) -> Callable[[Embeddings, np.random.Generator | None], Embeddings]:
        """Return the release at a noise-to-signal ratio."""
        linear = self.candidate.map_of(noise)
        scale = np.float32(noise)

        def release(X: Embeddings, rng: np.random.Generator | None) -> Embeddings:
            key = id(X)
            if key not in self._unit:
                rows = np.asarray(X, dtype=np.float32)
                z = self._noise(X)
                if self.candidate.fixed_map and linear is not None:
                    rows, z = (
                        linear.apply(rows, reduced=self.reduced),
                        linear.apply(z, reduced=self.reduced),
                    )
                self._unit[key] = (X, rows, z)
            _, x, z = self._unit[key]
            y = x if rng is None else x + scale * z
            if not self.candidate.fixed_map and linear is not None:
                y = linear.apply(y, reduced=self.reduced)
            return y

        return release
