"""The shell of a page: head, style sheet and the policy that forbids scripts and requests."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources

from vecveil.report.markup import Child, Safe, join, tag

__all__ = ["document"]


@functools.cache
def _style() -> Safe:
    """Return the packaged style sheet, which is the project's own and needs no escaping."""
    return Safe(resources.files("vecveil.report").joinpath("style.css").read_text(encoding="utf-8"))


def _policy() -> str:
    """Return a policy that forbids scripts and requests, and names the style sheet by its hash."""
    digest = base64.b64encode(hashlib.sha256(_style().encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def document(title: str, generator: str, *body: Child) -> str:
    """Return one HTML page that loads nothing and runs nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=generator),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", _style()),
    )
    whole = tag("html", head, tag("body", *body), lang="en")
    return join([Safe("<!doctype html>\n"), whole, "\n"])
