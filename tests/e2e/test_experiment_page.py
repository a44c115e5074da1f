"""The page of an experiment in a real browser: it loads nothing and fits a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.test_report_page import requests, view
from harness.browser import browser, needs_chromium
from harness.sample_experiment import EXPERIMENTS, sample_experiment
from research.report import experiment_to_html

pytestmark = needs_chromium
__all__ = ["browser"]  # the fixture


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("experiments")
    for name in EXPERIMENTS:
        page = experiment_to_html(sample_experiment(name))
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in EXPERIMENTS}


@pytest.mark.parametrize("variant", EXPERIMENTS)
def test_it_asks_for_nothing_and_complains_of_nothing(browser: Any, pages: dict[str, Path], variant: str) -> None:
    requests(browser)
    browser.get_log("browser")
    view(browser, pages[variant])
    assert requests(browser) == [pages[variant].as_uri()]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked === undefined")


@pytest.mark.parametrize("variant", EXPERIMENTS)
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_is_not_wider_than_its_window_and_wide_tables_scroll(
    browser: Any, pages: dict[str, Path], variant: str, width: int
) -> None:
    view(browser, pages[variant], width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll table'))"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        " || e.getBoundingClientRect().left < -1).map(e => e.outerHTML.slice(0, 200))"
    )
    assert beyond == []
    if variant == "wide":
        assert browser.execute_script(
            "const box = document.querySelector('#table-1').parentNode.querySelector('.scroll');"
            "box.focus(); return document.activeElement === box && box.scrollWidth > box.clientWidth"
        )
