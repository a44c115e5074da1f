"""Report an experiment as HTML, Markdown, CSV and LaTeX, with the papers' figures beside ours."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research import charts
from research.judging import VERDICTS
from research.results import Cell, Column, ExperimentRecord, Figure, Number, Table, read_experiment
from research.specification import load_beside
from vecveil.auditing.report import rendering
from vecveil.auditing.report.text import (
    MISSING,
    NBSP,
    clean_text,
    count,
    csv_table,
    duration,
    moment,
    parameter,
    rounded,
)

NOT_MEASURED = f"{MISSING}: not measured."
VERDICT_WORDS = {
    "disagrees": "Disagrees with the claim",
    "unclear": "Unclear",
    "no difference": "No difference",
    "agrees": "Agrees with the claim",
    "not measured": "Not measured",
}
render = functools.partial(rendering.render, folder=Path(__file__).with_name("templates"))
COLUMNS = ("table", "row", "column", "value", "low", "high", "sd", "n", "published", "text")

_LATEX: dict[str, str] = load_beside(__file__, "templates/latex.yaml")


def experiment_to_html(record: Mapping[str, Any]) -> str:
    """Return the record of an experiment as one HTML page that loads nothing and runs nothing.

    Findings that disagree with a claim come first, each with the command that measures it.

    Args:
        record: schema ``vecveil.experiment/1``.

    Raises:
        InvalidInputError: another schema, or a key is missing, unknown or has a wrong value.
    """
    experiment = read_experiment(record, owner="experiment_to_html")
    counts = {verdict: 0 for verdict in VERDICTS}
    for finding in experiment.findings:
        counts[finding.verdict] += 1
    words = "; ".join(f"{VERDICT_WORDS[v].lower()}: {number}" for v, number in counts.items() if number)
    return render(
        "experiment.html",
        what="experiment",
        numbers=_numbers,
        geometry=charts,
        verdict_counts=f"{words[:1].upper()}{words[1:]}.",
        shown=shown,
        spread=interval,
        published=published,
        heads=lambda table: [head(column) for column in table.columns],
        text_columns=lambda table: [i for i, column in enumerate(table.columns) if column.text],
        **_context(experiment),
    )


def experiment_to_markdown(record: Mapping[str, Any]) -> str:
    """Return the record of an experiment as Markdown, in which no text of the record can become markup.

    The paper's figures follow ours in a separate column. Charts are named, not drawn.
    """
    experiment = read_experiment(record, owner="experiment_to_markdown")
    return render("experiment.md", beside=table_cells, **_context(experiment))


def experiment_to_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180) with one row for each cell of each table.

    Rows are numbered from 1 in each table. Shares are fractions; words are in the column ``text``. An apostrophe comes
    before text that a spreadsheet would read as a formula.
    """
    experiment = read_experiment(record, owner="experiment_to_csv")
    return csv_table(
        COLUMNS,
        (
            (table.title, i, column.name, *_csv_cell(cell))
            for table in experiment.tables
            for i, row in enumerate(table.rows, start=1)
            for column, cell in zip(table.columns, row, strict=True)
        ),
    )


def experiment_to_latex(record: Mapping[str, Any]) -> str:
    """Return each table of an experiment as a ``table`` float; the preamble needs ``\\usepackage{booktabs,textcomp}``.

    The paper's figures follow ours in a separate column. No text of the record can become a command.
    """
    experiment = read_experiment(record, owner="experiment_to_latex")
    # Labels are ASCII letters and hyphens: LaTeX engines disagree on other characters in them.
    name = unicodedata.normalize("NFKD", experiment.name).encode("ascii", "ignore").decode("ascii")
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "experiment"
    origin = f"vecveil {experiment.vecveil}, experiment {experiment.name}: {experiment.command}"
    return render(
        "experiment.tex", escape=latex, beside=table_cells, label=label, origin=origin, **_context(experiment)
    )


def _context(experiment: ExperimentRecord) -> dict[str, Any]:
    """Return the template variables that all formats share."""
    return {
        "experiment": experiment,
        "generator": "",
        "warnings": _warnings(experiment),
        "about": _about(experiment),
        "notes": _notes,
        "VERDICT_WORDS": VERDICT_WORDS,
    }


def _about(experiment: ExperimentRecord) -> list[tuple[str, str]]:
    """Return the provenance of the figures, as names and values."""
    commits = ", ".join(experiment.commits) or "not recorded"
    cells = experiment.cells
    facts = [
        ("Source", experiment.source),
        ("Cells", f"{count(cells.measured)} of {count(cells.asked)} measured"),
        ("Time taken", duration(experiment.seconds)),
        ("Last cell", moment(experiment.created)),
        ("vecveil", f"{experiment.vecveil}, commit {commits}"),
    ]
    facts += [(name.replace("_", " "), parameter(value)) for name, value in experiment.machine.items()]
    return [pair for pair in facts if pair[1]]


def _warnings(experiment: ExperimentRecord) -> list[str]:
    cells, warnings = experiment.cells, []
    if experiment.quick:
        warnings.append(
            "This is the coarse version of the experiment (`--quick`): smaller samples, fewer settings and seeds."
        )
    if cells.failed:
        warnings.append(
            f"{count(cells.failed)} of {count(cells.asked)} cells were not measured; the figures are without them."
        )
    return warnings


def _notes(table: Table) -> list[str]:
    missing = any(cell is None for row in table.rows for cell in row)
    return [*table.notes, *([NOT_MEASURED] if missing else [])]


def _scaled(number: float, cell: Number) -> str:
    words = f"{100 * number if cell.percent else number:,.{cell.digits}f}"
    # −0.04 with one decimal is "-0.0": a number that rounds to 0 loses its sign.
    if not any(digit in "123456789" for digit in words):
        words = words.lstrip("-")
    return words.replace("-", "\u2212")


def _with_unit(number: float, cell: Number, column: Column) -> str:
    """Return a number of a cell, with a per cent sign unless the head of the column has one."""
    return _scaled(number, cell) + (f"{NBSP}%" if cell.percent and column.unit != "%" else "")


def head(column: Column) -> str:
    """Return the name of a column with its unit."""
    return column.name if column.unit is None else f"{column.name} ({column.unit})"


def shown(cell: Cell, column: Column) -> str:
    """Return the text of a cell: words, or the number with its standard deviation over seeds."""
    if not isinstance(cell, Number):
        return MISSING if cell is None else cell
    deviation = "" if cell.sd is None else f" ± {_scaled(cell.sd, cell)}"
    return f"{_with_unit(cell.value, cell, column)}{deviation}"


def interval(cell: Cell) -> str:
    """Return the interval of a number, or ``""``."""
    if not isinstance(cell, Number) or cell.low is None or cell.high is None:
        return ""
    return f"[{_scaled(cell.low, cell)}, {_scaled(cell.high, cell)}]"


def published(cell: Cell, column: Column) -> str:
    """Return the paper's number, or ``""``."""
    if not isinstance(cell, Number) or cell.published is None:
        return ""
    return _with_unit(cell.published, cell, column)


def published_columns(table: Table) -> list[int]:
    """Return the indices of the columns for which the paper has a number."""
    return [i for i, column in enumerate(table.columns) if any(published(row[i], column) for row in table.rows)]


@dataclass(frozen=True)
class TableCells:
    """A table as text; ``words`` are the indices of its text columns."""

    heads: list[str]
    rows: list[list[str]]
    words: list[int]


def table_cells(table: Table) -> TableCells:
    """Return a table as text, with the paper's numbers in a column after ours."""
    with_published = published_columns(table)
    heads: list[str] = []
    words: list[int] = []
    for i, column in enumerate(table.columns):
        if column.text:
            # The position among the columns so far: inserted columns shift those behind them.
            words.append(len(heads))
        heads += [head(column), *(["published"] if i in with_published else [])]
    rows = []
    for row in table.rows:
        cells = []
        for i, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
            # Never both: a deviation over seeds takes the place of one seed's interval.
            spread = interval(cell) if isinstance(cell, Number) and cell.sd is None else ""
            cells.append(f"{shown(cell, column)} {spread}".strip())
            if i in with_published:
                cells.append(published(cell, column))
        rows.append(cells)
    return TableCells(heads, rows, words)


def _csv_cell(cell: Cell) -> list[Any]:
    if isinstance(cell, Number):
        return [cell.value, cell.low, cell.high, cell.sd, cell.n, cell.published, None]
    return [None] * 6 + [cell]


def _numbers(figure: Figure) -> list[tuple[float, list[tuple[str, str]]]]:
    """Return the numbers of a figure by x: for each series a value and its interval, as text."""
    rows = []
    for x in sorted({point.x for series in figure.series for point in series.points}):
        cells = []
        for series in figure.series:
            # A series may have several points at one x, or none: its cell holds them all.
            points = [point for point in series.points if point.x == x]
            values = "; ".join(rounded(y) for _, y, _, _ in points) or MISSING
            ends = [f"{rounded(low)} to {rounded(high)}" for *_, low, high in points if low is not None]
            cells.append((values, "; ".join(ends)))
        rows.append((x, cells))
    return rows


def latex(words: str) -> str:
    """Return ``words`` on one line, escaped for LaTeX."""
    # An empty line would end a paragraph, which is an error in a caption. U+00B5 is the micro sign of keyboards.
    line = re.sub(r"[ \t\r\n]+", " ", clean_text(words)).strip().replace("\u00b5", "μ")
    # Split between hyphens and join with {}: two in a row would be set as a dash.
    parts = re.split("(?<=-)(?=-)", line)
    return "{}".join("".join(_LATEX.get(letter, letter) for letter in part) for part in parts)
