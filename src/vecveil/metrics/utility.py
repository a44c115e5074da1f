"""Utility tasks: what protected vectors are still good for, measured as a share of the clean figure.

A task holds clean embeddings and asks a *release* to protect them: ``release(X, rng)`` gives protected
vectors, and ``release(X, None)`` the deterministic map alone, for queries that stay on the trusted side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from vecveil.errors import InvalidInputError
from vecveil.metrics.estimate import Estimate
from vecveil.types import Embeddings

__all__ = ["Sides", "UtilityRelease", "UtilityTask"]

UtilityRelease = Callable[[Embeddings, "np.random.Generator | None"], Embeddings]
Sides = Literal["both", "documents"]


class UtilityTask(ABC):
    """One measure of usefulness.

    Attributes:
        key: short unique name in records.
        label: what a person reads.
        sides: which sides a release can protect: every task has ``both``; retrieval and neighbours also
            ``documents``, with queries through the deterministic map.
        same_space: whether protected vectors must have the dimension of clean ones.
    """

    key: str
    label: str
    sides: ClassVar[tuple[Sides, ...]] = ("both",)
    same_space: bool = False

    @abstractmethod
    def clean(self) -> Estimate:
        """Return the figure on clean vectors."""

    @abstractmethod
    def protected(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> Estimate:
        """Return the figure on protected vectors."""

    @cached_property
    def clean_value(self) -> float:
        """The clean figure as a bare number."""
        return self.clean().value

    def relative(self, release: UtilityRelease, rng: np.random.Generator) -> float:
        """Return protected / clean with noise on both sides, the quantity that a target is set for."""
        clean = self.clean_value
        if clean <= 0:
            raise InvalidInputError.of(type(self).__name__, "utility", "a task that clean vectors can do",
                                       f"a clean figure of {clean:.3g}", "A share of nothing cannot be kept.",
                                       "Check the labels, or use another utility.")  # fmt: skip
        return self.protected(release, rng).value / clean

    def to_record(
        self, release: UtilityRelease, rng: np.random.Generator, *, sides: Sides = "both"
    ) -> dict[str, Any]:
        """Return one entry of a record's ``utility``: clean, protected, relative, with an interval."""
        estimate = self.protected(release, rng, sides=sides)
        clean = self.clean_value
        return {
            "label": self.label,
            "metric": estimate.metric,
            "clean": clean,
            "value": estimate.value,
            "relative": estimate.value / clean if clean > 0 else None,
            "low": estimate.low,
            "high": estimate.high,
            "n": estimate.n,
            "sides": sides,
        }
