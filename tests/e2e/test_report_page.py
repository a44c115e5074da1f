"""The audit page in a real browser: it loads nothing, fits a phone, its bars are the figures."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.sample_audit import VARIANTS, sample_audit
from harness.sample_frontier import sample_frontier
from vecveil.records import FrontierRecord
from vecveil.report import write_audit_html, write_frontier_html

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
CHROMEDRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or CHROMEDRIVER is None, reason="chromium and chromedriver are not on the PATH"
)

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: write_audit_html(sample_audit(name), folder / f"{name}.html") for name in VARIANTS
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def view(
    browser: Any, page: Path, *, width: int = 1200, media: str = "", dark: bool = False
) -> None:
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
        if entry["method"] == "Network.loadingFailed"
        and entry["params"].get("blockedReason") == "csp"
    }
    asked = [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
        and entry["params"]["requestId"] not in stopped
    ]
    return [url for url in asked if not url.startswith(("data:", "chrome:"))]


def background(browser: Any) -> str:
    script = "return getComputedStyle(document.body).backgroundColor"
    return str(browser.execute_script(script))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_asks_for_nothing_and_complains_of_nothing(
    browser: Any, pages: dict[str, Path], variant: str
) -> None:
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
@pytest.mark.parametrize(("width", "media"), [(360, ""), (700, ""), (1200, ""), (680, "print")])
def test_the_page_is_not_wider_than_its_window(
    browser: Any, pages: dict[str, Path], variant: str, width: int, media: str
) -> None:
    view(browser, pages[variant], width=width, media=media)
    browser.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('body *:not(svg *)')]"
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


@pytest.mark.parametrize("variant", ["formal", "many-terms", "hostile"])
def test_it_prints(browser: Any, pages: dict[str, Path], variant: str) -> None:
    view(browser, pages[variant])
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    pdf = base64.b64decode(printed)
    assert pdf.startswith(b"%PDF-")
    assert len(pdf) > 20_000


def test_bars_intervals_and_chance_are_the_figures(browser: Any, pages: dict[str, Path]) -> None:
    """Each length is read twice: from the attribute, and from where the browser draws it."""
    view(browser, pages["formal"])
    drawn = browser.execute_script(
        """
        const share = (svg, x) => (x - svg.getBoundingClientRect().left)
          / svg.getBoundingClientRect().width;
        return [...document.querySelectorAll('svg.attack')].map(svg => {
          const box = one => svg.querySelector(one).getBoundingClientRect();
          const raw = (one, name) => parseFloat(svg.querySelector(one).getAttribute(name)) / 100;
          return {
            title: svg.querySelector('title').textContent,
            value: [raw('.bar.protected', 'width'), share(svg, box('.bar.protected').right)],
            clean: [raw('.bar.clean', 'width'), share(svg, box('.bar.clean').right)],
            low: [raw('.interval.protected', 'x1'), share(svg, box('.interval.protected').left)],
            high: [raw('.interval.protected', 'x2'), share(svg, box('.interval.protected').right)],
            clean_low: [raw('.interval.clean', 'x1'), share(svg, box('.interval.clean').left)],
            clean_high: [raw('.interval.clean', 'x2'), share(svg, box('.interval.clean').right)],
            chance: [raw('.chance', 'x1'), share(svg, box('.chance').left)],
          };
        });
        """
    )
    by_title = {each.pop("title"): each for each in drawn}
    attacks = sample_audit()["attacks"]
    assert len(by_title) == len(attacks)
    for attack in attacks:
        lengths = by_title[f"{attack['name']}: {attack['metric']} with and without protection"]
        for key, (written, seen) in lengths.items():
            assert written == pytest.approx(attack[key], abs=1e-4), (attack["name"], key)
            assert seen == pytest.approx(attack[key], abs=0.005), (attack["name"], key)


def test_without_a_clean_side_one_bar_is_drawn(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["store-without-clean"])
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('svg.attack')].map(svg => [svg.querySelectorAll('.bar')"
        ".length, parseFloat(svg.querySelector('.bar.protected').getAttribute('width')) / 100])"
    )
    attacks = sample_audit("store-without-clean")["attacks"]
    assert drawn == [[1, pytest.approx(share, abs=1e-4)] for share in shares(attacks)]
    view(browser, pages["store"])
    bars = "return document.querySelectorAll('svg.attack .bar.clean').length"
    assert browser.execute_script(bars) == len(sample_audit("store")["attacks"])


def shares(attacks: list[dict[str, Any]]) -> list[float]:
    """Return the main figures in the order of the page: by family, the highest first."""
    families = list(dict.fromkeys(attack["family"] for attack in attacks))
    ordered = sorted(attacks, key=lambda a: (families.index(a["family"]), -a["value"]))
    return [attack["value"] for attack in ordered]


@pytest.mark.parametrize("width", [360, 1200])
def test_warnings_are_seen_first(browser: Any, pages: dict[str, Path], width: int) -> None:
    view(browser, pages["store"], width=width)
    top = browser.execute_script(
        "const box = document.querySelector('.lint').getBoundingClientRect();"
        "return [box.top, box.bottom, document.querySelector('.verdict').getBoundingClientRect().top]"
    )
    assert 0 < top[0] < top[1] < top[2]
    assert top[0] < 400


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("variant", ["formal", "store", "many-attacks"])
def test_no_column_of_words_is_squeezed(
    browser: Any, pages: dict[str, Path], variant: str, width: int
) -> None:
    view(browser, pages[variant], width=width)
    narrow = browser.execute_script(
        "return [...document.querySelectorAll('table:not(.series) tbody th')].filter(e => e.offsetParent !== null)"
        ".filter(e => e.getBoundingClientRect().width < 50).map(e => e.textContent)"
    )
    assert narrow == []


def test_utility_bars_and_term_dots_are_the_figures(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["many-terms"])
    record = sample_audit("many-terms")
    read = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map(e => parseFloat(e.getAttribute(arguments[1])) / 100)"
    )
    kept = browser.execute_script(read, "svg.kept .bar", "width")
    assert kept == pytest.approx([u["relative"] for u in record["utility"].values()], abs=1e-4)
    for selector, key in ((".dot.protected", "value"), (".dot.clean", "clean")):
        dots = browser.execute_script(read, f"svg.term {selector}", "cx")
        assert dots == pytest.approx([term[key] for term in record["terms"]], abs=1e-4)


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


def test_other_metrics_are_folded_away_and_open(browser: Any, pages: dict[str, Path]) -> None:
    view(browser, pages["formal"])
    table = browser.find_element("css selector", "#secondary + details table")
    assert not table.is_displayed()
    browser.find_element("css selector", "#secondary + details summary").click()
    assert table.is_displayed()


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
