"""Reports drawn from saved audit records alone: a self-contained HTML page and a terminal summary.

Nothing here computes a figure: what a report says is in the record (``docs/formats.md``).
"""

from __future__ import annotations

from vecveil.report.audit_page import render_audit, write_audit_html
from vecveil.report.summary import summary_table

__all__ = ["render_audit", "summary_table", "write_audit_html"]
