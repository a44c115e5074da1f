"""An experiment as GitHub-flavoured Markdown: what disagrees with the papers first, then every table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecveil.report import figures as f
from vecveil.report import markdown_text as md
from vecveil.report.experiment_parts import Cell, Column, Finding, Number, Table
from vecveil.report.experiment_record import Experiment, read_experiment
from vecveil.report.experiment_words import (
    NOT_MEASURED,
    VERDICT_WORDS,
    about,
    head,
    is_missing,
    published_columns,
    said_published,
    spread,
    value,
    warnings,
)

__all__ = ["experiment_to_markdown"]


def experiment_to_markdown(record: Mapping[str, Any]) -> str:
    """Return a summary of an experiment as Markdown, in which no text of the record can become markup.

    A column in which the paper has figures is followed by one with them. Figures that are drawn are named, not drawn.

    Args:
        record: the summary, schema ``vecveil.experiment/1``.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing, unknown or has a wrong value.
    """
    experiment = read_experiment(record, owner="experiment_to_markdown")
    parts = [
        md.heading(1, "Experiment ", md.code(experiment.name)),
        md.prose(experiment.what),
        *(f"**{md.prose(words)}**" for words in warnings(experiment)),
        *_findings(experiment),
        *_notes(experiment),
        *(part for table in experiment.tables for part in _table(table)),
        *_pictures(experiment),
        md.heading(2, "How it was measured"),
        md.fenced(experiment.command),
        md.bullets(f"{md.text(name)}: {md.text(held)}" for name, held in about(experiment)),
    ]
    return "\n\n".join(parts) + "\n"


def _findings(experiment: Experiment) -> list[str]:
    if not experiment.findings:
        return []
    return [
        md.heading(2, "What was found"),
        md.bullets(_finding(finding) for finding in experiment.findings),
    ]


def _finding(finding: Finding) -> str:
    sentences = [
        f"**{VERDICT_WORDS[finding.verdict]}.** {md.prose(finding.claim)} ({md.text(finding.source)})"
    ]
    for name, words in (
        ("Ours", finding.ours),
        ("Published", finding.published),
        ("What differs", finding.difference),
    ):
        if words:
            sentences.append(f"{name}: {md.prose(words)}")
    if finding.command:
        sentences.append(f"Command: {md.code(finding.command)}")
    return "<br>".join(sentences)


def _notes(experiment: Experiment) -> list[str]:
    if not experiment.notes:
        return []
    return [md.heading(2, "Setting"), *(md.prose(note) for note in experiment.notes)]


def _table(table: Table) -> list[str]:
    beside = published_columns(table)
    heads: list[str] = []
    words: list[int] = []
    for i, column in enumerate(table.columns):
        if column.text:
            words.append(len(heads))
        heads.append(md.text(head(column)))
        if i in beside:
            heads.append("published")
    rows = []
    for row in table.rows:
        cells = []
        for i, (held, column) in enumerate(zip(row, table.columns, strict=True)):
            cells.append(_cell(held, column))
            if i in beside:
                cells.append(said_published(held, column))
        rows.append(cells)
    notes = [md.prose(note) for note in table.notes]
    if is_missing(table.rows):
        notes.append(NOT_MEASURED)
    parts = [md.heading(2, md.text(table.title)), md.prose(table.caption), md.table(heads, rows, words)]  # fmt: skip
    return [part for part in (*parts, *notes) if part]


def _cell(held: Cell, column: Column) -> str:
    if held is None:
        return f.MISSING
    if isinstance(held, Number):
        return md.text(f"{value(held, column)} {spread(held)}".strip())
    return md.text(held)


def _pictures(experiment: Experiment) -> list[str]:
    if not experiment.pictures:
        return []
    named = (
        f"{md.text(picture.title)}{': ' if picture.caption else ''}{md.prose(picture.caption)}"
        for picture in experiment.pictures
    )
    return [md.heading(2, "Figures, drawn in the HTML page"), md.bullets(named)]
