"""The audit page in a real browser: it loads nothing, is short and accessible, and its bars are the figures."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.browser import browser, needs_chromium
from harness.sample_audit import VARIANTS, sample_audit, with_caveats
from harness.sample_frontier import sample_frontier
from vecveil.auditing.records import FrontierRecord
from vecveil.auditing.report import write_audit_html, write_frontier_html
from vecveil.auditing.report.pack import write_pack

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
axe = pytest.importorskip("axe_core_python.base", reason="axe-core-python is not installed")
AXE = Path(axe.AXE_FILE_PATH).read_text(encoding="utf-8")

pytestmark = needs_chromium
__all__ = ["browser"]  # the fixture


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_audit_html(sample_audit(name), folder / f"{name}.html") for name in VARIANTS}


def view(browser: Any, page: Path, *, width: int = 1200, media: str = "", dark: bool = False) -> None:
    """Open the page in a window of the given width, colour scheme and medium."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
    browser.get(page.as_uri())


def requests(browser: Any) -> list[str]:
    """Return the addresses that a page asked for since the last call, those that a policy stopped
    and the browser's own left out."""
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    stopped = {
        entry["params"]["requestId"]
        for entry in entries
        if entry["method"] == "Network.loadingFailed" and entry["params"].get("blockedReason") == "csp"
    }
    asked = [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent" and entry["params"]["requestId"] not in stopped
    ]
    return [url for url in asked if not url.startswith(("data:", "chrome:", "chrome-untrusted:"))]


def background(browser: Any) -> str:
    script = "return getComputedStyle(document.body).backgroundColor"
    return str(browser.execute_script(script))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_asks_for_nothing_and_complains_of_nothing(browser: Any, pages: dict[str, Path], variant: str) -> None:
    requests(browser)
    browser.get_log("browser")
    view(browser, pages[variant])
    assert requests(browser) == [pages[variant].as_uri()]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []
    assert browser.execute_script("return getComputedStyle(document.body).maxWidth") == "960px"


def test_control_a_page_that_asks_is_found(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "asks.html"
    page.write_text('<img src="missing.png">', encoding="utf-8")
    requests(browser)
    browser.get_log("browser")
    view(browser, page)
    assert any(url.endswith("missing.png") for url in requests(browser))
    assert browser.get_log("browser") != []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("width", "media"), [(360, ""), (1200, ""), (680, "print")])
def test_the_page_is_not_wider_than_its_window(
    browser: Any, pages: dict[str, Path], variant: str, width: int, media: str
) -> None:
    view(browser, pages[variant], width=width, media=media)
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('body *:not(svg *, .scroll *)')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    )
    assert beyond == []


def test_control_a_page_that_is_too_wide_is_found(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text('<meta name="viewport" content="width=device-width"><pre>' + "x" * 500)
    view(browser, page, width=360)
    assert browser.execute_script("return document.documentElement.scrollWidth") > 360


def test_dark_and_light_differ_and_print_is_light(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["formal"])
    light = background(browser)
    view(browser, pages["formal"], dark=True)
    assert background(browser) != light
    view(browser, pages["formal"], dark=True, media="print")
    assert background(browser) == "rgb(255, 255, 255)"


A4 = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "hostile"])
def test_it_is_read_in_minutes(browser: Any, pages: dict[str, Path], variant: str) -> None:
    """The first screen says what to know; few words follow; paper holds what is unfolded."""
    view(browser, pages[variant], width=1280)
    ends = browser.execute_script(
        "return ['#verdict', '.verdict', '.scores', '#search', '#next']"
        ".map(e => document.querySelector(e).getBoundingClientRect().bottom)"
    )
    assert max(ends) <= 800
    # The text of closed folds is not rendered, and so not counted.
    shown = browser.execute_script("return document.body.innerText.split(/\\s+/).length")
    whole = browser.execute_script("return document.body.textContent.split(/\\s+/).length")
    assert shown <= 1200 < whole + 1000
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 4 * 800
    printed = browser.execute_cdp_cmd("Page.printToPDF", A4)["data"]
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed))) <= 4


def violations(browser: Any) -> list[list[Any]]:
    """Return what axe-core objects to: the rule and the elements."""
    browser.execute_script(AXE)
    return list(
        browser.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run().then(r => done(r.violations.map(v => [v.id, v.nodes.map(n => n.html)])))"
        )
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("variant", ["formal", "store"])
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], variant: str, dark: bool) -> None:
    view(browser, pages[variant], dark=dark)
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert violations(browser) == []


@pytest.mark.parametrize("caveats", [1, 7])
def test_the_summary_of_a_review_pack_is_two_pages(browser: Any, tmp_path: Path, caveats: int) -> None:
    record = sample_audit() if caveats == 1 else with_caveats()
    page = write_pack(record, tmp_path)[0]
    view(browser, page)
    assert len(browser.find_elements("css selector", ".notes li")) == caveats
    assert violations(browser) == []
    printed = browser.execute_cdp_cmd("Page.printToPDF", A4)["data"]
    assert len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed))) == 2


def test_control_axe_finds_pale_text(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "pale.html"
    page.write_text("<!doctype html><html lang=en><title>Pale</title><main><h1 style='color:#ccc'>Pale</h1></main>")
    view(browser, page)
    assert [rule for rule, _ in violations(browser)] == ["color-contrast"]


def test_bars_intervals_and_chance_are_the_figures(browser: Any, pages: dict[str, Path]) -> None:
    """Each length is read twice: from the attribute, and from where the browser draws it."""
    view(browser, pages["formal"])
    drawn = browser.execute_script(
        """
        const share = (svg, x) => (x - svg.getBoundingClientRect().left)
          / svg.getBoundingClientRect().width;
        return [...document.querySelectorAll('#families ~ .row svg.figure')].map(svg => {
          const box = one => svg.querySelector(one).getBoundingClientRect();
          const raw = (one, name) => parseFloat(svg.querySelector(one).getAttribute(name)) / 100;
          return {
            value: [raw('.bar.protected', 'width'), share(svg, box('.bar.protected').right)],
            clean: [raw('.dot.clean', 'cx'), share(svg, (box('.dot.clean').left + box('.dot.clean').right) / 2)],
            low: [raw('.interval.protected', 'x1'), share(svg, box('.interval.protected').left)],
            high: [raw('.interval.protected', 'x2'), share(svg, box('.interval.protected').right)],
            chance: [raw('line.chance', 'x1'), share(svg, box('line.chance').left)],
          };
        });
        """
    )
    record = sample_audit()
    strongest = [each["worst"] for each in record["families"]]
    attacks = [next(each for each in record["attacks"] if each["name"] == name) for name in strongest]
    assert len(drawn) == len(attacks)
    for attack, figures in zip(attacks, drawn, strict=True):
        for key, (written, seen) in figures.items():
            assert written == pytest.approx(attack[key], abs=1e-4), (attack["name"], key)
            assert seen == pytest.approx(attack[key], abs=0.005), (attack["name"], key)
    widths = "return [...document.querySelectorAll('.scores .bar')].map(e => parseFloat(e.getAttribute('width')) / 100)"
    worst = attacks[0]
    assert browser.execute_script(widths) == pytest.approx([worst[key] for key in ("clean", "value", "chance")])


def test_without_a_clean_side_no_clean_figure_is_drawn(browser: Any, pages: dict[str, Path]) -> None:
    count = "return [document.querySelectorAll('.scores .bar').length, document.querySelectorAll('.dot.clean').length]"
    view(browser, pages["store-without-clean"])
    assert browser.execute_script(count) == [2, 0]
    view(browser, pages["store"])
    assert browser.execute_script(count) == [3, 9]  # seven families, and two lists of words


@pytest.mark.parametrize("width", [360, 1200])
def test_warnings_are_seen_first(browser: Any, pages: dict[str, Path], width: int) -> None:
    view(browser, pages["store"], width=width)
    top = browser.execute_script(
        "const box = document.querySelector('.lint').getBoundingClientRect();"
        "return [box.top, box.bottom, document.querySelector('.verdict').getBoundingClientRect().top]"
    )
    assert 0 < top[0] < top[1] < top[2]
    assert top[0] < 400


def test_hostile_strings_do_nothing(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["hostile"])
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
    assert browser.execute_script("return document.querySelectorAll('style').length") == 1
    title = browser.execute_script("return document.querySelector('h1').textContent")
    assert '<img src=x onerror="window.hacked=1">' in title


def test_the_policy_stops_what_would_slip_through(browser: Any, pages: dict[str, Path]) -> None:
    """Control of the second line of defence: markup put into the page still may not run or load."""
    page = pages["formal"].with_name("injected.html")
    evil = "<script>window.hacked = 1</script><img src='x.png' onerror='window.hacked = 2'></main>"
    page.write_text(pages["formal"].read_text(encoding="utf-8").replace("</main>", evil), "utf-8")
    requests(browser)
    view(browser, page)
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 2
    assert browser.execute_script("return window.hacked === undefined")
    assert requests(browser) == [page.as_uri()]


def test_folds_open_by_keyboard_and_are_printed_only_when_open(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["formal"])
    table = browser.find_element("css selector", "#attacks table")
    assert not table.is_displayed()
    browser.find_element("css selector", "#attacks summary").send_keys("\n")
    assert table.is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert table.is_displayed()
    assert not browser.find_element("css selector", "#terms").is_displayed()


def test_a_frontier_shows_a_point_on_hover_and_changes_its_leak(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    record = FrontierRecord.read(sample_frontier(), owner="test")
    page = write_frontier_html(record, tmp_path / "frontier.html")
    requests(browser)
    browser.get_log("browser")
    view(browser, page)
    assert requests(browser) == [page.as_uri()]
    assert browser.get_log("browser") == []

    def shown() -> list[Any]:
        return [dot for dot in browser.find_elements(By.CSS_SELECTOR, "a.dot") if dot.is_displayed()]

    def tips() -> list[str]:
        every = browser.find_elements(By.CSS_SELECTOR, ".tip")
        return [tip.text for tip in every if tip.is_displayed()]

    assert len(shown()) == 8
    assert tips() == []
    place = shown()[2].find_element(By.CSS_SELECTOR, ".near")
    webdriver.ActionChains(browser).move_to_element(place).perform()
    (words,) = tips()
    assert words.startswith("Point 3: subspace, erase 46")
    before = place.location["x"]
    browser.find_element(By.CSS_SELECTOR, "label[for=show-left-out]").click()
    moved = shown()[2].find_element(By.CSS_SELECTOR, ".near").location["x"]
    assert moved > before  # 41 % of words left out, 20 % of listed ones
    for width, media in ((360, ""), (680, "print")):
        view(browser, page, width=width, media=media)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
