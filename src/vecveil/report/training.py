"""Report a training: learning curves as an HTML page, as CSV and as a table for a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vecveil.records.training import TrainingRecord, read_training
from vecveil.report.rendering import render, words, write_report
from vecveil.report.text import count, csv_table, duration, parameter, rounded, terminal_table

WORDS = words("training")
SAME_CLASSIFIER = WORDS["same_classifier"]
PANELS = WORDS["panels"]
MEASURES = {key: label for panel in PANELS for key, label in panel["measures"].items()}
"""Side and label of each measure, by its key in a record."""

Curve = tuple[str, str, Sequence[float | None]]
"""Side, label of the side, a value for each epoch."""


def training_page(record: Mapping[str, Any]) -> str:
    """Return the learning curves of a training as one HTML page that loads nothing and runs nothing.

    Args:
        record: ``report["training"]`` of a protector, schema ``vecveil.training/1``.

    Raises:
        InvalidInputError: another schema, no epochs, or a key with a wrong value.
    """
    training = read_training(record, owner="training_page")
    drawn = [(panel, curves) for panel in PANELS if (curves := _curves(training, panel))]
    return render(
        "training.html",
        what="training",
        generator="",
        about=_about(training),
        outcome=_outcome(training, drawn),
        panels=[
            {
                "bounds": None, **panel,
                "curves": curves,
                "heads": ["Epoch", *(label.capitalize() for _, label, _ in curves)],
            }
            for panel, curves in drawn
        ],
        epochs=[epoch.epoch for epoch in training.epochs],
        settings=_settings(training),
        held_out=training.held_out,
        counts=[
            (f"Vectors: {name.replace('_', ' ')}", count(number))
            for name, number in training.held_out.rows.items()
        ],
        words=WORDS,
    )


def write_training_html(record: Mapping[str, Any], target: str | os.PathLike[str]) -> Path:
    """Write `training_page` to ``target`` atomically, and return its path."""
    return write_report(target, training_page(record))


def training_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180) with a row for each epoch; missing measures are empty."""
    training = read_training(record, owner="training_csv")
    keys = [key for key in MEASURES if training.measure(key) is not None]
    keys += ["seconds"] if training.elapsed is not None else []
    return csv_table(
        ["epoch", *keys],
        ([epoch.epoch, *(getattr(epoch, key) for key in keys)] for epoch in training.epochs),
    )


def training_lines(record: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table for a terminal, with the clean figures and the limits of p(PII) below."""
    training = read_training(record, owner="training_lines")
    values = {key: held for key in MEASURES if (held := training.measure(key)) is not None}
    drawn = [key for key in values if MEASURES[key][0] == "protected"]
    header = ["epoch", *(MEASURES[key][1] for key in drawn)]
    rows = [
        [f"{epoch.epoch:,}", *(rounded(values[key][i]) for key in drawn)]
        for i, epoch in enumerate(training.epochs)
    ]
    lines = terminal_table([header, *rows])
    # Clean vectors do not change with the epochs: one figure stands for a column.
    clean = [
        f"{MEASURES[key][1]} {rounded(values[key][-1])}"
        for key in values
        if MEASURES[key][0] == "clean"
    ]
    if clean:
        lines += ["", f"Beside it: {'; '.join(clean)}."]
    return [*lines, "", SAME_CLASSIFIER, f"TextCrafter: {WORDS['guarantee']}."]


def _curves(training: TrainingRecord, panel: Mapping[str, Any]) -> list[Curve]:
    return [
        (side, WORDS["sides"][side], values)
        for key, (side, _) in panel["measures"].items()
        if (values := training.measure(key)) is not None
    ]


def _about(training: TrainingRecord) -> str:
    first, last = training.epochs[0].epoch, training.epochs[-1].epoch
    # Epoch 0 is measured before the first step: it is no epoch of training.
    trained = last if first == 0 else len(training.epochs)
    parts = [
        WORDS["guarantee"],
        f"{count(trained)} {'epoch' if trained == 1 else 'epochs'}",
        None if training.rows is None else f"{count(training.rows)} vectors",
        None if training.seed is None else f"seed {training.seed}",
        None if training.elapsed is None else duration(training.elapsed),
    ]
    return " · ".join(part for part in parts if part is not None)


def _outcome(training: TrainingRecord, drawn: list[tuple[Mapping[str, Any], list[Curve]]]) -> dict[str, Any]:
    """Return caption, heads and rows of the table that compares clean vectors, first and last epoch."""
    first, last = training.epochs[0].epoch, training.epochs[-1].epoch
    # A record of one epoch has no development to show.
    ends = [0, -1] if last > first else [0]
    rows = []
    for panel, curves in drawn:
        values = {side: held for side, _, held in curves}
        clean, protected = values.get("clean"), values.get("protected")
        held = [None if protected is None else protected[i] for i in ends]
        rows.append((panel["title"], [None if clean is None else clean[-1], *held]))
    caption = "What protected vectors reach, and clean ones beside."
    if training.best is not None and last > first:
        caption += f" The reward is highest after epoch {training.best:,}."
    heads = ["Measure", "Clean", *(f"Epoch {training.epochs[i].epoch:,}" for i in ends)]
    return {"caption": caption, "heads": heads, "rows": rows}


def _settings(training: TrainingRecord) -> list[tuple[str, str]]:
    known = [
        ("Vectors", None if training.rows is None else count(training.rows)),
        ("Seed", None if training.seed is None else str(training.seed)),
        ("Time taken", None if training.elapsed is None else duration(training.elapsed)),
        *(
            (name.replace("_", " "), parameter(value))
            for name, value in training.settings.items()
            # Nested settings would not fit a line; the record has them.
            if value is None or isinstance(value, bool | int | float | str)
        ),
    ]
    return [(name, value) for name, value in known if value is not None]
