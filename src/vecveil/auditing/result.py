"""The outcome of an audit: one record, from which every report is drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecveil.errors import DataFileError
from vecveil.io import write_text

__all__ = ["SCHEMA", "AuditResult"]

SCHEMA = "vecveil.audit/2"


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """What an audit found; ``print`` it for the short table.

    Attributes:
        record: the content of ``audit.json`` (docs/formats.md).
    """

    record: Mapping[str, Any]

    @property
    def worst(self) -> Mapping[str, Any]:
        """The token-inference attack with the highest R-precision on protected vectors."""
        name = self.record["worst"]
        found: Mapping[str, Any] = next(a for a in self.record["attacks"] if a["name"] == name)
        return found

    def to_record(self) -> dict[str, Any]:
        """Return the record as a dictionary."""
        return dict(self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``audit.json`` atomically."""
        write_text(
            path, json.dumps(self.record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditResult:
        """Return the audit saved at ``path``."""
        path = Path(path)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            schema = record["schema"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataFileError.of("AuditResult.load", "path", "an audit record",
                                   f"{path.name}, which cannot be read as one") from error  # fmt: skip
        if schema != SCHEMA:
            raise DataFileError.of(
                "AuditResult.load", "path", f"of the schema {SCHEMA!r}", repr(str(schema)[:40])
            )
        return cls(record)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report page: one self-contained HTML file, drawn from the record alone."""
        from vecveil.report import write_audit_html

        write_audit_html(self.record, path)

    def to_markdown(self, path: str | os.PathLike[str]) -> None:
        """Write the report as Markdown, with the content of the page."""
        from vecveil.report import write_audit_markdown

        write_audit_markdown(self.record, path)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write every figure of every attack as CSV, one row each."""
        from vecveil.report import write_audit_csv

        write_audit_csv(self.record, path)

    def summary(self) -> str:
        """Return the short table for a terminal."""
        from vecveil.report import summary_table

        return summary_table(self.record)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        worst = self.worst
        what = self.record["method"] or self.record["kind"]
        clean = "" if worst["clean"] is None else f", clean {worst['clean']:.1%}"
        return (
            f"AuditResult({what!r}, worst {worst['name']!r}: "
            f"{worst['value']:.1%} of concept tokens{clean}, chance {worst['chance']:.1%})"
        )
