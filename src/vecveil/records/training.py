"""The record of a training, schema ``vecveil.training/1`` (docs/formats.md): measures after each epoch.

Reading leaves unknown keys out, and gives absent keys their default.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeAlias

from vecveil.errors import InvalidInputError, VecveilError
from vecveil.records.reading import Count, Place, Record, Within

Measure: TypeAlias = Annotated[float, Within(-1e12, 1e12)]


@dataclass(frozen=True)
class EpochMeasures(Record):
    """Means over the held-out vectors after an epoch, without dropout, with the same draws after every epoch.

    Attributes:
        epoch: 0 is before the first step.
        reward: R of the protected vectors.
        reward_training: R of the training vectors, over the epoch's steps and with dropout; None at epoch 0.
        reward_clean: R of the clean vectors.
        p_pii, p_pii_clean: the classifier's probability of PII, of protected and of clean vectors.
        drift: 1 − cos(e', e).
        cluster_distance, cluster_distance_clean: ‖e' − c‖ and ‖e − c‖.
        mean_log_sigma: mean of log σ over the coordinates.
        deterministic_share: ‖μ⊥‖² / E‖d⊥‖², in [0, 1]: the part of the perturbation that all draws share.
        direction_cosine: cosine of v with v before the first step.
        mean_resultant, direction_resultant: ‖mean over the vectors of μ/‖μ‖‖, and of v; at 1 the policy does not
            depend on e.
        seconds: since the first step, over all runs.
    """

    PARTIAL: ClassVar[bool] = True

    epoch: Count
    reward: Measure | None = None
    reward_training: Measure | None = None
    reward_clean: Measure | None = None
    p_pii: Measure | None = None
    p_pii_clean: Measure | None = None
    drift: Measure | None = None
    cluster_distance: Measure | None = None
    cluster_distance_clean: Measure | None = None
    mean_log_sigma: Measure | None = None
    deterministic_share: Measure | None = None
    direction_cosine: Measure | None = None
    mean_resultant: Measure | None = None
    direction_resultant: Measure | None = None
    seconds: Measure | None = None


@dataclass(frozen=True)
class ClassifierFigure(Record):
    """A figure of the PII classifier on clean vectors held out of its fit."""

    PARTIAL: ClassVar[bool] = True

    metric: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class HeldOut:
    """The classifier's part of a record: figures by name, numbers of vectors by use, warnings."""

    figures: Mapping[str, ClassifierFigure] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @classmethod
    def at(cls, place: Place) -> HeldOut:
        """Return the held-out figures of an object in the record."""
        # Earlier versions wrote neither `rows` nor `warnings`.
        data = place.mapping()
        rows = place.key("rows") if data.get("rows") is not None else None
        warnings = place.key("warnings").items() if data.get("warnings") is not None else []
        for warning in warnings:
            if not isinstance(warning.value, str):
                raise warning.fail("a string")
        return cls(
            {
                # Figures stand beside `rows` and `warnings` in one object: a `value` marks a figure.
                str(name): ClassifierFigure.at(place.key(name))
                for name, value in data.items()
                if isinstance(value, Mapping) and "value" in value
            },
            {} if rows is None else {
                str(name): int(rows.key(name).number(Within(0), whole=True)) for name in rows.mapping()
            },
            tuple(warning.value for warning in warnings),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingRecord(Record):
    """The record of a training.

    Attributes:
        epochs: rising by number.
        best_epoch: the epoch with the highest reward.
        seconds: of the whole training.
        rows: number of vectors.
        classifier: ``dimension`` and ``held_out`` (see `HeldOut`).
    """

    SCHEMA: ClassVar[str] = "vecveil.training/1"
    PARTIAL: ClassVar[bool] = True

    epochs: Sequence[EpochMeasures]
    best_epoch: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: Count | None = None
    rows: Count | None = None
    seconds: Any = None
    classifier: Any = None

    @classmethod
    def advice(cls, schema: Any) -> str:
        """Return what to do with a record of another schema."""
        return "Read the protector with the version of vecveil that fitted it."

    def measure(self, name: str) -> tuple[float | None, ...] | None:
        """Return a measure over the epochs, or None where the record lacks it."""
        values = tuple(getattr(epoch, name) for epoch in self.epochs)
        return None if all(value is None for value in values) else values

    @property
    def elapsed(self) -> float | None:
        """Seconds from the first step to the last epoch, or None if an epoch lacks them."""
        known = [epoch.seconds for epoch in self.epochs]
        return None if None in known else known[-1]

    @property
    def best(self) -> int | None:
        """The epoch with the highest reward; the first of equals."""
        # The negative epoch breaks ties: the maximum is then the earliest of equal rewards.
        known = [(e.reward, -e.epoch) for e in self.epochs if e.reward is not None]
        return -max(known)[1] if known else None

    @property
    def held_out(self) -> HeldOut:
        """Figures of the classifier; empty where the record holds none."""
        return self._held_out(Place(self.classifier, "classifier", "TrainingRecord"))

    def _held_out(self, place: Place) -> HeldOut:
        known = isinstance(place.value, Mapping) and isinstance(place.value.get("held_out"), Mapping)
        return HeldOut.at(place.key("held_out")) if known else HeldOut()

    def check(self, place: Place) -> None:
        """Raise if epochs are missing or do not rise, or if a setting or a figure of the classifier is not finite."""
        if not self.epochs:
            raise place.key("epochs").fail("a list of one epoch or more", "an empty list")
        if any(later.epoch <= epoch.epoch for epoch, later in itertools.pairwise(self.epochs)):
            raise place.key("epochs").fail("in rising order", "another order")
        for name, value in self.settings.items():
            if isinstance(value, float):
                place.key("settings").key(name).number(Within())
        # `held_out` is read on use; reading it once here raises errors now, with their place in the record.
        if self.classifier is not None:
            self._held_out(place.key("classifier"))


def read_training(
    record: Any, *, owner: str, error: type[VecveilError] = InvalidInputError
) -> TrainingRecord:
    """Return the checked record of a training.

    Raises:
        InvalidInputError (or ``error``): another schema, no epochs, or a key with a wrong value.
    """
    return TrainingRecord.read(record, owner=owner, path="training", error=error)
