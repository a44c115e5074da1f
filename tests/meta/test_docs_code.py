"""The Python in the documents runs, page by page; only Python that is meant to run is marked so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import vecveil
from harness.command_line import run
from harness.documents import ROOT, blocks, run_python
from harness.small_attacks import small_audits
from research.datasets import registry
from vecveil.auditing import comparison as frontier
from vecveil.auditing.attacks import ladder
from vecveil.privacy.protector import METHODS

PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "docs").rglob("*.md")
    if any(blocks(page.read_text(encoding="utf-8"), "python"))
)
LANGUAGES = {"python", "console", "yaml", "toml", "text", ""}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Drop the methods, attacks and data sets that a page registers: other tests count them."""
    registries: list[dict[str, Any]] = [METHODS, ladder._own, registry._known]
    before = [dict(one) for one in registries]
    yield
    for one, known in zip(registries, before, strict=True):
        one.clear()
        one.update(known)


@pytest.fixture(scope="module")
def fit_once() -> Callable[..., Any]:
    """`vecveil.fit`, called once for equal texts, spans, encoder name and options: six pages fit the same protector."""
    fitted: dict[str, Any] = {}
    fit = vecveil.fit

    @wraps(fit)
    def once(texts: Any, concept: Any, encoder: Any = "minilm", **options: Any) -> Any:
        if not isinstance(encoder, str) or not isinstance(concept, vecveil.Concept):
            return fit(texts, concept, encoder, **options)
        key = repr((texts, concept, concept.detect(texts), encoder, sorted(options.items())))
        if key not in fitted:
            fitted[key] = fit(texts, concept, encoder, **options)
        return fitted[key]

    return once


def run_here(words: list[str], **options: Any) -> None:
    """Run ``vecveil`` of a page in this process, which has the model loaded; `subprocess.run` would load it again."""
    assert words[:3] == [sys.executable, "-m", "vecveil"]
    done = run(*words[3:])
    assert done.code == 0, done.err


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit_once: Callable[..., Any]
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vecveil, "fit", fit_once)
    monkeypatch.setattr(subprocess, "run", run_here)
    # A page shows how a frontier is used: three of its designs are enough.
    monkeypatch.setattr(frontier, "designs", lambda n, every=frontier.designs: every(n)[::7])
    with small_audits():
        assert run_python(text, page) > 0


def test_the_pages_with_code_are_found() -> None:
    assert {"docs/tutorial.md", "docs/guarantee.md", "docs/how-to/strength.md"} <= set(PAGES)


def test_every_block_has_a_known_language() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        found = {block.language for block in blocks(page.read_text(encoding="utf-8"))}
        assert found <= LANGUAGES, page.name


def test_a_wrong_page_is_noticed() -> None:
    page = "# Page\n\n```python\nx = 1\n```\n\n```text\nno code\n```\n"
    page += "\n```python\nassert x == 2\n```\n"
    with pytest.raises(AssertionError) as caught:
        run_python(page, "page.md")
    assert caught.traceback[-1].lineno == 11
    assert str(caught.traceback[-1].path) == "page.md"
