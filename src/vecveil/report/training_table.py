"""The numbers of a training: as CSV for a spreadsheet, as lines for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from vecveil.report.training_charts import shown
from vecveil.report.training_page import PROMISE, SAME_CLASSIFIER
from vecveil.report.training_record import MEASURES, Measure, Training, read_training

__all__ = ["training_csv", "training_lines"]


def training_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180), one row for each epoch; what was not measured is empty.

    Raises:
        InvalidInputError: as `training_page`.
    """
    training = read_training(record, owner="training_csv")
    columns = [(m.key, values) for m in MEASURES if (values := training.of(m)) is not None]
    if training.seconds:
        columns.append(("seconds", training.seconds))
    held = io.StringIO(newline="")
    writer = csv.writer(held, lineterminator="\r\n")
    writer.writerow(["epoch", *(name for name, _ in columns)])
    for i, epoch in enumerate(training.epochs):
        row = (values[i] for _, values in columns)
        writer.writerow([epoch, *("" if value is None else repr(value) for value in row)])
    return held.getvalue()


def training_lines(record: Mapping[str, Any]) -> list[str]:
    """Return a table of the measures of protected vectors, and the clean figures.

    Below them stand what p(PII) does not say and what is promised.

    Raises:
        InvalidInputError: as `training_page`.
    """
    training = read_training(record, owner="training_lines")
    drawn = _of_side(training, "protected")
    header = ["epoch", *(measure.label for measure, _ in drawn)]
    rows = [
        [f"{epoch:,}", *(shown(values[i]) for _, values in drawn)]
        for i, epoch in enumerate(training.epochs)
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    ]
    clean = [f"{measure.label} {shown(values[-1])}" for measure, values in _of_side(training, "clean")]  # fmt: skip
    if clean:
        lines += ["", f"Beside it: {'; '.join(clean)}."]
    return [*lines, "", SAME_CLASSIFIER, f"TextCrafter: {PROMISE}."]


def _of_side(training: Training, side: str) -> list[tuple[Measure, tuple[float | None, ...]]]:
    return [
        (m, values) for m in MEASURES if m.side == side and (values := training.of(m)) is not None
    ]
