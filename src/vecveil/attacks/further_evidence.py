"""Texts that an attacker has beside those of the split: made or found, and labelled by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.metrics.intervals import group_index
from vecveil.metrics.token_inference import check_labels
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings

__all__ = ["FurtherVectors"]


@dataclass(frozen=True, eq=False, repr=False)
class FurtherVectors:
    """Vectors of texts that the attacker has made or found, and labelled itself.

    They are no rows of a split: nothing is judged on them. They must be vectors of the kind that the attack
    learns from: clean ones where there is a release oracle.

    Attributes:
        X: (F, n) float32 or float64, finite.
        L: (F, V) 0/1 token labels.
        weight: (F,) what each counts beside an own text, above 0 and at most 1.
        groups: (F,) group of the own text that each was made from, or an id that no own text has; None: made from
            none. While an attack compares itself with another on validation texts, it leaves out what was made
            from them.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    weight: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        X = check_embeddings(self.X, owner=owner, param="X", min_rows=1)
        L = check_labels(self.L, owner=owner, param="L")
        if len(L) != len(X):
            wanted = f"one row for each of the {len(X)} vectors"
            raise InvalidInputError.of(owner, "L", wanted, f"{len(L)} rows")
        weight = np.asarray(self.weight)
        wanted = f"{len(X)} numbers above 0 and at most 1"
        if weight.shape != (len(X),) or weight.dtype.kind not in "fiu":
            raise InvalidInputError.of(owner, "weight", wanted, f"shape {weight.shape}")
        if not ((weight > 0) & (weight <= 1)).all():
            raise InvalidInputError.of(owner, "weight", wanted, "a number outside")
        if self.groups is not None:
            group_index(self.groups, len(X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))
        for name, value in (("X", X), ("L", L), ("weight", weight.astype(np.float32))):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.X)

    def apart_from(self, groups: npt.NDArray[Any] | None) -> FurtherVectors | None:
        """Return those that were made from no text of ``groups``; None if none is left."""
        if self.groups is None or groups is None:
            return self
        rows = np.flatnonzero(~np.isin(self.groups, groups))
        if not len(rows):
            return None
        return FurtherVectors(self.X[rows], self.L[rows], self.weight[rows], self.groups[rows])
