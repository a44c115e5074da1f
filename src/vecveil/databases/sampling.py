"""A random sample of the rows of a store, drawn while they pass."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.store import Batch

__all__ = ["Reservoir", "Sample"]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of a store, in its order. They are in memory only; its repr shows none of them."""

    ids: tuple[str, ...] = field(repr=False)
    vectors: npt.NDArray[np.float32] = field(repr=False)
    fields: tuple[Mapping[str, Any], ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)


class Reservoir:
    """Keeps ``size`` of the rows that pass, each set of them with the same chance.

    Args:
        size: rows to keep.
        seed: decides, with the order of the rows, which are kept; the size of batches does not.
        among: ids of the rows that may be kept; None for all.
    """

    def __init__(self, size: int, seed: int, among: Container[str] | None = None) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._among = among
        self._passed = 0
        self._kept: list[tuple[float, int, str, npt.NDArray[np.float32], Mapping[str, Any]]] = []

    def add(self, batch: Batch, good: npt.NDArray[np.bool_]) -> None:
        """Let the rows of ``batch`` pass; only those that are ``good`` may be kept."""
        draws = self._rng.random(len(batch))
        for i in np.flatnonzero(good):
            if self._among is not None and batch.ids[i] not in self._among:
                continue
            entry = (
                -float(draws[i]),
                self._passed + int(i),
                batch.ids[i],
                batch.vectors[i].copy(),
                batch.fields[i],
            )
            if len(self._kept) < self._size:
                heapq.heappush(self._kept, entry)
            elif entry[0] > self._kept[0][0]:
                heapq.heapreplace(self._kept, entry)
        self._passed += len(batch)

    def sample(self, dimension: int) -> Sample:
        """Return the rows that were kept."""
        kept = sorted(self._kept, key=lambda entry: entry[1])
        vectors = (
            np.stack([entry[3] for entry in kept]) if kept else np.empty((0, dimension), np.float32)
        )
        return Sample(tuple(e[2] for e in kept), vectors, tuple(e[4] for e in kept))
