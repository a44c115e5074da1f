"""How the figures of an experiment are written, and what stands in its header: the same in every form of report."""

from __future__ import annotations

from collections.abc import Sequence

from vecveil.report import figures as f
from vecveil.report.experiment_parts import Cell, Column, Number, Table
from vecveil.report.experiment_record import Experiment

__all__ = [
    "NOT_MEASURED",
    "VERDICT_WORDS",
    "about",
    "deviation",
    "head",
    "interval",
    "is_missing",
    "published_columns",
    "said_published",
    "spread",
    "value",
    "warnings",
]

NOT_MEASURED = f"{f.MISSING}: not measured."
VERDICT_WORDS = {
    "disagrees": "Disagrees with the claim",
    "unclear": "Unclear",
    "agrees": "Agrees with the claim",
    "not measured": "Not measured",
}


def _scaled(number: float, cell: Number) -> str:
    shown = 100 * number if cell.percent else number
    words = f"{shown:,.{cell.digits}f}"
    # What rounds to 0 has no sign.
    if not any(digit in "123456789" for digit in words):
        words = words.lstrip("-")
    return words.replace("-", "\u2212")


def _suffix(cell: Number, column: Column) -> str:
    """Return the per cent sign, unless the head of the column has it."""
    return f"{f.NBSP}%" if cell.percent and column.unit != "%" else ""


def value(cell: Number, column: Column) -> str:
    """Return the figure alone."""
    return _scaled(cell.value, cell) + _suffix(cell, column)


def deviation(cell: Number) -> str:
    """Return the standard deviation over seeds, empty where there is none."""
    return "" if cell.sd is None else f"± {_scaled(cell.sd, cell)}"


def interval(cell: Number) -> str:
    """Return the interval, empty where there is none."""
    if cell.low is None or cell.high is None:
        return ""
    return f"[{_scaled(cell.low, cell)}, {_scaled(cell.high, cell)}]"


def spread(cell: Number) -> str:
    """Return the standard deviation, or else the interval; empty where there is neither."""
    return deviation(cell) or interval(cell)


def said_published(cell: Cell, column: Column) -> str:
    """Return the paper's figure, empty where there is none."""
    if not isinstance(cell, Number) or cell.published is None:
        return ""
    return _scaled(cell.published, cell) + _suffix(cell, column)


def published_columns(table: Table) -> tuple[int, ...]:
    """Return the columns in which a paper's figure stands beside ours."""
    return tuple(
        i
        for i, column in enumerate(table.columns)
        if any(said_published(row[i], column) for row in table.rows)
    )


def head(column: Column) -> str:
    """Return the name of a column with its unit."""
    return column.name if column.unit is None else f"{column.name} ({column.unit})"


def is_missing(rows: Sequence[Sequence[Cell]]) -> bool:
    """Return whether a cell was not measured."""
    return any(cell is None for row in rows for cell in row)


def about(experiment: Experiment) -> list[tuple[str, str]]:
    """Return how the figures came about, as names and values; the command is left to the caller."""
    commits = ", ".join(experiment.commits) or "not recorded"
    facts = [
        ("Source", experiment.source),
        ("Cells", f"{f.count(experiment.measured)} of {f.count(experiment.asked)} measured"),
        ("Time taken", f.duration(experiment.seconds)),
        ("Last cell", f.moment(experiment.created)),
        ("vecveil", f"{experiment.version}, commit {commits}"),
    ]
    machine = [(name.replace("_", " "), f.parameter(held)) for name, held in experiment.machine.items()]  # fmt: skip
    return [pair for pair in (*facts, *machine) if pair[1]]


def warnings(experiment: Experiment) -> list[str]:
    """Return what a reader must know before any figure."""
    found = []
    if experiment.quick:
        found.append(
            "This is the coarse version of the experiment (`--quick`): smaller samples, fewer settings and seeds."
        )
    if experiment.failed:
        found.append(
            f"{f.count(experiment.failed)} of {f.count(experiment.asked)} cells were not measured; "
            "the figures are without them."
        )
    return found
