"""The papers' figures as data: as many as are printed, where they are printed, and with no two for one cell."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import raises
from research.judging import Measured, Order, Tally, Trend, compare, verdict, within
from research.published import TABLES, claims, published

ROWS = {
    "sparse-table-1": 32,  # 2 data sets x (5 epsilons x 3 methods + unprotected)
    "sparse-table-2": 21,
    "sparse-table-3": 32,
    "sparse-table-4": 30,
    "sparse-table-5": 15,
    "sparse-table-6": 8,
    "sparse-table-7": 64,
    "sparse-table-8": 12,
    "sparse-table-9": 10,
    "sparse-table-10": 50,
    "sparse-table-11": 3,
    "sparse-table-12": 8,
    "sparse-appendix-a": 2,
    "sparse-training-time": 2,
    "textcrafter-table-1": 20,
    "textcrafter-fig-3": 2,
}
SPOTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "sparse-table-1",
        {"dataset": "sts12", "epsilon": 10, "method": "sparse"},
        {"leakage": 19.31, "leakage_sd": 0.21, "confidence": 8.91, "confidence_sd": 0.12, "utility": 65.27},
    ),
    (
        "sparse-table-1",
        {"dataset": "fiqa", "epsilon": 20, "method": "purkayastha"},
        {"leakage": 55.38, "leakage_sd": 1.26, "confidence": 35.25, "utility": 32.23, "utility_sd": 0.13},
    ),
    (
        "sparse-table-1",
        {"dataset": "fiqa", "epsilon": math.inf},
        {"method": "none", "leakage": 77.35, "leakage_sd": None, "confidence": 54.48, "utility": 33.56},
    ),
    (
        "sparse-table-2",
        {"attack": "geia", "epsilon": 10, "method": "laplace"},
        {"leakage": 20.60, "leakage_change": -18.71},
    ),
    ("sparse-table-2", {"attack": "mlc", "epsilon": math.inf}, {"leakage": 53.20}),
    ("sparse-table-3", {"dataset": "mimic-iii", "category": "disease", "method": "purkayastha"}, {"leakage": 22.86}),
    ("sparse-table-3", {"dataset": "pii-masking-300k", "category": "country", "method": "none"}, {"leakage": 84.07}),
    (
        "sparse-table-4",
        {"dataset": "fiqa", "epsilon": 10, "method": "sparse-whitebox"},
        {"leakage": 22.35, "utility": 26.46},
    ),
    ("sparse-table-5", {"group": "gender", "tokens": "similar"}, {"leakage_change": -40.5}),
    ("sparse-table-6", {"dataset": "nfcorpus"}, {"metric": "ndcg@10", "sentences": 2590, "mean_words": 3.31}),
    ("sparse-table-6", {"dataset": "sts12"}, {"metric": "pearson", "entities": 123}),
    (
        "sparse-table-7",
        {"dataset": "quora", "epsilon": 20, "method": "laplace"},
        {"leakage": 75.56, "confidence": 50.87, "utility": 82.79},
    ),
    (
        "sparse-table-7",
        {"dataset": "sts14", "epsilon": 30, "method": "sparse"},
        {"leakage": 14.70, "confidence": 32.95, "utility": 79.37},
    ),
    (
        "sparse-table-8",
        {"encoder": "sentence-t5", "method": "sparse"},
        {"leakage": 22.38, "leakage_sd": 0.44, "utility": 74.45},
    ),
    (
        "sparse-table-9",
        {"dataset": "fiqa", "method": "replace-semantic"},
        {"leakage": None, "utility": 18.37, "rate": 5.09},
    ),
    ("sparse-table-10", {"dataset": "fiqa", "lambda": 5e-4, "epsilon": 30}, {"leakage": 67.28, "utility": 29.84}),
    ("sparse-table-11", {"method": "purkayastha"}, {"microseconds": 33200}),
    ("sparse-table-12", {"concept": "disease", "method": "laplace"}, {"semantic": 0.23, "hidden": False}),
    ("sparse-appendix-a", {"decile": "top"}, {"sensitivity": 0.04}),
    ("sparse-training-time", {"samples": 10000}, {"minutes": 25.3}),
    (
        "textcrafter-table-1",
        {"dataset": "ade", "method": "ldp-gaussian"},
        {"bleu": 9.10, "token_f1": 4.46, "exact_match": 0, "rouge_l": 4.42, "macro_f1": 44.44, "accuracy": 62.0},
    ),
    (
        "textcrafter-table-1",
        {"dataset": "agnews", "method": "textcrafter"},
        {"bleu": 1.88, "token_f1": 16.63, "rouge_l": 7.43, "macro_f1": 65.10, "accuracy": 74.50},
    ),
]


def test_every_table_of_both_papers_is_there() -> None:
    assert set(ROWS) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_and_its_figures_are_possible(name: str) -> None:
    table = published(name)
    assert len(table.rows) == ROWS[name]
    cells = [tuple(row[key] for key in table.keys) for row in table.rows]
    assert len(set(cells)) == len(cells)
    assert {"encoder", "attack", "data", "runs"} <= set(table.setting)
    for row in table.rows:
        assert tuple(row) == tuple(table.columns)
        for key, column in table.columns.items():
            if column.key or column.text or row[key] is None:
                continue
            assert isinstance(row[key], int | float)
            assert column.low <= row[key] <= column.high, (key, row)
            if column.unit == "%":
                assert column.low >= -100
                assert column.high <= 100


@pytest.mark.parametrize(("name", "keys", "figures"), SPOTS)
def test_figures_stand_where_the_paper_prints_them(name: str, keys: dict[str, Any], figures: dict[str, Any]) -> None:
    row = published(name).find(**keys)
    assert row is not None
    assert {key: row[key] for key in figures} == figures


def test_relative_figures_are_those_of_the_absolute_ones() -> None:
    table = published("sparse-table-2")
    for row in table.rows:
        clean = table.find(attack=row["attack"], method="none")
        assert clean is not None
        if row["leakage_change"] is not None:
            change = 100 * (row["leakage"] / clean["leakage"] - 1)
            assert row["leakage_change"] == pytest.approx(change, abs=0.011)


def test_trade_off_rates_are_those_of_the_figures_where_the_notes_do_not_say_otherwise() -> None:
    table = published("sparse-table-9")
    off = []
    for row in table.rows:
        clean = table.find(dataset=row["dataset"], method="none")
        assert clean is not None
        if row["rate"] is not None:
            rate = (clean["leakage"] - (row["leakage"] or 0)) / (clean["utility"] - row["utility"])
            if row["rate"] != pytest.approx(rate, abs=0.011):
                off.append((row["dataset"], row["method"], round(rate, 2)))
    assert off == [("sts12", "redact", 4.07), ("sts12", "replace-random", 4.37), ("sts12", "replace-semantic", 6.14)]
    assert "4.07, 4.37, 6.14" in table.notes[1]


def test_the_same_setting_has_the_same_mean_in_every_table() -> None:
    first = published("sparse-table-1")
    for row in published("sparse-table-4").rows:
        if row["method"] != "sparse-whitebox":
            same = first.find(**{key: row[key] for key in ("dataset", "epsilon", "method")})
            assert same is not None
            assert (same["leakage"], same["utility"]) == (row["leakage"], row["utility"])
    for row in published("sparse-table-10").rows:
        if row["lambda"] == 1e-3:
            same = first.find(dataset=row["dataset"], epsilon=row["epsilon"], method="sparse")
            assert same is not None
            assert (same["leakage"], same["utility"]) == (row["leakage"], row["utility"])
    for row in published("sparse-table-2").rows:
        if row["attack"] == "vec2text":
            same = first.find(dataset="sts12", epsilon=row["epsilon"], method=row["method"])
            assert same is not None
            assert same["leakage"] == row["leakage"]
    for row in published("sparse-table-8").rows:
        if row["encoder"] == "gtr-base":
            same = first.find(dataset="sts12", epsilon=row["epsilon"], method=row["method"])
            assert same is not None
            assert (same["leakage"], same["utility"]) == (row["leakage"], row["utility"])


def test_means_lie_where_the_text_says() -> None:
    """From 60 % to 19 % at epsilon 10; 88 % to 28 % of sex; utility 65 % against 60 %; at least 74 % accuracy."""
    table = published("sparse-table-1")
    clean = table.find(dataset="sts12", epsilon=math.inf)
    ours = table.find(dataset="sts12", epsilon=10, method="sparse")
    theirs = table.find(dataset="sts12", epsilon=10, method="laplace")
    assert clean is not None
    assert ours is not None
    assert theirs is not None
    assert (round(clean["leakage"]), round(ours["leakage"])) == (60, 19)
    assert (int(ours["utility"]), int(theirs["utility"])) == (65, 60)
    sexes = [row for row in published("sparse-table-3").rows if row["category"] == "sex"]
    assert [int(r["leakage"]) for r in sexes if r["dataset"] == "mimic-iii"] == [88, 43, 43, 28]
    crafted = [r for r in published("textcrafter-table-1").rows if r["method"] == "textcrafter"]
    assert min(row["accuracy"] for row in crafted) > 70
    assert max(row["bleu"] for row in crafted) < 3
    assert max(row["rouge_l"] for row in crafted) < 15


def test_notes_name_what_the_tables_contradict() -> None:
    """Each is recomputed: where a note says that a claim fails in the paper's own table, it fails there."""
    broken = {claim.id: claim.published_tally() for claim in claims()}
    assert {cell["dataset"] for cell in broken["sparse-leaks-less"].broken} == {"sts14"}
    assert {cell["epsilon"] for cell in broken["sparse-leaks-less"].broken} == {20, 30, 40}
    utility = {(cell["dataset"], cell["epsilon"]) for cell in broken["sparse-keeps-utility"].broken}
    assert utility == {("sts12", 30), ("sts12", 40), ("sts14", 30), ("sts14", 40), ("nfcorpus", 5), ("nfcorpus", 40)}
    whitebox = {(c["dataset"], c["epsilon"]) for c in broken["whitebox-keeps-utility"].broken}
    assert whitebox == {("sts12", 40), ("fiqa", 5), ("fiqa", 30), ("fiqa", 40)}
    assert broken["larger-lambda-leaks-less"].held == 40
    assert broken["smaller-lambda-leaks-less"].held == 0
    assert broken["noise-hurts-generative-attacks-more"].held == 7
    assert [c["dataset"] for c in broken["textcrafter-is-more-accurate"].broken] == ["sst2"]
    assert broken["textcrafter-has-lower-bleu"].held == 5
    assert (broken["vec2text-is-the-strongest"].held, broken["vec2text-is-the-strongest"].against) == (5, 9)
    assert {cell["dataset"] for cell in broken["words-of-a-kind-keep-more"].broken} == {"fiqa"}
    assert broken["sparse-hides-the-word"].held == 2
    for number in (2, 4, 7, 10):
        assert published(f"sparse-table-{number}").notes
    assert published("textcrafter-table-1").notes


def test_a_claim_names_figures_that_its_tables_hold_and_an_experiment() -> None:
    known = {
        "tradeoff",
        "attacks",
        "categories",
        "whitebox",
        "concept-groups",
        "encoders",
        "pii-transforms",
        "lambda",
        "latency",
        "case-study",
        "sensitivity",
        "textcrafter",
    }
    assert {claim.experiment for claim in claims()} == known
    assert len({claim.id for claim in claims()}) == len(claims())
    for claim in claims():
        for name in claim.tables:
            assert claim.compare.figure in published(name).columns
            assert published(name).paper == claim.paper
        bare = "Corollary" in claim.source or claim.id in {
            "masks-of-related-words-overlap",
            "top-decile-is-sensitive",
            "bottom-decile-is-not",
            "textcrafter-is-more-accurate-than-twice-the-noise",
            "textcrafter-is-more-accurate-at-equal-leakage",
        }
        assert (claim.published_tally().cells == 0) == bare
    assert [claim.id for claim in claims("whitebox")] == [
        "whitebox-leaks-less",
        "whitebox-keeps-utility",
        "sparse-leaks-as-the-white-box",
        "sparse-keeps-as-the-white-box",
    ]


def test_an_order_is_counted_cell_by_cell_and_lacking_figures_are_no_cell() -> None:
    rows = [
        {"data": "a", "method": "x", "value": 1.0},
        {"data": "a", "method": "y", "value": 2.0},
        {"data": "b", "method": "x", "value": 3.0},
        {"data": "b", "method": "y", "value": 2.5},
        {"data": "c", "method": "x", "value": 1.0},
        {"data": "c", "method": "y", "value": None},
        {"data": "d", "method": "x", "value": 1.0},
    ]
    order = Order("value", {"method": "x"}, {"method": ["y"]}, "lower")
    tally = order.tally(rows, ("data", "method"))
    assert (tally.held, tally.cells) == (1, 2)
    assert tally.broken == ({"data": "b", "method": ("x", "y")},)
    for settings, held in (
        ({"expect": "lower", "by": 1.5}, 0),
        ({"expect": "lower", "times": 1.25}, 2),
        ({"expect": "higher"}, 1),
    ):
        other = Order("value", {"method": "x"}, {"method": "y"}, **settings)  # type: ignore[arg-type]
        assert other.tally(rows, ("data", "method")).held == held
    equal = [dict(row, value=1.0) for row in rows]
    assert order.tally(equal, ("data", "method")).held == 0


def test_a_trend_is_counted_step_by_step() -> None:
    rows = [{"k": k, "data": d, "value": v} for d in "ab" for k, v in ((3, 1.0), (1, 5.0), (2, 2.0))]
    assert Trend("value", "k", "falling").tally(rows, ("k", "data")).held == 4
    tally = Trend("value", "k", "rising").tally(rows, ("k", "data"))
    assert (tally.held, tally.cells) == (0, 4)
    assert tally.broken[0] == {"data": "a", "k": (1, 2)}


def seeds(*values: float, half: float = 0.0) -> Measured:
    return Measured(dict(enumerate(values)), half)


@pytest.mark.parametrize(
    ("one", "other", "options", "outcome"),
    [
        (seeds(60.0, 62.0, 58.0), seeds(60.0001, 62.0001, 58.0001), {}, 0),  # always lower, by nothing
        (seeds(60.0, 62.0, 58.0), seeds(61.0, 63.1, 59.0), {}, -1),  # paired: the splits differ more than the methods
        (seeds(60.0, 62.0, 58.0), seeds(61.0, 60.0, 59.5), {}, 0),
        (seeds(60.0, half=3.0), seeds(64.0, half=3.0), {}, 0),
        (seeds(60.0, half=2.0), seeds(64.0, half=2.0), {}, -1),
        (seeds(60.0, half=2.0), seeds(64.0, half=2.0), {"by": -10.0}, 1),
        (seeds(60.0, half=3.0), seeds(50.0), {"times": 1.25}, 0),
        (seeds(60.0, 61.0, 62.0), 50.0, {}, 1),
        (19.31, 19.32, {}, -1),  # printed figures have no interval
    ],
)
def test_a_difference_counts_beyond_its_interval(
    one: Measured | float, other: Measured | float, options: dict[str, float], outcome: int
) -> None:
    assert compare(one, other, **options) == outcome


@pytest.mark.parametrize(
    ("held", "against", "cells", "told"),
    [
        (0, 0, 0, "not measured"),
        (1, 0, 1, "unclear"),
        (8, 0, 10, "agrees"),
        (7, 3, 10, "unclear"),
        (4, 5, 10, "disagrees"),
        (1, 0, 50, "no difference"),
        (0, 0, 4, "no difference"),
    ],
)
def test_a_verdict_is_what_the_comparisons_show(held: int, against: int, cells: int, told: str) -> None:
    assert verdict(Tally(held, against, cells)) == told


def test_a_verdict_rests_on_the_fewest_seeds_that_a_comparison_shares() -> None:
    order = Order("leakage", {"method": "sparse"}, {"method": "laplace"}, "lower")

    def tally(*laplace: Measured | float) -> int:
        rows = [{"cell": i, "method": "laplace", "leakage": one} for i, one in enumerate(laplace)]
        rows += [{"cell": i, "method": "sparse", "leakage": seeds(1.0, 2.0, 3.0)} for i in range(len(laplace))]
        return order.tally(rows, ("cell", "method")).seeds

    assert tally(seeds(1.0, 2.0, 3.0)) == tally(4.0) == 3
    assert tally(seeds(1.0, 2.0, 3.0), Measured({2: 1.0, 7: 1.0})) == 1
    assert tally(Measured({"word": 1.0}, pooled=5)) == 3
    assert (
        Order("leakage", {"m": 1}, {"m": 2}, "lower").tally([{"m": 1, "leakage": 1}, {"m": 2, "leakage": 2}], "m").seeds
        == 0
    )


def test_a_bound_is_unclear_where_the_interval_holds_it() -> None:
    assert within(seeds(20.0, 21.0, 20.5), most=22) == "agrees"
    assert within(seeds(20.0, 24.0, 20.5), most=22) == "unclear"
    assert within(seeds(24.0, 25.0, 24.5), least=1, most=22) == "disagrees"


def test_what_is_not_there_is_said_in_one_sentence_and_tables_cannot_be_changed() -> None:
    with raises("E-INPUT", "table"):
        published("sparse-table-13")
    table = published("sparse-table-1")
    assert table.find(dataset="sts12", epsilon=7) is None
    with raises("E-INPUT", "data"):
        table.find(data="sts12")
    with pytest.raises(TypeError):
        table.rows[0]["leakage"] = 0  # type: ignore[index]
    assert table.source == "SPARSE, Table 1"
    assert published("sparse-appendix-a").source == "SPARSE, appendix A"
