"""The tables of an experiment as one CSV table in long form: a row for each cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from vecveil.report.csv_export import spreadsheet_text
from vecveil.report.experiment_parts import Cell, Number
from vecveil.report.experiment_record import read_experiment

__all__ = ["COLUMNS", "experiment_to_csv"]

COLUMNS = ("table", "row", "column", "value", "low", "high", "sd", "n", "published", "text")


def experiment_to_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180) with one row for each cell of each table.

    Rows are numbered from 1 in each table. Numbers are those of the record, shares as fractions; words stand in the
    column ``text``; both are empty where nothing was measured. A text that a spreadsheet would take for a formula has
    an apostrophe in front.

    Args:
        record: the summary of an experiment, schema ``vecveil.experiment/1``.

    Raises:
        InvalidInputError: as `experiment_to_markdown`.
    """
    experiment = read_experiment(record, owner="experiment_to_csv")
    held = io.StringIO(newline="")
    writer = csv.writer(held, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for table in experiment.tables:
        title = spreadsheet_text(table.title)
        for i, row in enumerate(table.rows, start=1):
            for column, cell in zip(table.columns, row, strict=True):
                writer.writerow([title, i, spreadsheet_text(column.name), *_cell(cell)])
    return held.getvalue()


def _cell(cell: Cell) -> list[str]:
    if isinstance(cell, Number):
        numbers = (cell.value, cell.low, cell.high, cell.sd, cell.n, cell.published)
        return [*("" if number is None else repr(number) for number in numbers), ""]
    return [""] * 6 + ["" if cell is None else spreadsheet_text(cell)]
