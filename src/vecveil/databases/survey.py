"""What a store holds, counted while its rows pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vecveil.databases.equal_rows import EqualRows
from vecveil.databases.fields import Field, FieldTally
from vecveil.databases.store import Batch

__all__ = ["BadRows", "Norms", "Survey", "judged"]

Takes = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.bool_]]
_UNIT = 1e-3


@dataclass(frozen=True)
class BadRows:
    """Rows whose vector cannot be used, by why."""

    without_vector: int = 0
    not_finite: int = 0
    other_dimension: int = 0
    refused: int = 0

    def __add__(self, other: BadRows) -> BadRows:
        return BadRows(
            self.without_vector + other.without_vector,
            self.not_finite + other.not_finite,
            self.other_dimension + other.other_dimension,
            self.refused + other.refused,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.without_vector + self.not_finite + self.other_dimension + self.refused

    def to_record(self) -> dict[str, int]:
        """Return the counts as JSON values; a scan has no protector, which would refuse any."""
        return {name: count for name, count in vars(self).items() if name != "refused"}

    def __str__(self) -> str:
        named = (
            (self.without_vector, "without a vector"),
            (self.not_finite, "with NaN or infinity"),
            (self.other_dimension, "of another dimension"),
            (
                self.refused,
                "that the protector does not take: zeros, longer than in its fit, or not changed by it",
            ),
        )
        return ", ".join(f"{count:,} {what}" for count, what in named if count) or "none"


def judged(batch: Batch, dimension: int) -> tuple[npt.NDArray[np.bool_], BadRows]:
    """Return which rows of ``batch`` have a finite vector of ``dimension``, and how many have not.

    A store gives a row without a vector as NaN throughout, one of another dimension in a batch of its own.
    """
    rows = len(batch)
    if batch.vectors.shape[1] != dimension:
        empty = batch.vectors.shape[1] == 0
        bad = BadRows(without_vector=rows) if empty else BadRows(other_dimension=rows)
        return np.zeros(rows, dtype=bool), bad
    good = np.asarray(np.isfinite(batch.vectors).all(axis=1), dtype=bool)
    absent = int(np.isnan(batch.vectors).all(axis=1).sum())
    return good, BadRows(without_vector=absent, not_finite=int((~good).sum()) - absent)


@dataclass(frozen=True)
class Norms:
    """Lengths of vectors; all 0 if there are none."""

    least: float
    mean: float
    largest: float
    unit_share: float
    zeros: int

    def to_record(self) -> dict[str, float]:
        """Return the lengths as JSON values."""
        return dict(vars(self))


class Survey:
    """Counts the rows that pass: bad ones, lengths, equal ones, fields.

    Args:
        dimension: of the vectors.
        takes: tells of finite vectors (N, dimension) which can be used; None takes all.
    """

    def __init__(self, dimension: int, takes: Takes | None = None) -> None:
        self.dimension, self._takes = dimension, takes
        self.rows = 0
        self.bad = BadRows()
        self.equal_ids = EqualRows()
        self.equal_vectors = EqualRows()
        self._fields = FieldTally()
        self._id_fields = FieldTally()
        self._good = 0
        self._least, self._largest, self._sum = np.inf, 0.0, 0.0
        self._units = self._zeros = 0

    def add(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Count further rows; return which of them have a finite vector of the dimension."""
        good, bad = judged(batch, self.dimension)
        self.rows += len(batch)
        self.bad += bad
        if self._takes is not None and good.any():
            taken = self._takes(np.ascontiguousarray(batch.vectors[good]))
            self.bad += BadRows(refused=int((~taken).sum()))
        self.equal_ids.add(one.encode("utf-8", "surrogatepass") for one in batch.ids)
        self._fields.add(batch.fields)
        self._id_fields.add({"id": one} for one in batch.ids)
        vectors = batch.vectors[good] if good.any() else np.empty((0, self.dimension), np.float32)
        self.equal_vectors.add(
            row.tobytes() for row in np.ascontiguousarray(vectors + np.float32(0))
        )
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        if len(norms):
            self._good += len(norms)
            self._least = min(self._least, float(norms.min()))
            self._largest = max(self._largest, float(norms.max()))
            self._sum += float(norms.sum())
            self._units += int((np.abs(norms - 1) < _UNIT).sum())
            self._zeros += int((norms == 0).sum())
        return good

    @property
    def norms(self) -> Norms:
        """The lengths of the vectors so far."""
        if not self._good:
            return Norms(0.0, 0.0, 0.0, 0.0, 0)
        mean, units = self._sum / self._good, self._units / self._good
        return Norms(self._least, mean, self._largest, units, self._zeros)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields so far."""
        return self._fields.fields()

    @property
    def ids(self) -> Field | None:
        """What the ids look like, judged as a field; None without rows."""
        return next(iter(self._id_fields.fields()), None)

    def to_record(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {
            "rows": self.rows,
            "bad_rows": self.bad.to_record(),
            "norms": self.norms.to_record(),
            "equal_vectors": {
                "rows": self.equal_vectors.count(),
                "exact": self.equal_vectors.is_exact,
            },
            "equal_ids": {"rows": self.equal_ids.count(), "exact": self.equal_ids.is_exact},
            "fields": [field.to_record(self.rows) for field in self.fields],
            "ids": None
            if self.ids is None
            else (self.ids.withheld or self.ids.personal or "other"),
        }
