"""The record of a training, read before anything of it is shown.

What a later version adds is left out, and so is a measure that an earlier one did not have; what is there
must be sound. An error names the key (``training.epochs[3].reward``), never a value of another kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecveil.errors import InvalidInputError, VecveilError
from vecveil.report.reading import Node, Said

__all__ = [
    "MEASURES",
    "PANELS",
    "SCHEMA",
    "Figure",
    "Measure",
    "Panel",
    "Training",
    "read_training",
]

SCHEMA = "vecveil.training/1"
LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of numbers over the epochs.

    Attributes:
        key: its name in records.
        label: in a table of all measures.
        side: ``protected``, ``clean`` or ``training``: how it is drawn, and its name in its own panel.
    """

    key: str
    label: str
    side: str = "protected"


@dataclass(frozen=True, slots=True)
class Panel:
    """Measures that are drawn together.

    Attributes:
        bounds: of the scale, where a measure has bounds of its own.
    """

    name: str
    title: str
    about: str
    measures: tuple[Measure, ...]
    bounds: tuple[float, float] | None = None


PANELS = (
    Panel(
        "reward", "Reward", "R = −α‖e′ − e‖ − β p(e′) − γ‖e′ − c‖: what the policy is trained to raise.",
        (Measure("reward", "reward"), Measure("reward_clean", "reward, clean", "clean"),
         Measure("reward_training", "reward, training", "training")),
    ),
    Panel(
        "p-pii", "p(PII)", "The classifier’s probability of PII. It is the one that the policy was trained against.",
        (Measure("p_pii", "p(PII)"), Measure("p_pii_clean", "p(PII), clean", "clean")), (0.0, 1.0),
    ),
    Panel(
        "drift", "Drift", "1 − cos(e′, e): how far protected vectors point away from clean ones.",
        (Measure("drift", "drift"),),
    ),
    Panel(
        "cluster", "Distance to the cluster", "‖e′ − c‖, c the centroid of plain texts that the reward draws to.",
        (Measure("cluster_distance", "distance to c"),
         Measure("cluster_distance_clean", "distance to c, clean", "clean")),
    ),
    Panel(
        "mean-log-sigma", "Mean of log σ", "Over the coordinates: how random the raw noise is.",
        (Measure("mean_log_sigma", "mean log σ"),),
    ),
    Panel(
        "share", "Share that does not change",
        "How much of the perturbation is the same in every draw. At 1 nothing is random.",
        (Measure("deterministic_share", "unchanging share"),), (0.0, 1.0),
    ),
    Panel(
        "direction", "Reference direction", "Mean cosine of v(e) with what it was before the first step.",
        (Measure("direction_cosine", "cosine of v"),),
    ),
    Panel(
        "same-mean", "One mean for all", "Length of the mean of μ/‖μ‖ over the vectors: 1 where all get the same μ.",
        (Measure("mean_resultant", "sameness of μ"),), (0.0, 1.0),
    ),
    Panel(
        "same-direction", "One direction for all",
        "Length of the mean of v over the vectors: 1 where all get the same v.",
        (Measure("direction_resultant", "sameness of v"),), (0.0, 1.0),
    ),
)  # fmt: skip
MEASURES = tuple(measure for panel in PANELS for measure in panel.measures)


@dataclass(frozen=True, slots=True)
class Figure:
    """A held-out figure of the classifier."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    chance: float | None


@dataclass(frozen=True)
class Training:
    """What is shown of a training.

    Attributes:
        epochs: their numbers, rising; 0 is before the first step.
        series: for each of `MEASURES` that the record holds: by its key, a number or None for each epoch.
        seconds: for each epoch, since the first step; empty where the record lacks it.
        settings: by name.
        figures, rows_of, warnings: of the classifier.
    """

    epochs: tuple[int, ...]
    series: Mapping[str, tuple[float | None, ...]]
    seconds: tuple[float, ...]
    settings: Mapping[str, Any]
    seed: int | None
    rows: int | None
    figures: tuple[Figure, ...]
    rows_of: Mapping[str, int]
    warnings: tuple[str, ...]

    def of(self, measure: Measure) -> tuple[float | None, ...] | None:
        """Return one measure over the epochs, or None where the record lacks it."""
        return self.series.get(measure.key)

    @property
    def best(self) -> int | None:
        """The epoch with the highest reward."""
        rewards = self.series.get("reward", ())
        pairs = zip(self.epochs, rewards, strict=False)
        known = [(value, -epoch) for epoch, value in pairs if value is not None]
        return -max(known)[1] if known else None


def read_training(
    record: Any, *, owner: str, error: type[VecveilError] = InvalidInputError
) -> Training:
    """Return the record of a training, checked.

    Raises:
        InvalidInputError (or ``error``): it has another schema, no epochs, or a key with a wrong value.
    """
    node = Node(record, "training", owner, error)
    schema = node.data.get("schema")
    if schema != SCHEMA:
        got = repr(schema)[:40] if isinstance(schema, str) else type(schema).__name__
        raise error.of(owner, "training.schema", repr(SCHEMA), got,
                       fix="Read the protector with the version of vecveil that fitted it.")  # fmt: skip
    epochs = node.children("epochs")
    if not epochs:
        raise node.fail("epochs", "a list of one epoch or more", Said("an empty list"))
    numbers = tuple(epoch.count("epoch") for epoch in epochs)
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise node.fail("epochs", "in rising order", Said("another order"))
    return Training(
        epochs=numbers,
        series=_series(epochs),
        seconds=_seconds(epochs),
        settings=_settings(node),
        seed=_maybe(node, "seed", node.count),
        rows=_maybe(node, "rows", node.count),
        **_classifier(node),
    )


def _maybe(node: Node, name: str, read: Any) -> Any:
    """Return what ``read`` gives for a key, or None where it is absent or null."""
    return None if node.data.get(name) is None else read(name)


def _measured(epoch: Node, key: str) -> float | None:
    if epoch.data.get(key) is None:
        return None
    return epoch.number(key, low=-LARGEST, high=LARGEST)


def _series(epochs: list[Node]) -> dict[str, tuple[float | None, ...]]:
    found: dict[str, tuple[float | None, ...]] = {}
    for measure in MEASURES:
        values = tuple(_measured(epoch, measure.key) for epoch in epochs)
        if any(value is not None for value in values):
            found[measure.key] = values
    return found


def _seconds(epochs: list[Node]) -> tuple[float, ...]:
    values = [_measured(epoch, "seconds") for epoch in epochs]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def _settings(node: Node) -> dict[str, Any]:
    if node.data.get("settings") is None:
        return {}
    settings = node.child("settings")
    found: dict[str, Any] = {}
    for name, value in settings.data.items():
        if isinstance(value, float):
            settings.number(name)
        if value is None or isinstance(value, bool | int | float | str):
            found[str(name)] = value
    return found


def _classifier(node: Node) -> dict[str, Any]:
    """Return figures, numbers of rows and warnings; any of them may be absent."""
    about: Any = node.data.get("classifier")
    held = about.get("held_out") if isinstance(about, Mapping) else None
    if not isinstance(held, Mapping):
        return {"figures": (), "rows_of": {}, "warnings": ()}
    inside = Node(held, "training.classifier.held_out", node.owner, node.error)
    figures = tuple(
        _figure(inside.child(str(name)), str(name))
        for name, value in held.items()
        if isinstance(value, Mapping) and "value" in value
    )
    rows: dict[str, int] = {}
    if held.get("rows") is not None:
        counted = inside.child("rows")
        rows = {str(name): counted.count(name) for name in counted.data}
    warnings = inside.texts("warnings") if held.get("warnings") is not None else ()
    return {"figures": figures, "rows_of": rows, "warnings": warnings}


def _figure(node: Node, name: str) -> Figure:
    metric = node.text("metric") if "metric" in node.data else name
    value, low, high, chance = (
        _maybe(node, key, node.number) for key in ("value", "low", "high", "chance")
    )
    return Figure(metric, value, low, high, chance)
