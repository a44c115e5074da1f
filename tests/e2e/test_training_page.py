"""The page of a training in a real browser: it loads nothing, fits a phone, its curves are the figures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from e2e.test_report_page import background, browser, pytestmark, requests, view
from harness.sample_training import TRAININGS, sample_training
from vecveil.report import write_training_html

__all__ = [
    "browser",
    "pytestmark",
]  # the fixture and the rule for skipping are those of the audit page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trainings")
    return {
        name: write_training_html(sample_training(name), folder / f"{name}.html")
        for name in TRAININGS
    }


@pytest.mark.parametrize("variant", TRAININGS)
def test_it_asks_for_nothing_and_complains_of_nothing(
    browser: Any, pages: dict[str, Path], variant: str
) -> None:
    requests(browser)
    browser.get_log("browser")
    view(browser, pages[variant])
    assert requests(browser) == [pages[variant].as_uri()]
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return getComputedStyle(document.body).maxWidth") == "960px"


@pytest.mark.parametrize("variant", TRAININGS)
@pytest.mark.parametrize(("width", "media"), [(360, ""), (700, ""), (1200, ""), (680, "print")])
def test_the_page_is_not_wider_than_its_window(
    browser: Any, pages: dict[str, Path], variant: str, width: int, media: str
) -> None:
    view(browser, pages[variant], width=width, media=media)
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('body *')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert beyond == []


@pytest.mark.parametrize("width", [360, 1200])
def test_lines_and_dots_lie_where_the_figures_are(
    browser: Any, pages: dict[str, Path], width: int
) -> None:
    """p(PII) is on a scale from 0 to 1: what the browser draws is read off its own grid."""
    view(browser, pages["full"], width=width)
    drawn = browser.execute_script(
        """
        const chart = document.getElementById('p-pii-title').parentNode;
        const grid = [...chart.querySelectorAll('.grid')].map(e => e.getBoundingClientRect().top);
        const [bottom, top] = [Math.max(...grid), Math.min(...grid)];
        const middle = box => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
        const share = y => (bottom - y) / (bottom - top);
        const line = chart.querySelector('polyline.protected');
        const at = line.getScreenCTM();
        return {
          dots: [...chart.querySelectorAll('.point.protected')]
            .map(e => middle(e.getBoundingClientRect())).map(([x, y]) => [x, share(y)]),
          line: [...line.points].map(p => p.matrixTransform(at)).map(p => [p.x, share(p.y)]),
          width: chart.getBoundingClientRect().width,
        };
        """
    )
    values = [epoch["p_pii"] for epoch in sample_training()["epochs"]]
    for points in (drawn["dots"], drawn["line"]):
        assert [y for _, y in points] == pytest.approx(values, abs=0.01)
        steps = [b[0] - a[0] for a, b in itertools.pairwise(points)]
        assert steps == pytest.approx([0.096 * drawn["width"]] * 10, abs=0.5)
    assert [x for x, _ in drawn["dots"]] == pytest.approx([x for x, _ in drawn["line"]], abs=0.5)


def test_strokes_keep_their_width_and_numbers_are_folded_away(
    browser: Any, pages: dict[str, Path]
) -> None:
    view(browser, pages["full"], width=360)
    styles = browser.execute_script(
        "return [...document.querySelectorAll('polyline')].map(e => getComputedStyle(e)."
        "getPropertyValue('vector-effect'))"
    )
    assert set(styles) == {"non-scaling-stroke"}
    table = browser.find_element("css selector", ".panel details table")
    assert not table.is_displayed()
    browser.find_element("css selector", ".panel details summary").click()
    assert table.is_displayed()


def test_dark_and_light_differ_and_print_is_light(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["full"])
    light = background(browser)
    view(browser, pages["full"], dark=True)
    assert background(browser) != light
    view(browser, pages["full"], dark=True, media="print")
    assert background(browser) == "rgb(255, 255, 255)"
