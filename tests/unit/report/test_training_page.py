"""The page of a training: drawn from its record, escaped, and refused where the record is not sound."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.sample_training import HOSTILE, TRAININGS, sample_training
from vecveil.errors import DataFileError, InvalidInputError
from vecveil.records import read_training
from vecveil.report import training_csv, training_lines, training_page, write_training_html
from vecveil.report.charts import scale_ticks
from vecveil.report.text import rounded as shown
from vecveil.report.training import MEASURES, SAME_CLASSIFIER

VOID = {"meta", "link"}
FORBIDDEN = {"script", "img", "iframe", "object", "embed", "base", "form", "image", "use"}


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


@pytest.mark.parametrize("variant", TRAININGS)
def test_the_page_is_well_formed_and_loads_nothing(variant: str) -> None:
    page = training_page(sample_training(variant))
    reader = Reader(page)
    assert not {tag for tag, _ in reader.elements} & FORBIDDEN
    ids = [held["id"] for _, held in reader.elements if "id" in held]
    assert len(ids) == len(set(ids))
    for _, held in reader.elements:
        assert set(held.get("aria-labelledby", "").split()) <= set(ids)
        assert not any(key.startswith("on") or key in ("style", "src") for key in held)
        assert held.get("href", "data:,") == "data:,"
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert "nan" not in reader.text.lower().split()


@pytest.mark.parametrize("variant", TRAININGS)
def test_it_says_what_p_pii_does_not_say_and_that_nothing_is_guaranteed(variant: str) -> None:
    text = Reader(training_page(sample_training(variant))).text
    assert SAME_CLASSIFIER in text
    assert "which was fitted on these vectors too" in text
    assert "empirical, no formal privacy guarantee" in text


def test_hostile_strings_stay_text_and_unknown_keys_are_left_out() -> None:
    page = training_page(sample_training("hostile"))
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("</style>") == 1
    assert Reader(page).text.count(HOSTILE) == 4  # a setting's name and value, a metric, a warning


def test_the_curves_are_the_figures() -> None:
    """Points lie where the record says, on the scale whose numbers stand beside them."""
    record = sample_training()
    reader = Reader(training_page(record))
    dots = reader.of("circle", "point protected")
    values = [epoch["p_pii"] for epoch in record["epochs"]]
    own = dots[len(values) : 2 * len(values)]  # the second panel
    for epoch, (dot, value) in enumerate(zip(own, values, strict=True)):
        assert float(dot["cx"].rstrip("%")) == pytest.approx(2 + 9.6 * epoch)
        assert float(dot["cy"]) == pytest.approx(8 + 116 * (1 - value), abs=0.01)
    line = reader.of("polyline", "curve protected")[1]
    drawn = [tuple(map(float, pair.split(","))) for pair in line["points"].split()]
    assert drawn == [(pytest.approx(float(dot["cx"].rstrip("%"))), float(dot["cy"])) for dot in own]
    assert f"protected: {shown(values[0])} at epoch 0, {shown(values[-1])} at epoch 10" in reader.text  # fmt: skip


def test_every_number_of_the_record_stands_in_a_table() -> None:
    record = sample_training()
    cells = re.findall(r'<td class="number">([^<]*)', training_page(record))
    for epoch in record["epochs"]:
        for key, value in epoch.items():
            if value is not None and key not in ("epoch", "seconds"):
                assert shown(value) in cells, key


def test_settings_seed_rows_and_the_classifier_are_shown() -> None:
    text = Reader(training_page(sample_training())).text
    for words in ("radius", "normalise advantage", "18,000", "seed 7", "used of each", "AUC"):
        assert words in text
    assert "0.960 to 0.980" in text
    record = sample_training()
    record["classifier"]["held_out"]["warnings"] = ["Near chance."]
    assert "Near chance." in Reader(training_page(record)).text


def test_one_epoch_is_a_dot_and_no_line() -> None:
    reader = Reader(training_page(sample_training("one-epoch")))
    assert [tag for tag, _ in reader.elements if tag == "polyline"] == []
    dots = reader.of("circle", "point protected")
    assert [dot["cx"] for dot in dots] == ["50%"] * 9
    assert "1 epoch " in reader.text


def test_many_epochs_are_lines_without_dots() -> None:
    reader = Reader(training_page(sample_training("long")))
    assert [tag for tag, _ in reader.elements if tag == "circle"] == []
    assert len(reader.of("polyline", "curve protected")) == 9


def test_a_measure_that_is_missing_is_not_drawn_and_a_gap_parts_the_line() -> None:
    bare = Reader(training_page(sample_training("bare")))
    ids = [held.get("id", "") for _, held in bare.elements]
    assert [each for each in ids if each.endswith("-title")] == ["p-pii-title"]
    record = sample_training()
    record["epochs"][4]["mean_log_sigma"] = None
    del record["settings"], record["classifier"], record["seed"], record["rows"]
    reader = Reader(training_page(record))
    assert len(reader.of("polyline", "curve protected")) == 10
    assert "Share that does not change" in reader.text
    nothing = {"schema": record["schema"], "epochs": [{"epoch": 1}]}
    assert "The record holds no measures." in training_page(nothing)


def _with(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *inner, last = path.split(".")
    at: Any = record
    for key in inner:
        at = at[int(key)] if key.isdigit() else at[key]
    at[int(last) if last.isdigit() else last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("schema", "vecveil.training/2", r"training\.schema.*'vecveil\.training/1'"),
        ("schema", None, r"training\.schema"),
        ("epochs", [], "one epoch or more"),
        ("epochs", {}, "a list"),
        ("epochs.3", 7, r"epochs\[3\].*object"),
        ("epochs.3.reward", math.nan, r"epochs\[3\]\.reward.*finite.*NaN"),
        ("epochs.3.drift", math.inf, r"epochs\[3\]\.drift.*finite"),
        ("epochs.3.p_pii", "0.5", r"epochs\[3\]\.p_pii.*number.*str"),
        ("epochs.3.p_pii", True, r"epochs\[3\]\.p_pii.*number.*bool"),
        ("epochs.3.reward", 1e300, r"epochs\[3\]\.reward"),
        ("epochs.3.reward", 10**400, r"epochs\[3\]\.reward.*finite"),
        ("epochs.3.seconds", math.nan, r"epochs\[3\]\.seconds"),
        ("epochs.3.epoch", 9, "rising"),
        ("epochs.3.epoch", 2.5, r"epochs\[3\]\.epoch.*whole"),
        ("settings", [1], r"training\.settings.*object"),
        ("settings.radius", math.nan, r"settings\.radius.*finite"),
        ("rows", "many", r"training\.rows"),
        ("seed", -1, r"training\.seed"),
        ("classifier.held_out.auc.value", math.nan, r"held_out\.auc\.value"),
        ("classifier.held_out.warnings", [3], r"warnings\[0\].*string"),
        ("classifier.held_out.rows.plain", 1.5, r"rows\.plain.*whole"),
    ],
)  # fmt: skip
def test_what_is_not_sound_is_one_clear_error(path: str, value: Any, says: str) -> None:
    record = _with(sample_training(), path, value)
    for draw in (training_page, training_csv, training_lines):
        with pytest.raises(InvalidInputError, match=says) as failure:
            draw(record)
        assert "\n" not in str(failure.value)


def test_no_record_at_all_is_one_clear_error() -> None:
    for nothing in (None, [], "x"):
        with raises("E-INPUT", "training"):
            training_page(nothing)  # type: ignore[arg-type]
    with pytest.raises(DataFileError):
        read_training({}, owner="x", error=DataFileError)


@pytest.mark.parametrize(
    ("values", "bounds", "low", "high"),
    [
        ([0.3, 0.4], None, 0.3, 0.4), ([0.2, 0.7], (0.0, 1.0), 0.0, 1.0), ([0.2, 1.3], (0.0, 1.0), 0.0, 1.5),
        ([-3.1, -0.2], None, -4.0, 0.0), ([0.0], None, -0.5, 0.5), ([5e-5, 9e-5], None, 4e-5, 1e-4),
        ([1e9, 3e9], None, 1e9, 3e9),
    ],
)  # fmt: skip
def test_a_scale_holds_its_values_in_round_numbers(
    values: list[float], bounds: tuple[float, float] | None, low: float, high: float
) -> None:
    ticks = scale_ticks(values, bounds)
    assert (ticks[0][0], ticks[-1][0]) == (pytest.approx(low), pytest.approx(high))
    assert 3 <= len(ticks) <= 7
    assert len({words for _, words in ticks}) == len(ticks)
    assert [float(words.replace(",", "").replace("\u2212", "-")) for _, words in ticks] == [
        pytest.approx(at, abs=1e-12) for at, _ in ticks
    ]


def test_a_measure_that_hardly_moves_does_not_fill_the_chart() -> None:
    ticks = scale_ticks([1.0, 1.0 + 1e-9])
    assert ticks[-1][0] - ticks[0][0] >= 0.01


def test_the_table_for_a_spreadsheet_holds_the_numbers_as_they_are() -> None:
    record = sample_training()
    rows = list(csv.DictReader(io.StringIO(training_csv(record), newline="")))
    assert list(rows[0]) == ["epoch", *MEASURES, "seconds"]
    for row, epoch in zip(rows, record["epochs"], strict=True):
        assert int(row["epoch"]) == epoch["epoch"]
        for name, value in epoch.items():
            assert row[name] == ("" if value is None else str(value))


def test_the_lines_for_a_terminal_name_every_epoch_and_the_clean_figures() -> None:
    lines = training_lines(sample_training())
    assert [line.split()[0] for line in lines[:12]] == ["epoch", *map(str, range(11))]
    assert "p(PII), clean 0.52" in lines[13]
    assert lines[-2:] == [
        SAME_CLASSIFIER,
        "TextCrafter: empirical, no formal privacy guarantee.",
    ]
    assert len(training_lines(sample_training("bare"))) == 15


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "curves.html"
    assert write_training_html(sample_training(), target) == target
    assert target.read_text(encoding="utf-8") == training_page(sample_training())
    with pytest.raises(InvalidInputError):
        write_training_html({}, target)
    assert target.read_text(encoding="utf-8") == training_page(sample_training())
    assert [path.name for path in tmp_path.iterdir()] == ["curves.html"]
