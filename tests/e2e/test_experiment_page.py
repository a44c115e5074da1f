"""The page of an experiment in a real browser: it loads nothing, fits a phone, its marks are the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.test_report_page import background, browser, pytestmark, requests, view
from harness.sample_experiment import EXPERIMENTS, sample_experiment
from research.report import experiment_to_html

__all__ = ["browser", "pytestmark"]  # the fixture and the rule for skipping are those of the audit page


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


@pytest.mark.parametrize("width", [360, 1200])
def test_marks_and_lines_lie_where_the_figures_are(browser: Any, pages: dict[str, Path], width: int) -> None:
    """What the browser draws is read off its own grid, whose lowest line is 0 and whose highest is 0.8."""
    view(browser, pages["full"], width=width)
    drawn = browser.execute_script(
        """
        const chart = document.getElementById('figure-1-title').parentNode;
        const grid = [...chart.querySelectorAll('.grid')].map(e => e.getBoundingClientRect().top);
        const [bottom, top] = [Math.max(...grid), Math.min(...grid)];
        const value = y => 0.8 * (bottom - y) / (bottom - top);
        const line = chart.querySelector('.line.series-0');
        const at = line.getScreenCTM();
        return {
          marks: [...chart.querySelectorAll('circle.mark')].map(e => e.getBoundingClientRect())
            .map(box => [(box.left + box.right) / 2, value((box.top + box.bottom) / 2)]),
          line: [...line.points].map(p => p.matrixTransform(at)).map(p => [p.x, value(p.y)]),
        };
        """
    )
    for points in (drawn["marks"], drawn["line"]):
        assert [y for _, y in points] == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6], abs=0.01)
    xs = [x for x, _ in drawn["line"]]
    assert [x for x, _ in drawn["marks"]] == pytest.approx(xs, abs=0.7)
    shares = [(x - xs[0]) / (xs[-1] - xs[0]) for x in xs]
    assert shares == pytest.approx([(e - 5) / 35 for e in (5, 10, 20, 30, 40)], abs=0.005)


def test_every_series_has_a_colour_of_its_own_in_light_and_dark_and_print_is_light(
    browser: Any, pages: dict[str, Path]
) -> None:
    found = []
    for dark in (False, True):
        view(browser, pages["full"], dark=dark)
        strokes = browser.execute_script(
            "return [0, 1, 2].map(k => getComputedStyle(document.querySelector('.chart .line.series-' + k)).stroke)"
        )
        assert len(set(strokes)) == 3
        found.append((background(browser), *strokes))
    assert not set(found[0]) & set(found[1])
    view(browser, pages["full"], dark=True, media="print")
    assert background(browser) == "rgb(255, 255, 255)"
