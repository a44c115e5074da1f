"""Reports drawn from saved records alone: of an audit, of the training of a policy, of an experiment.

Nothing here measures anything: what a report says is in the record (``docs/formats.md``).
"""

from __future__ import annotations

from vecveil.report.audit_page import render_audit, write_audit_html
from vecveil.report.csv_export import render_audit_csv, write_audit_csv
from vecveil.report.experiment_csv import experiment_to_csv
from vecveil.report.experiment_latex import experiment_to_latex
from vecveil.report.experiment_markdown import experiment_to_markdown
from vecveil.report.experiment_page import experiment_to_html
from vecveil.report.markdown import render_audit_markdown, write_audit_markdown
from vecveil.report.summary import summary_table
from vecveil.report.training_page import training_page, write_training_html
from vecveil.report.training_table import training_csv

__all__ = [
    "experiment_to_csv",
    "experiment_to_html",
    "experiment_to_latex",
    "experiment_to_markdown",
    "render_audit",
    "render_audit_csv",
    "render_audit_markdown",
    "summary_table",
    "training_csv",
    "training_page",
    "write_audit_csv",
    "write_audit_html",
    "write_audit_markdown",
    "write_training_html",
]
