"""How often a scale is measured: with the seeds of every cell, or with more of them."""

from __future__ import annotations

from dataclasses import dataclass

from research.specification import Spec

__all__ = ["SeededScalesSpec"]


@dataclass(frozen=True, kw_only=True)
class SeededScalesSpec(Spec):
    """Settings of an experiment that has scales.

    Attributes:
        more_seeds: seeds of the scales in ``more_scales``, where that is more than ``seeds``.
        more_scales: scales that are measured with more seeds; ``clean`` is, too.
    """

    more_seeds: int = 1
    more_scales: tuple[str, ...] = ()

    @property
    def all_seeds(self) -> range:
        """The seeds of the scale that has most."""
        return range(max(self.seeds, self.more_seeds))

    def wants(self, scale: str, seed: int) -> bool:
        """Return whether a scale is measured with a seed."""
        more = scale == "clean" or scale in self.more_scales
        return seed < self.seeds or (seed < self.more_seeds and more)
