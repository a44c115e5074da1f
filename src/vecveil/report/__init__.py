"""Reports drawn from saved audit records alone: HTML page, Markdown, CSV and a terminal summary.

Nothing here measures anything: what a report says is in the record (``docs/formats.md``).
"""

from __future__ import annotations

from vecveil.report.audit_page import render_audit, write_audit_html
from vecveil.report.csv_export import render_audit_csv, write_audit_csv
from vecveil.report.markdown import render_audit_markdown, write_audit_markdown
from vecveil.report.summary import summary_table

__all__ = [
    "render_audit",
    "render_audit_csv",
    "render_audit_markdown",
    "summary_table",
    "write_audit_csv",
    "write_audit_html",
    "write_audit_markdown",
]
