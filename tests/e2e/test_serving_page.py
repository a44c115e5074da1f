"""The page of ``vecveil serve`` in a real browser: from a file and a few texts to guesses, slider and curve."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import vecveil
from harness.browser import browser, needs_chromium
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes
from vecveil.errors import InvalidInputError
from vecveil.texts.encoders import LsaEncoder

pytestmark = needs_chromium
__all__ = ["browser"]  # the fixture
SECONDS = 120
HOSTILE = "<img src=x onerror=alert(1)> with gout & <b>asthma</b>"


@dataclass
class Site:
    """A running server, and a file to load into its page."""

    url: str
    file: Path
    logged: list[str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    texts = [note.text for note in load_notes()[:400]]
    LsaEncoder.fit(texts, dimension=64).save(folder / "lsa")
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    encoder = vecveil.load_encoder(folder / "lsa", cache=None)
    fitted = vecveil.fit(texts, concept, encoder, method="laplace", noise_to_signal=0.1)
    fitted.save(folder / "served.vecveil")
    fitted.rescaled(2.0).save(folder / "loaded.vecveil")
    (folder / "notes.txt").write_text("\n".join(texts[:150]) + "\n", encoding="utf-8")
    options = ["--upstream", folder / "lsa", "--port", "0", "--page-texts", folder / "notes.txt"]
    given = [sys.executable, "-m", "vecveil", "serve", "-p", folder / "served.vecveil", *options]
    process = subprocess.Popen([str(one) for one in given], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    logged: list[str] = []
    found: queue.Queue[str] = queue.Queue()

    def read(lines: Any) -> None:
        for line in lines:
            logged.append(line)
            if '"listening"' in line:
                found.put(json.loads(line)["url"])

    reader = threading.Thread(target=read, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        url = found.get(timeout=SECONDS)
        yield Site(url.removesuffix("/v1") + "/", folder / "loaded.vecveil", logged)
    finally:
        process.terminate()
        process.wait(30)
        reader.join(10)
        process.stderr.close()


def wait(browser: Any, reached: Callable[[], Any]) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, SECONDS, poll_frequency=0.1).until(lambda _: reached())


def find(browser: Any, id: str) -> Any:
    return browser.find_element("id", id)


def fill(browser: Any, id: str, text: str) -> None:
    find(browser, id).clear()
    find(browser, id).send_keys(text)


def set_slider(browser: Any, value: int) -> None:
    """Move the slider as a keyboard does."""
    from selenium.webdriver.common.keys import Keys

    slider = find(browser, "noise")
    slider.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * value)
    assert slider.get_attribute("value") == str(value)


def hosts(browser: Any) -> set[str]:
    """Return the hosts that were asked for since the last call."""
    entries = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "chrome:", "chrome-untrusted:"))}


def marker(browser: Any) -> tuple[float, float]:
    circle = browser.find_element("css selector", "#curve .marker")
    return float(circle.get_attribute("cx")), float(circle.get_attribute("cy"))


@pytest.fixture(scope="module")
def guessed(browser: Any, site: Site) -> Any:
    """Return the browser with guesses for a loaded protector, as a user gets there."""
    hosts(browser)
    browser.get_log("browser")
    browser.get(site.url)
    wait(browser, lambda: find(browser, "form").is_displayed())
    assert "served" in find(browser, "protector").text
    assert "asthma" in find(browser, "words").get_attribute("value")
    find(browser, "file").send_keys(str(site.file))
    wait(browser, lambda: "loaded" in find(browser, "status").text)
    assert find(browser, "protector").get_attribute("value") != "served"
    fill(browser, "texts", f"Zyxcanary has gout and takes colchicine.\n{HOSTILE}\nNothing of it here.")
    fill(browser, "words", "gout\ncolchicine\nasthma\nmigraine\ninsomnia\nmalaria")
    find(browser, "run").click()
    wait(browser, lambda: find(browser, "result").is_displayed() or find(browser, "error").is_displayed())
    assert not find(browser, "error").is_displayed(), find(browser, "error").text
    return browser


def test_guesses_stand_before_and_after(guessed: Any) -> None:
    rows = guessed.find_elements("css selector", "#guesses tbody tr")
    assert len(rows) == 3
    for row in rows:
        assert len(row.find_elements("css selector", "ol.before li")) == 5
        assert len(row.find_elements("css selector", "ol.after li")) == 5
    assert "contains: gout, colchicine" in rows[0].text
    assert "✓" in rows[0].find_element("css selector", "ol.before").text
    assert "contains none of the words" in rows[2].text
    assert "✓" not in rows[2].text
    bars = guessed.execute_script(
        "return [...document.querySelectorAll('#guesses li')].map(li => [parseFloat(li.children[1].textContent),"
        "li.querySelector('.bar').getBoundingClientRect().width / li.getBoundingClientRect().width])"
    )
    assert all(drawn == pytest.approx(score, abs=0.01) for score, drawn in bars)
    assert "chance" in find(guessed, "summary").text
    assert "transplant" in find(guessed, "method").text
    assert "not an audit" in find(guessed, "limits-title").find_element("xpath", "..").text


def test_a_text_stays_a_text(guessed: Any) -> None:
    assert HOSTILE in find(guessed, "guesses").text
    assert guessed.find_elements("css selector", "#guesses img, #guesses b") == []


def test_the_slider_moves_the_marker_the_label_and_the_guesses(guessed: Any) -> None:
    levels = int(find(guessed, "noise").get_attribute("max"))
    assert levels >= 4
    set_slider(guessed, 0)
    least, label = marker(guessed), find(guessed, "noise-label").text
    guesses = find(guessed, "guesses").text
    set_slider(guessed, levels)
    most = marker(guessed)
    assert most[0] < least[0], "less similarity is kept"
    assert most[1] > least[1], "less is read"
    assert find(guessed, "noise-label").text != label
    assert find(guessed, "noise").get_attribute("aria-valuetext") == find(guessed, "noise-label").text
    assert find(guessed, "guesses").text != guesses


def test_the_marker_is_at_the_figures(guessed: Any) -> None:
    for at in (0, 3):
        set_slider(guessed, at)
        cells = guessed.execute_script(
            "return [...document.querySelector('#levels tr.current').cells].map(c => c.textContent)"
        )
        utility, read = float(cells[1]), float(cells[2].split()[0]) / 100
        assert cells[1] in find(guessed, "noise-label").text
        x, y = marker(guessed)
        assert (x - 64) / (620 - 64) == pytest.approx(utility, abs=0.002)
        assert (262 - y) / (262 - 16) == pytest.approx(read, abs=0.002)


@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_its_window(guessed: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    guessed.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    guessed.execute_script("document.querySelectorAll('details').forEach(e => { e.open = true })")
    beyond = guessed.execute_script(
        "return [...document.querySelectorAll('body *:not(svg *, .wide *)')]"
        f".filter(e => e.getBoundingClientRect().right > {width}).map(e => e.outerHTML.slice(0, 200))"
    )
    assert beyond == []
    assert guessed.execute_script("return document.documentElement.scrollWidth") <= width


def test_dark_differs_and_every_field_has_a_label(guessed: Any) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        guessed.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [feature]})
        colours.add(guessed.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    unnamed = guessed.execute_script(
        "return [...document.querySelectorAll('input, select, textarea')].filter(e => !e.labels.length).map(e => e.id)"
    )
    assert unnamed == []


def test_a_wrong_file_and_too_many_words_are_said_in_words(guessed: Any, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.vecveil"
    wrong.write_bytes(b"nothing of the kind")
    # The browser notes every answer of 400 in its console: what it has to say of the page itself is read first.
    assert guessed.get_log("browser") == []
    find(guessed, "file").send_keys(str(wrong))
    wait(guessed, lambda: find(guessed, "error").is_displayed())
    assert "not a protector" in find(guessed, "error").text
    fill(guessed, "words", "gout")
    find(guessed, "run").click()
    wait(guessed, lambda: "words" in find(guessed, "error").text)
    assert find(guessed, "run").is_enabled()
    guessed.get_log("browser")


def test_a_job_can_be_cancelled(guessed: Any) -> None:
    fill(guessed, "words", "gout\nmalaria\nlupus")
    find(guessed, "run").click()
    wait(guessed, lambda: find(guessed, "cancel").is_enabled())
    wait(guessed, lambda: find(guessed, "status").text not in ("Starting", ""))
    find(guessed, "cancel").click()
    wait(guessed, lambda: find(guessed, "run").is_enabled())
    assert find(guessed, "status").text == "Cancelled."
    assert not find(guessed, "error").is_displayed()


def test_nobody_else_was_asked_and_nothing_was_logged(guessed: Any, site: Site) -> None:
    assert hosts(guessed) == {urlsplit(site.url).netloc}
    assert guessed.get_log("browser") == []
    logged = "".join(site.logged)
    assert "request" in logged
    assert not [word for word in ("yxcanary", "colchicine", "gout", "/page/jobs") if word in logged]


def test_control_what_asks_elsewhere_is_stopped_and_seen(guessed: Any) -> None:
    guessed.get_log("browser")
    answer = guessed.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('sent'), () => done('stopped'))"
    )
    assert answer == "stopped"
    assert any("Content Security Policy" in one["message"] for one in guessed.get_log("browser"))
    hosts(guessed)
    guessed.execute_async_script("const done = arguments[0]; fetch('/health').then(() => done())")
    assert len(hosts(guessed)) == 1


def test_with_keys_the_page_asks_for_one(browser: Any, tmp_path: Path) -> None:
    """The attacker is a stand-in here: what is tested is the way of the key."""
    from harness.serving import FakeEncoder, fake_protector, served
    from vecveil.gateway.server import Service
    from vecveil.gateway.server.preview_page import PAGE_OPEN_PATHS, PageTexts, page_router
    from vecveil.gateway.server.requests import ApiKeys
    from vecveil.gateway.server.service import ServedPolicy
    from vecveil.gateway.server.upstreams import LocalUpstream
    from vecveil.privacy.protector.policy import ReleasePolicy

    file = tmp_path / "keys"
    file.write_text("k" * 40 + "\n")
    file.chmod(0o600)
    protector, upstream = fake_protector(), LocalUpstream(FakeEncoder())

    def guess(*_: Any, **__: Any) -> dict[str, Any]:
        raise InvalidInputError("Preview: `words` must be other words; got these.")

    router = page_router({"drug": (protector, upstream)}, guess, PageTexts(("gout", "lupus"), ("one",), "few"))
    service = Service([ServedPolicy("drug", ReleasePolicy(protector), upstream)])
    with served(service, routers=[router], keys=ApiKeys(str(file)), open_paths=PAGE_OPEN_PATHS) as url:
        browser.get(url)
        wait(browser, lambda: find(browser, "key").is_displayed())
        assert not find(browser, "form").is_displayed()
        for key, form in (("wrong", False), ("k" * 40, True)):
            find(browser, "key").send_keys(key)
            find(browser, "access-form").submit()
            wait(
                browser,
                lambda form=form: (
                    find(browser, "form").is_displayed() or (not form and "not take" in find(browser, "error").text)
                ),
            )
            assert find(browser, "form").is_displayed() is form
        assert not find(browser, "access").is_displayed()
        assert (
            browser.execute_script("return localStorage.length + sessionStorage.length + document.cookie.length") == 0
        )
        find(browser, "samples").click()
        find(browser, "run").click()
        wait(browser, lambda: "other words" in find(browser, "error").text)
        browser.get("about:blank")
