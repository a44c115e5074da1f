"""The audit as one self-contained HTML page, drawn from the audit record alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vecveil.io import write_text
from vecveil.report import findings, leakage, sections
from vecveil.report.document import document
from vecveil.report.figures import moment
from vecveil.report.markup import Safe, tag
from vecveil.report.provenance import computed
from vecveil.report.record import Audit, parse, source
from vecveil.report.terms import terms
from vecveil.report.wording import heading

__all__ = ["render_audit", "write_audit_html"]

NAVIGATION = (
    ("lint", "Warnings"),
    ("leakage", "Leakage"),
    ("utility", "Utility"),
    ("guarantee", "Guarantee"),
    ("terms", "Terms"),
    ("reconstructions", "Texts"),
    ("frameworks", "Frameworks"),
    ("skipped", "Not run"),
    ("computed", "How computed"),
    ("limits", "Limits"),
)


def _header(audit: Audit, present: Collection[str]) -> Safe:
    links = [tag("a", words, href=f"#{name}") for name, words in NAVIGATION if name in present]
    encoder = None if audit.encoder is None else audit.encoder["name"]
    words, concept = heading(audit)
    about = [
        "a store, without its protector" if audit.is_store else f"method {audit.method}",
        f"encoder {encoder}" if encoder else "vectors as given",
        moment(audit.created),
    ]
    return tag(
        "header",
        tag("p", "vecveil audit", class_="brand"),
        tag("h1", words, tag("bdi", concept)),
        tag("p", " · ".join(about), class_="meta"),
        tag("nav", *links, aria_label="Sections"),
    )


def _page(audit: Audit) -> str:
    parts = {
        "lint": findings.lint(audit),
        "verdict": sections.verdict(audit),
        "leakage": leakage.attacks(audit),
        "utility": sections.utility(audit),
        "guarantee": sections.guarantee(audit),
        "terms": terms(audit),
        "reconstructions": findings.reconstructions(audit),
        "frameworks": findings.frameworks(audit),
        "skipped": findings.skipped(audit),
        "computed": computed(audit),
        "limits": sections.limits(audit),
        "secondary": leakage.secondary(audit),
    }
    held = {name: part for name, part in parts.items() if part is not None}
    footer = tag(
        "footer", tag("p", f"Drawn from the audit record alone, by vecveil {audit.vecveil}.")
    )
    return document(
        f"vecveil audit: {audit.concept}",
        f"vecveil {audit.vecveil}",
        _header(audit, held),
        tag("main", *held.values()),
        footer,
    )


def render_audit(record: Mapping[str, Any]) -> str:
    """Return the audit record as one HTML page that loads nothing and runs nothing.

    Args:
        record: what :meth:`AuditResult.to_record` returns or ``audit.json`` holds, schema
            ``vecveil.audit/2``. Terms and texts appear on the page only where the record holds them.

    Raises:
        InvalidInputError: the schema is another one, or a key is missing or has a wrong value; the
            message names the key.
    """
    return _page(parse(record, owner="render_audit"))


def write_audit_html(
    record_or_path: Mapping[str, Any] | str | os.PathLike[str], target: str | os.PathLike[str]
) -> Path:
    """Write the audit page to ``target``, whole or not at all, and return its path.

    Args:
        record_or_path: the record, or the path of an ``audit.json``.
        target: the HTML file to write; its folder is made if it is not there.

    Raises:
        InvalidInputError: a record with another schema, or with a missing or wrong key.
        DataFileError: the same for a file, or a file that cannot be read or is not JSON.
    """
    write_text(target, _page(source(record_or_path, owner="write_audit_html")))
    return Path(target)
