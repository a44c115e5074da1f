"""Reports of audits and frontiers, written from saved records alone (``docs/formats.md``)."""

from __future__ import annotations

from vecveil.auditing.report.audit_page import (
    render_audit,
    render_audit_csv,
    render_audit_markdown,
    summary_table,
    write_audit_csv,
    write_audit_html,
    write_audit_markdown,
)
from vecveil.auditing.report.frontier_page import frontier_lines, frontier_page, write_frontier_html

__all__ = [
    "frontier_lines",
    "frontier_page",
    "render_audit",
    "render_audit_csv",
    "render_audit_markdown",
    "summary_table",
    "write_audit_csv",
    "write_audit_html",
    "write_audit_markdown",
    "write_frontier_html",
]
