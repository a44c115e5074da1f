"""The page is well formed, self-contained, escaped and legible."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from harness.sample_attacks import settle
from harness.sample_audit import HOSTILE, VARIANTS, sample_audit
from vecveil.auditing.records import AuditRecord
from vecveil.auditing.records.verdict import decide
from vecveil.auditing.report import render_audit
from vecveil.auditing.report.audit_page import next_steps

VOID = {"meta", "link", "br", "hr", "input"}
ELEMENTS = VOID - {"input"} | {
    *("html", "head", "title", "style", "body", "header", "main", "footer", "section", "nav"),
    *("h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "a", "b", "i"),
    *("strong", "small", "bdi", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "pre", "code", "svg", "desc", "rect", "line", "circle", "text"),
}


class Reader(HTMLParser):
    """Collects elements and text, and checks that every element is closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def of(self, tag: str, kind: str) -> list[dict[str, str]]:
        return [held for name, held in self.elements if name == tag and held.get("class") == kind]


def read(variant: str) -> Reader:
    return Reader(render_audit(sample_audit(variant)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_page_is_well_formed(variant: str) -> None:
    reader = read(variant)
    assert {tag for tag, _ in reader.elements} <= ELEMENTS
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in reader.elements:
        for name in attrs.get("aria-labelledby", "").split():
            assert name in ids
        if attrs.get("href", "").startswith("#"):
            assert attrs["href"][1:] in ids
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_loaded_and_nothing_runs(variant: str) -> None:
    reader = read(variant)
    for tag, attrs in reader.elements:
        assert tag not in ("script", "img", "iframe", "object", "embed", "base", "form", "image", "use")
        assert not any(key.startswith("on") or key in ("style", "src", "srcset") for key in attrs)
        assert attrs.get("href", "#").startswith(("#", "data:,"))
    css = resources.files("vecveil.auditing.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|@font-face|https?:", css)


def test_the_policy_names_the_style_sheet_and_nothing_else() -> None:
    page = render_audit(sample_audit())
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)
    policy = re.search('Content-Security-Policy" content="(.*?)"', page)
    assert style
    assert policy
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy[1].replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_hostile_strings_stay_text() -> None:
    page = render_audit(sample_audit("hostile"))
    assert "<script" not in page
    assert "<img" not in page
    assert read("hostile").text.count(HOSTILE) > 40
    assert not re.search("[\x00-\x08\x0e-\x1f\u202a-\u202e\ud800-\udfff]", page)
    page.encode("utf-8")


def test_terms_are_named_only_where_the_record_names_them() -> None:
    unnamed, named = render_audit(sample_audit()), render_audit(sample_audit("many-terms"))
    assert "term 1<" in unnamed
    assert "warfarin" not in unnamed
    assert "so they are numbered" in unnamed
    assert "warfarin" in named
    assert "names the concept’s terms" in named


def test_what_could_not_be_measured_is_a_dash() -> None:
    record = sample_audit()
    gone = dict.fromkeys(("value", "low", "high", "chance", "clean", "clean_low", "clean_high"))
    record["attacks"][3] |= gone
    record["attacks"][1]["also"][3] |= gone
    record["utility"]["retrieval"] |= dict.fromkeys(("clean", "value", "relative", "low", "high", "n"))
    for term in record["terms"]:
        term |= dict.fromkeys(("clean", "value", "chance"))
    page = render_audit(settle(record))
    assert page.count("–") > 40
    assert "None" not in page


def words_of(page: str) -> str:
    """Return the text of a page, blanks made plain."""
    return " ".join(re.sub("<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split())


def test_each_criterion_of_anonymity_has_its_rate_and_baseline_or_a_reason() -> None:
    page = words_of(render_audit(sample_audit()))
    rows = page.split("Anonymity: ")[1].split("What stays useful")[0]
    assert "top-1 with 1000 pairs, 500 texts 33.8 % 32.3–35.3 % 0.1 % 99.0 % above chance, below clean" in rows
    assert re.search(r"R-precision, \d+ word occurrences", rows), rows
    assert not re.search(r"R-precision, \d+ texts", rows)
    assert "Linkability Not measured. It needs another attack." in words_of(render_audit(sample_audit("empirical")))


def test_without_a_clean_side_there_is_no_clean_bar_and_nothing_is_compared() -> None:
    page = render_audit(sample_audit("store-without-clean"))
    assert 'class="bar clean"' not in page
    assert 'class="bar protected"' in page
    assert "no clean vectors to compare with" in page
    assert "below clean" not in page
    assert 'class="bar clean"' in render_audit(sample_audit("store"))


def test_warnings_come_before_the_verdict() -> None:
    page = render_audit(sample_audit("store"))
    assert page.index("whoever reads the store needs") < page.index('id="verdict"')
    assert "2 warnings" in page
    assert 'id="lint"' not in render_audit(sample_audit())


@pytest.mark.parametrize(
    ("variant", "step"),
    [("formal", "sealed search"), ("store", "Deal with the warnings"), ("at-chance", "vecveil frontier")],
)
def test_the_next_step_follows_from_the_figures(variant: str, step: str) -> None:
    steps = next_steps(audit := AuditRecord.read(sample_audit(variant), owner="test"), decide(audit))
    assert any(step in each for each in steps) is (variant != "at-chance")
    assert 1 <= len(steps) <= 3


def test_texts_are_on_the_page_only_where_the_record_holds_them() -> None:
    record, plain = sample_audit("reconstructions"), render_audit(sample_audit())
    page = words_of(render_audit(record))
    assert "This page now contains texts" in page
    assert "Original The patient was given warfarin on day 1" in page
    assert "Written from the protected vector The woman went" in page
    assert page.count("Written from the clean vector") == 3
    for words in ("contains texts", "Reconstructed texts", 'id="reconstructions"'):
        assert words not in plain


def luminance(colour: str) -> float:
    code = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = [int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, two: str) -> float:
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def palettes() -> list[dict[str, str]]:
    css = resources.files("vecveil.auditing.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", block)) for block in blocks]
    light, dark, paper = found
    return [light, dark, light | paper]


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark", "print"])
def test_contrast(palette: dict[str, str]) -> None:
    for text in ("ink", "muted", "protected", "chance"):
        assert contrast(palette[text], palette["paper"]) >= 4.5, text
    for shape in ("clean", "protected", "chance"):
        assert contrast(palette[shape], palette["paper"]) >= 3, shape


def test_control_the_contrast_check_finds_pale_text() -> None:
    assert contrast("aaaaaa", "ffffff") < 3
    assert contrast("000000", "ffffff") == pytest.approx(21)
