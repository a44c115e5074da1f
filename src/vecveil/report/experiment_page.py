"""An experiment as one self-contained HTML page, drawn from its summary alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecveil.report import figures as f
from vecveil.report.document import document
from vecveil.report.experiment_figures import figures
from vecveil.report.experiment_parts import VERDICTS, Cell, Column, Finding, Number, Table
from vecveil.report.experiment_record import Experiment, read_experiment
from vecveil.report.experiment_words import (
    NOT_MEASURED,
    VERDICT_WORDS,
    about,
    deviation,
    head,
    interval,
    is_missing,
    said_published,
    value,
    warnings,
)
from vecveil.report.markup import Safe, prose, tag
from vecveil.report.parts import facts_list, section, table
from vecveil.version import __version__

__all__ = ["experiment_to_html"]


def experiment_to_html(record: Mapping[str, Any]) -> str:
    """Return a summary of an experiment as one HTML page that loads nothing and runs nothing.

    Findings that disagree with a claim come first, each with the command that measures it; then the setting, the
    figures with their numbers folded away, and the tables with the papers' figures below ours.

    Args:
        record: the summary, schema ``vecveil.experiment/1``.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing, unknown or has a wrong value; the message
            names the key.
    """
    experiment = read_experiment(record, owner="experiment_to_html")
    parts = [
        _findings(experiment),
        _notes(experiment),
        figures(experiment.pictures),
        *(_table(each, i) for i, each in enumerate(experiment.tables, start=1)),
        _measured(experiment),
    ]
    return document(
        f"vecveil experiment: {experiment.name}",
        f"vecveil {__version__}",
        _header(experiment),
        tag("main", *parts),
        tag(
            "footer",
            tag("p", f"Drawn from the experiment’s summary alone, by vecveil {__version__}."),
        ),
    )


def _header(experiment: Experiment) -> Safe:
    links = [
        tag("a", words, href=f"#{name}")
        for name, words, there in (
            ("findings", "Findings", experiment.findings),
            ("setting", "Setting", experiment.notes),
            ("figures", "Figures", experiment.pictures),
            ("table-1", "Tables", experiment.tables),
            ("measured", "How it was measured", True),
        )
        if there
    ]
    measured = f"{f.count(experiment.measured)} of {f.count(experiment.asked)} cells measured"
    return tag(
        "header",
        tag("p", "vecveil experiment", class_="brand"),
        tag("h1", experiment.name),
        tag("p", prose(experiment.what), class_="lead"),
        tag("p", " · ".join([experiment.source, measured, f.duration(experiment.seconds)]), class_="meta"),
        *(tag("p", prose(words), class_="warning") for words in warnings(experiment)),
        tag("nav", *links, aria_label="Sections"),
    )  # fmt: skip


def _findings(experiment: Experiment) -> Safe | None:
    if not experiment.findings:
        return None
    counts = [
        (verdict, sum(each.verdict == verdict for each in experiment.findings))
        for verdict in VERDICTS
    ]
    words = "; ".join(f"{VERDICT_WORDS[each].lower()}: {count}" for each, count in counts if count)
    return section(
        "findings",
        "What was found",
        tag("p", f"{words[:1].upper()}{words[1:]}.", class_="meta"),
        *(_finding(each) for each in experiment.findings),
    )


def _finding(finding: Finding) -> Safe:
    facts = [
        ("Ours", prose(finding.ours)),
        ("Published", prose(finding.published)),
        ("What differs", prose(finding.difference)),
        ("Command", tag("code", finding.command) if finding.command else ""),
    ]
    kind = finding.verdict.replace(" ", "-")
    return tag(
        "div",
        tag("p", VERDICT_WORDS[finding.verdict], class_="says"),
        tag("h3", prose(finding.claim)),
        tag("p", finding.source, class_="meta"),
        facts_list([(name, held) for name, held in facts if held]),
        class_=f"finding {kind}",
    )


def _notes(experiment: Experiment) -> Safe | None:
    if not experiment.notes:
        return None
    return section("setting", "Setting", *(tag("p", prose(note)) for note in experiment.notes))


def _table(held: Table, number: int) -> Safe:
    words = [i for i, column in enumerate(held.columns) if column.text]
    rows = [
        tag("tr", *(_cell(cell, column, i) for i, (cell, column) in enumerate(zip(row, held.columns, strict=True))))
        for row in held.rows
    ]  # fmt: skip
    notes = [*held.notes, *([NOT_MEASURED] if is_missing(held.rows) else [])]
    heads = [head(each) for each in held.columns]
    drawn = table(held.caption or held.title, heads, "results", rows, words=words)
    # A table may be wider than a phone: it scrolls by itself, with the keyboard too.
    box = tag("div", drawn, class_="scroll", tabindex="0", role="region", aria_label=held.title)
    return section(
        f"table-{number}",
        held.title,
        box,
        *(tag("p", prose(note), class_="meta") for note in notes),
    )


def _cell(held: Cell, column: Column, place: int) -> Safe:
    name, scope = ("th", "row") if place == 0 else ("td", None)
    kind = None if column.text else "number"
    if not isinstance(held, Number):
        return tag(name, f.MISSING if held is None else held, scope=scope, class_=kind)
    published = said_published(held, column)
    below = [
        tag("small", words)
        for words in (interval(held), f"published {published}" if published else "")
        if words
    ]
    figure = f"{value(held, column)} {deviation(held)}".strip()
    return tag(name, figure, *below, scope=scope, class_=kind)


def _measured(experiment: Experiment) -> Safe:
    command = ("Command", tag("code", experiment.command))
    return section("measured", "How it was measured", facts_list([command, *about(experiment)]))
