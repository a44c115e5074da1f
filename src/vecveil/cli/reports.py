"""The reports of an audit: where they are written, checked before the work begins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vecveil.cli import options as shared
from vecveil.errors import InvalidInputError

if TYPE_CHECKING:
    from vecveil.auditing import AuditResult

__all__ = ["page_options", "report_files", "report_options", "write_reports"]

page_options = shared.stacked(
    click.option(
        "--html", "html_file", type=shared.FILE, help="Write the report page to this file."
    ),
    click.option(
        "--md", "md_file", type=shared.FILE, help="Write the report as Markdown to this file."
    ),
    click.option(
        "--csv", "csv_file", type=shared.FILE, help="Write every figure to this CSV file."
    ),
    click.option(
        "--show-terms",
        is_flag=True,
        help="Write the concept's words into the record and the reports.",
    ),
    click.option(
        "--show-reconstructions",
        is_flag=True,
        help="Write texts and what attacks wrote of them into the record and the reports (tier full).",
    ),
)

report_options = shared.stacked(
    click.option(
        "--json", "json_file", type=shared.FILE, help="Write the record to this file; - is stdout."
    ),
    page_options,
)


def report_files(
    owner: str,
    json_file: Path | None,
    html_file: Path | None,
    md_file: Path | None,
    csv_file: Path | None,
    *,
    inputs: tuple[Path | None, ...],
) -> tuple[bool, dict[str, Path]]:
    """Return whether the record goes to stdout, and the file of each method of `AuditResult` that writes one.

    Raises:
        InvalidInputError: one file for two reports, an input, or stdout for a page.
    """
    from vecveil.cli.outputs import check_new_file

    to_stdout = json_file is not None and str(json_file) == "-"
    reports = {"save": json_file, "to_html": html_file, "to_markdown": md_file, "to_csv": csv_file}
    for name, path in (("html", html_file), ("md", md_file), ("csv", csv_file)):
        if path is not None and str(path) == "-":
            raise InvalidInputError.of(owner, name, "a file", "-", "Stdout is for --json.")
    files = {how: path for how, path in reports.items() if path is not None and str(path) != "-"}
    if len({path.absolute() for path in files.values()}) < len(files):
        raise InvalidInputError.of(
            owner, "output", "a file of its own for each report", "one file twice"
        )
    for path in files.values():  # an earlier report may be replaced, an input never
        check_new_file(path, force=True, inputs=inputs)
    return to_stdout, files


def write_reports(result: AuditResult, files: Mapping[str, Path]) -> None:
    """Write the reports."""
    from vecveil.cli.outputs import writing

    for how, path in files.items():
        with writing(path):
            getattr(result, how)(path)
