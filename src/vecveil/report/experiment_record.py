"""The summary of an experiment, read before anything of it is shown (``docs/formats.md``).

The reader is strict: every key must be there, an unknown one is refused, and so are NaN and infinity. An error names
the path (``experiment.tables[0].rows[2][1].value``), never a text of the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecveil.errors import InvalidInputError, VecveilError
from vecveil.report.experiment_parts import (
    VERDICTS,
    Finding,
    Picture,
    Table,
    known_keys,
    read_finding,
    read_picture,
    read_table,
)
from vecveil.report.reading import Node

__all__ = ["SCHEMA", "Experiment", "read_experiment"]

SCHEMA = "vecveil.experiment/1"


@dataclass(frozen=True)
class Experiment:
    """What an experiment found.

    Attributes:
        name, what, source: of the experiment: its command's name, a sentence, the paper's tables.
        version, created, commits, command: which code made the figures, when, and with which command.
        quick: whether it was the coarse version.
        machine: facts of the machine by name.
        asked, measured, failed: numbers of cells.
        seconds: that the cells took together.
        notes: paragraphs on the setting and its limits.
        tables, pictures: in the order of the record.
        findings: those that disagree first.
    """

    name: str
    what: str
    source: str
    version: str
    created: str
    commits: tuple[str, ...]
    command: str
    quick: bool
    machine: Mapping[str, str | int | float | bool | None]
    asked: int
    measured: int
    failed: int
    seconds: float
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    findings: tuple[Finding, ...]


def read_experiment(
    record: Any, *, owner: str, error: type[VecveilError] = InvalidInputError
) -> Experiment:
    """Return the summary of an experiment, checked.

    Raises:
        InvalidInputError (or ``error``): it has another schema, or a key that is missing, unknown or has a wrong value.
    """
    node = Node(record, "experiment", owner, error)
    schema = node.data.get("schema")
    if schema != SCHEMA:
        got = repr(schema)[:40] if isinstance(schema, str) else type(schema).__name__
        raise error.of(owner, "experiment.schema", repr(SCHEMA), got,
                       fix="Write the summary again with this version of vecveil.")  # fmt: skip
    known_keys(
        node, "schema", "name", "what", "source", "vecveil", "created", "commits", "command", "quick",
        "machine", "cells", "seconds", "notes", "tables", "figures", "findings",
    )  # fmt: skip
    cells = node.child("cells")
    known_keys(cells, "asked", "measured", "failed")
    findings = [read_finding(each) for each in node.children("findings")]
    return Experiment(
        name=node.text("name"),
        what=node.text("what"),
        source=node.text("source"),
        version=node.text("vecveil"),
        created=node.text("created"),
        commits=node.texts("commits"),
        command=node.text("command"),
        quick=node.flag("quick"),
        machine=_machine(node.child("machine")),
        asked=cells.count("asked"),
        measured=cells.count("measured"),
        failed=cells.count("failed"),
        seconds=node.number("seconds", low=0),
        notes=node.texts("notes"),
        tables=tuple(read_table(each) for each in node.children("tables")),
        pictures=tuple(read_picture(each) for each in node.children("figures")),
        findings=tuple(sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))),
    )


def _machine(node: Node) -> dict[str, str | int | float | bool | None]:
    """Return the facts of the machine, whatever their names; each is one value."""
    found: dict[str, str | int | float | bool | None] = {}
    for name, value in node.data.items():
        if not (value is None or isinstance(value, str | int | float)):
            raise node.fail(str(name)[:40], "a string, a number, true, false or null", value)
        if isinstance(value, float):
            node.number(name)
        found[str(name)] = value
    return found
