"""The attacks of an audit as one CSV table: a row for each attack and metric."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.report.markup import clean_text
from vecveil.report.record import Attack, Audit, Figure, parse, source

__all__ = ["COLUMNS", "render_audit_csv", "spreadsheet_text", "write_audit_csv"]

COLUMNS = (
    "family",
    "attack",
    "metric",
    "value",
    "low",
    "high",
    "chance",
    "over_chance",
    "clean",
    "clean_low",
    "clean_high",
    "n",
    "adaptive",
    "seconds",
    "cost",
)
FORMULA = ("=", "+", "-", "@")


def spreadsheet_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    text = clean_text(text)
    starts_formula = text.lstrip().startswith(FORMULA) or text[:1] in ("\t", "\r", "\n")
    return f"'{text}" if starts_formula else text


def _number(number: float | None) -> str:
    return "" if number is None else repr(number)


def _row(attack: Attack, figure: Figure) -> list[str]:
    return [
        spreadsheet_text(attack.family),
        spreadsheet_text(attack.name),
        spreadsheet_text(figure.metric),
        _number(figure.value),
        _number(figure.low),
        _number(figure.high),
        _number(figure.chance),
        _number(figure.over_chance),
        _number(figure.clean),
        _number(figure.clean_low),
        _number(figure.clean_high),
        _number(attack.n),
        "true" if attack.adaptive else "false",
        _number(attack.seconds),
        spreadsheet_text(attack.cost),
    ]


def _table(audit: Audit) -> str:
    held = io.StringIO(newline="")
    writer = csv.writer(held, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for attack in audit.attacks:
        writer.writerows(_row(attack, figure) for figure in attack.figures)
    return held.getvalue()


def render_audit_csv(record: Mapping[str, Any]) -> str:
    """Return a CSV table (RFC 4180) with one row for each attack and metric, the main metric first.

    Numbers are written as they are in the record, what was not measured is empty. A text that a
    spreadsheet would take for a formula gets an apostrophe in front; numbers never do. The number of
    units ``n`` is that of the attack's main metric.

    Args:
        record: an audit record, schema ``vecveil.audit/2``.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing or has a wrong value.
    """
    return _table(parse(record, owner="render_audit_csv"))


def write_audit_csv(
    record_or_path: Mapping[str, Any] | str | os.PathLike[str], target: str | os.PathLike[str]
) -> Path:
    """Write the table of `render_audit_csv` to ``target``, whole or not at all, and return its path.

    Raises:
        InvalidInputError: a record with another schema, or with a missing or wrong key.
        DataFileError: the same for a file, or a file that cannot be read or is not JSON.
    """
    write_text(target, _table(source(record_or_path, owner="write_audit_csv")))
    return Path(target)
