"""Learning curves of a policy: what it reached after each epoch, on vectors that it did not learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from vecveil.errors import DataFileError

__all__ = ["SCHEMA", "EpochMeasures", "LearningCurves"]

SCHEMA = "vecveil.training/1"


@dataclass(frozen=True, slots=True)
class EpochMeasures:
    """Means over the held-out vectors after an epoch, without dropout, under the same draws every time.

    Attributes:
        epoch: 0 is before the first step.
        reward: R of the protected vectors.
        reward_training: R of the training vectors, over the epoch's steps and with dropout; None before the first.
        reward_clean: R of the vectors as they are.
        p_pii, p_pii_clean: the classifier's probability of PII, protected and as they are.
        drift: 1 − cos(e', e).
        cluster_distance, cluster_distance_clean: ‖e' − c‖ and ‖e − c‖.
        mean_log_sigma: mean of log σ over the coordinates.
        deterministic_share: ‖μ⊥‖² / E‖d⊥‖², in [0, 1]: how much of the perturbation does not change between draws.
        direction_cosine: v · v before the first step: 1 where the direction has not moved.
        mean_resultant, direction_resultant: ‖mean over the vectors of μ/‖μ‖‖, and of v: 1 where every vector gets the
            same one, so that the policy has learnt nothing of e.
        seconds: since the first step, over all runs.
    """

    epoch: int
    reward: float
    reward_training: float | None
    reward_clean: float
    p_pii: float
    p_pii_clean: float
    drift: float
    cluster_distance: float
    cluster_distance_clean: float
    mean_log_sigma: float
    deterministic_share: float
    direction_cosine: float
    mean_resultant: float
    direction_resultant: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """The measures of each epoch, the start first."""

    epochs: tuple[EpochMeasures, ...]

    @property
    def last(self) -> EpochMeasures:
        """Return what the policy that is kept has reached: the last epoch's."""
        return self.epochs[-1]

    @property
    def best(self) -> EpochMeasures:
        """Return the epoch with the highest reward, for comparison only."""
        return max(self.epochs, key=lambda one: one.reward)

    def with_epoch(self, measures: EpochMeasures) -> Self:
        """Return the curves with one epoch more."""
        return type(self)((*self.epochs, measures))

    def to_record(self) -> dict[str, Any]:
        """Return the curves, JSON-ready."""
        return {
            "schema": SCHEMA,
            "epochs": [asdict(one) for one in self.epochs],
            "best_epoch": self.best.epoch if self.epochs else None,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the curves of a record.

        Raises:
            DataFileError: it is no record of learning curves, or of another schema.
        """
        schema = record.get("schema") if isinstance(record, Mapping) else None
        if schema != SCHEMA:
            raise DataFileError.of(
                "LearningCurves", "record", f"of the schema {SCHEMA!r}", repr(schema)[:40]
            )
        try:
            return cls(tuple(_epoch(one, at) for at, one in enumerate(record["epochs"])))
        except (KeyError, TypeError, ValueError) as error:
            raise DataFileError.of("LearningCurves", "record", "a list of epochs with all their measures",
                                   "one without") from error  # fmt: skip


def _epoch(values: Any, at: int) -> EpochMeasures:
    if values["epoch"] != at:
        raise ValueError("epoch")
    found: dict[str, Any] = {"epoch": at}
    for field in fields(EpochMeasures)[1:]:
        value = values[field.name]
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TypeError(field.name)
        if value is None and field.name != "reward_training":
            raise TypeError(field.name)
        found[field.name] = None if value is None else float(value)
    return EpochMeasures(**found)
