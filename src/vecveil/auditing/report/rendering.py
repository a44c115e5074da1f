"""Render a report's template as HTML, Markdown, plain text or another format, escaping every text for it."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vecveil.auditing.records.verdict import status
from vecveil.auditing.report import charts, text
from vecveil.errors import MissingDependencyError
from vecveil.io import expanded, write_text
from vecveil.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


def render(
    template: str, *, folder: Path | None = None, escape: Callable[[str], str] | None = None, **context: Any
) -> str:
    """Return the document of a template in ``folder`` or ``report/templates``, whose suffix names the format.

    ``escape`` is for formats other than HTML, Markdown and plain text. An HTML page gets ``style.css``, and the style
    sheet of its own name if that file exists.
    """
    name, _, form = template.rpartition(".")
    source = environment(form, folder, escape).get_template(template)
    return source.render(context | (_style("style.css", f"{name}.css") if form == "html" else {}))


def write_report(target: str | os.PathLike[str], document: str) -> Path:
    write_text(target, document)
    return expanded(target)


@functools.cache
def words(report: str) -> dict[str, Any]:
    file = resources.files("vecveil.auditing.report").joinpath("words.toml")
    sentences: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))[report]
    return sentences


@functools.cache
def _style(*names: str) -> dict[str, Any]:
    from markupsafe import Markup

    folder = resources.files("vecveil.auditing.report").joinpath("templates")
    # The page's content security policy allows this style sheet by its hash, and no script at all: a text of
    # the record that slipped through the escaping could not run.
    # On one line: the sheet is most of a short page.
    sheets = [_source(name) for name in names if folder.joinpath(name).is_file()]
    style = Markup(" ".join(" ".join(sheets).split()))
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return {"style": style, "digest": digest}


def _source(name: str, folder: Path | None = None) -> str:
    if folder is not None and (own := folder / name).is_file():
        return own.read_text(encoding="utf-8")
    return resources.files("vecveil.auditing.report").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def environment(form: str, folder: Path | None = None, escape: Callable[[str], str] | None = None) -> Environment:
    """Return the Jinja2 environment of a format; templates in ``folder`` take precedence over the package's."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
        from markupsafe import escape as escape_html
    except ImportError:
        raise MissingDependencyError("A report", "jinja2", "cli") from None

    def html(words: str) -> str:
        return escape_html(text.clean_text(words))

    plain, code = (
        (escape, escape)
        if escape
        else {
            "html": (html, lambda words: Markup("<code>{}</code>").format(text.clean_text(words))),
            "md": (text.markdown, text.markdown_code),
            "txt": (text.clean_text, text.clean_text),
        }[form]
    )

    def escaped(value: Any) -> Any:
        """Return markup unchanged, and any other value escaped for the format."""
        return value if isinstance(value, Markup) else Markup(plain(str(value)))

    def marked(function: Callable[[str], str]) -> Callable[[str], Markup]:
        return lambda words: Markup(function(words))

    # With autoescape, macros and blocks return markup, which passes `finalize` unchanged. All else `finalize` escapes
    # for the format and marks, so that Jinja does not escape it again for HTML.
    env = Environment(
        loader=FunctionLoader(lambda name: _source(name, folder)),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name fails instead of leaving a figure out
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        # Markdown and LaTeX files end with a newline, as text files do.
        keep_trailing_newline=form != "html",
    )
    env.filters |= {
        name: getattr(text, name)
        for name in ("percent", "decimal", "rounded", "count", "scale", "duration", "fit", "wrap", "ascii_percent")
    }
    env.filters["code"] = marked(code)
    env.filters["prose"] = lambda words: Markup(text.prose(words, code, plain).strip())
    env.filters["bounded"] = lambda figure, below: figure if below == text.MISSING else f"{figure} ({below})"
    env.filters["block"] = marked(text.markdown_block)
    env.filters["raw"] = Markup
    # A LaTeX comment ends with its line: a line break in a text would turn the rest into commands.
    env.filters["comment"] = marked(lambda words: " ".join(text.clean_text(words).split()))
    env.globals |= {
        "interval": text.interval,
        "plain_interval": text.plain_interval,
        "bounds": text.bounds,
        "status": status,
        "MISSING": text.MISSING,
        "NBSP": text.NBSP,
        "version": __version__,
    }
    if form == "html":
        env.globals |= {"charts": charts}
        env.filters |= {"place": charts.share_at, "g": lambda number: f"{number:.6g}"}
    return env
