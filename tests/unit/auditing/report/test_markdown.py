"""The Markdown export says what the page says, and no text of the record becomes markup."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from typing import Any

import pytest

from harness.sample_audit import VARIANTS, sample_audit
from vecveil.auditing.report import render_audit, render_audit_markdown
from vecveil.auditing.report.text import markdown_block

HOSTILE = (
    "[click](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "https://evil.example www.evil.example mailto:a@evil.example someone@evil.example",
    "<img src=x onerror=alert(1)><https://evil.example>",
    "| a | b |\n|---|---|\n| c \\| d | e \\\\| f |",
    "`code` ``two`` ```three``` `",
    "**bold** __bold__ *em* _em_ ~~gone~~ $math$",
    "# heading",
    "- item",
    "1. item",
    "===",
    "> quote",
    "\n\n# heading after a blank line\n\n",
    "&lt;b&gt; &#64;",
    "@team #123 GH-12 owner/repo#1",
    "ends with a backslash \\",
    "[ref]: https://evil.example",
    "[^1] <!-- comment --> <details>",
    "\u202e\x1b[31m\ud800",
)


def tokens(document: str) -> list[Any]:
    """Return what a Markdown parser makes of the document, inline tokens behind their block."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    found = []
    for token in parser.enable("strikethrough").parse(document):
        found += [token, *(token.children or [])]
    return found


def kinds(document: str) -> Counter[str]:
    """Return how many tokens of each kind a Markdown parser finds in the document."""
    return Counter(token.type for token in tokens(document))


@functools.cache
def plain() -> tuple[str, Counter[str]]:
    """Return the document of a record of plain words, and its tokens."""
    document = render_audit_markdown(poisoned("words"))
    return document, kinds(document)


def headings(document: str) -> list[str]:
    return re.findall(r"^(#+ .*)$", re.sub(r"(?s)^(`{3,}).*?^\1$", "", document, flags=re.M), re.M)


def poisoned(words: str) -> dict[str, Any]:
    """Return a record that holds ``words`` in every free string."""
    record = json.loads(json.dumps(sample_audit("hostile")).replace(json.dumps(evil())[1:-1], json.dumps(words)[1:-1]))
    assert isinstance(record, dict)
    return record


def evil() -> str:
    return str(sample_audit("hostile")["concept"])


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "hostile"])
def test_every_figure_of_the_page_is_in_it(variant: str) -> None:
    page, document = (f(sample_audit(variant)) for f in (render_audit, render_audit_markdown))
    words = re.sub("<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).replace("\u00a0", " ")
    shares = set(re.findall(r"\d+\.\d %", words))
    assert shares
    assert shares <= set(re.findall(r"\d+\.\d %", document.replace("\u00a0", " ")))


@pytest.mark.parametrize("variant", VARIANTS)
def test_tables_have_as_many_cells_as_heads(variant: str) -> None:
    document = render_audit_markdown(sample_audit(variant))
    width = None
    for line in document.splitlines():
        if not line.startswith("| "):
            width = None
            continue
        cells = len(re.findall(r"(?:\\.|[^|\\])+", line.strip("|").replace("\\|", "")))
        width = cells if width is None else width
        assert cells == width, line
    expected = {"heading_open", "table_open", "strong_open", "bullet_list_open", "code_inline"}
    assert expected <= kinds(document).keys()


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup(words: str) -> None:
    clean, expected = plain()
    document = render_audit_markdown(poisoned(words))
    found = kinds(document)
    assert len(headings(document)) == len(headings(clean))
    for kind in ("table_open", "tr_open"):
        assert found[kind] == expected[kind]
    assert found.keys() <= expected.keys()
    assert not found.keys() & {"link_open", "image", "html_inline", "html_block", "em_open"}
    outside = re.sub(r"(?s)(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", document)
    for linked in ("://", "www.", "mailto:", "@team", "@evil", "#1", "GH-12"):
        assert linked not in outside
    assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e\ud800-\udfff]", document)


def test_control_plain_markup_is_found() -> None:
    assert {"link_open", "image", "html_block", "em_open", "table_open"} <= kinds(
        "[a](b) ![a](b) *em*\n\n<div>\n\n| a |\n| --- |\n| b |\n"
    ).keys()


def test_a_command_cannot_end_its_block() -> None:
    assert markdown_block("a\n```\nb") == "````text\na\n```\nb\n````"


def test_texts_and_terms_only_where_the_record_holds_them() -> None:
    plain = render_audit_markdown(sample_audit())
    assert "contains texts" not in plain
    assert "warfarin" not in plain
    held = render_audit_markdown(sample_audit("reconstructions"))
    assert "**This page now contains texts:" in held
    assert "| The patient was given warfarin on day 1 and went home. |" in held
    assert "warfarin" in render_audit_markdown(sample_audit("many-terms"))
