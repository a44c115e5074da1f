"""What the records say: means over seeds, the paper's figures beside the right rows, claims counted."""

from __future__ import annotations

from typing import Any

import pytest

from research.catalogue.textcrafter import TextCrafterSets
from research.experiment import Records
from research.judging import Measured
from research.published import published
from research.results import ClaimFinding, Number, Table, read_experiment
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import TextCrafterSpec
from research.textcrafter.summary import LABEL, SENTENCE, _with_half
from unit.research.textcrafter.files import PROBLEMS

SPEC = TextCrafterSpec(experiment="textcrafter", problems=PROBLEMS)
NAMES = ("none", "gaussian", "textcrafter", "textcrafter-untrained", "textcrafter-12")


def _row(part: str, where: str, defence: str, found: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    cell = {"part": part, "set": where, "defence": defence, "seed": seed}
    return {"cell": cell, "found": found}


def _utility(accuracy: float, read: float = 0.3) -> dict[str, Any]:
    scenario = {"accuracy": accuracy, "macro_f1": accuracy / 2, "chance": 0.4, "macro_f1_chance": 0.2}
    keys = ("train", "test", "dropped", "classes", "tokens", "token_train", "token_test")
    return {
        "noise_norm": 1.0,
        "deployment": scenario,
        "sizes": dict.fromkeys(keys, 1000),
        "development": {**scenario, "accuracy": accuracy + 0.05},
        "token_inference": {"chance": 0.1, "attacks": {"linear": 0.2, "kernel": read}},
    }


def _sentence(bleu: float) -> dict[str, Any]:
    one = {"low": bleu - 0.01, "high": bleu + 0.02, "chance": bleu / 2}
    return {"figures": {name: {"value": bleu, **one} for name in SENTENCE}}


def _pii(defence: str) -> dict[str, Any]:
    frozen = {"p_with": 0.9, "p_without": 0.2, "auc": 0.8}
    reading = {"benchmark": frozen}
    if defence.startswith("textcrafter"):
        reading["policy"] = {name: value / 2 for name, value in frozen.items()}
    return {"frozen": reading, "probes": {"linear": 0.7, "mlp": 0.75}}


def _curve() -> dict[str, Any]:
    epochs = [
        {
            "epoch": at,
            "reward": -3 + at / 10,
            "reward_clean": -1.5,
            "p_pii": 0.25,
            "drift": 0.5,
            "cluster_distance": 0.75,
            "deterministic_share": 0.125,
            "mean_resultant": 0.625,
        }
        for at in range(11)
    ]
    return {"training": {"epochs": epochs}}


def _everything() -> Records:
    rows = [
        *(_row("curves", "pii", name, _curve()) for name in ("textcrafter", "textcrafter-untrained")),
        *(_row("pii", "pii", name, _pii(name)) for name in NAMES),
        *(_row("utility", "ade", name, _utility(0.5 + i / 10)) for i, name in enumerate(NAMES)),
        *(_row("sentences", "ade", name, _sentence(0.1 + i / 100)) for i, name in enumerate(NAMES[:4])),
    ]
    return Records(rows)


def _table(records: Records, title: str) -> Table:
    (found,) = [one for one in TextCrafterSets().summary(SPEC, records).tables if one.title == title]
    return found


def _line(table: Table, *words: str) -> dict[str, Any]:
    (found,) = [row for row in table.rows if tuple(row[: len(words)]) == words]
    return dict(zip((column.name for column in table.columns), found, strict=True))


def test_the_paper_table_has_mean_and_deviation_over_seeds_beside_published_figures() -> None:
    rows = [_row("utility", "ade", "gaussian", _utility(0.5 + seed / 10), seed) for seed in range(2)]
    rows.append(_row("sentences", "ade", "gaussian", _sentence(0.123)))
    line = _line(_table(Records(rows), "TextCrafter's Table I"), "ADE", DEFENCES["gaussian"].title)
    accuracy, later = line["Acc, deployment"], line["Acc, development"]
    assert (accuracy.value, accuracy.n) == (pytest.approx(0.55), 2)
    assert accuracy.sd == pytest.approx(0.1 / 2**0.5)
    row = published("textcrafter-table-1").find(dataset="ade", method="gaussian")
    assert row is not None
    assert accuracy.published == pytest.approx(row["accuracy"] / 100)
    assert line["BLEU"].published == pytest.approx(row["bleu"] / 100)
    assert (later.published, line["cosine"].published) == (None, None)
    assert line["BLEU"].low is None  # the intervals have a table of their own


def test_the_published_row_stands_beside_the_literal_reading() -> None:
    table = _table(_everything(), "TextCrafter's Table I")
    ours, literal = (
        _line(table, "ADE", f"{DEFENCES[name].title}; {LABEL}")["Acc, deployment"]
        for name in ("textcrafter", "textcrafter-untrained")
    )
    assert ours.published is None
    assert literal.published == 0.75
    assert not [row for row in table.rows if "12 tokens" in str(row[1])]  # a control


def test_intervals_of_the_sentence_attack_are_shown() -> None:
    line = _line(_table(_everything(), "Reconstruction with intervals"), "ADE", "none")
    bleu = line["BLEU"]
    assert isinstance(bleu, Number)
    assert (bleu.value, bleu.low, bleu.high) == (0.1, pytest.approx(0.09), pytest.approx(0.12))
    assert line["cosine"].percent is False


def test_leakage_is_that_of_the_strongest_attack_beside_chance() -> None:
    rows = [_row("utility", "ade", "none", _utility(0.5, 0.3 + seed / 10), seed) for seed in range(2)]
    table = _table(Records(rows), "Token inference and accuracy")
    found = _line(table, "none")["ADE: R-precision"]
    assert (found.value, found.sd) == (pytest.approx(0.35), pytest.approx(0.1 / 2**0.5))
    chance = _line(table, "chance")
    assert (chance["ADE: R-precision"].value, chance["ADE: Acc, deployment"].value) == (0.1, 0.4)


def test_the_two_frozen_classifiers_have_columns_of_their_own() -> None:
    table = _table(_everything(), "Whether a text holds PII")
    clean, policy = list(_line(table, "none").values()), table.rows[2]
    assert clean[1:4] == ["–"] * 3
    assert [cell.value for cell in clean[4:]] == [0.9, 0.2, 0.8, 0.75]
    assert [cell.value for cell in policy[1:4]] == [0.45, 0.1, 0.4]  # type: ignore[union-attr]


def test_learning_curves_are_shown_at_some_epochs_and_drawn_whole() -> None:
    summary = TextCrafterSets().summary(SPEC, _everything())
    table = _table(_everything(), "Learning curves")
    rewards = [(row[1], row[2].value) for row in table.rows[:5]]  # type: ignore[union-attr]
    assert rewards == [("0", -3.0), ("1", -2.9), ("2", -2.8), ("5", -2.5), ("10", -2.0)]
    (drawn,) = [one for one in summary.figures if one.title == "Learning curves: reward"]
    assert [len(one.points) for one in drawn.series] == [11, 11]


def test_accuracy_against_bleu_has_a_point_for_each_defence() -> None:
    figures = TextCrafterSets().summary(SPEC, _everything()).figures
    (drawn,) = [one for one in figures if one.title == "Accuracy against BLEU: ADE"]
    points = [(one.points[0].x, one.points[0].y) for one in drawn.series]
    assert points[0] == (pytest.approx(10), pytest.approx(50))
    assert len(points) == 4


def test_a_curve_over_the_noise_needs_two_of_its_points() -> None:
    names = ("gaussian-2", "gaussian", "gaussian-half", "textcrafter-untrained")
    rows = [_row("utility", "ade", name, _utility(0.5 + i / 10, 0.3 + i / 10)) for i, name in enumerate(names)]
    rows += [_row("sentences", "ade", names[i], _sentence(0.1 + i / 10)) for i in (0, 2, 3)]
    figures = [one for one in TextCrafterSets().summary(SPEC, Records(rows)).figures if "over r" in one.title]
    drawn = [(one.title, one.series[0]) for one in figures]
    assert [(title, one.name, [(round(p.x), round(p.y)) for p in one.points]) for title, one in drawn] == [
        ("Accuracy against BLEU over r, σ and ε: ADE", "Gaussian, over σ", [(10, 50), (30, 70)]),
        ("Accuracy against token inference over r, σ and ε: ADE", "Gaussian, over σ", [(30, 50), (40, 60), (50, 70)]),
    ]
    assert [len(one.series) for one in figures] == [1, 1]


def _finding(records: Records, words: str) -> ClaimFinding:
    found = TextCrafterSets().summary(SPEC, records).findings
    (one,) = [finding for finding in found if words in finding.claim]
    return one


def test_a_claim_is_judged_for_each_reading() -> None:
    def found(name: str, accuracy: float) -> ClaimFinding:
        rows = [
            _row("utility", where, defence, _utility(value))
            for where in ("ade", "sst2")
            for defence, value in (("gaussian", 0.5), (name, accuracy))
        ]
        return _finding(Records(rows), "more than 10 points")

    assert found("textcrafter-untrained", 0.7).verdict == "agrees"
    assert found("textcrafter-untrained", 0.55).verdict == "disagrees"
    learnt = found("textcrafter", 0.4)
    assert learnt.claim.endswith("(Reading: v learnt.)")
    assert learnt.ours == (
        "holds in 0 of 2 comparisons, contradicted in 2; in development it holds in 0 of 2 comparisons, "
        "contradicted in 2"
    )
    rows = [_row("utility", "ade", "textcrafter", _utility(0.4))]
    assert _finding(Records(rows), "lower BLEU").verdict == "not measured"


def test_a_claim_on_accuracy_that_one_scenario_contradicts_is_unclear() -> None:
    def verdict(development: float) -> str:
        rows = [
            _row("utility", where, name, _utility(0.7 if name == "textcrafter" else 0.5))
            for where in ("ade", "sst2")
            for name in ("gaussian", "textcrafter")
        ]
        for row in rows:
            row["found"]["development"]["accuracy"] = development if row["cell"]["defence"] == "textcrafter" else 0.5
        return _finding(Records(rows), "more than 10 points").verdict

    assert (verdict(0.7), verdict(0.5)) == ("agrees", "unclear")


def test_accuracy_is_judged_over_sigma_and_at_equal_leakage() -> None:
    """Noise of accuracy .8, .7, .6, .4 leaks .5, .4, .3, .22: at .35 it has .65."""
    curve = {"none": (0.8, 0.5), "gaussian-half": (0.7, 0.4), "gaussian": (0.6, 0.3), "gaussian-2": (0.4, 0.22)}

    def found(accuracy: float, read: float, words: str) -> str:
        points = curve | {"textcrafter-untrained": (accuracy, read)}
        rows = [_row("utility", w, name, _utility(*point)) for w in ("ade", "sst2") for name, point in points.items()]
        return _finding(Records(rows), words).verdict

    equal = "leaks as much"
    assert [found(value, 0.35, equal) for value in (0.75, 0.65, 0.55)] == ["agrees", "no difference", "disagrees"]
    assert found(0.9, 0.6, equal) == "agrees"  # leaks more than clean vectors, compared with these
    assert found(0.9, 0.1, equal) == "not measured"
    assert (found(0.6, 0.35, "twice the norm"), found(0.45, 0.35, "twice the norm")) == ("agrees", "disagrees")


def test_learning_is_compared_with_louder_noise_of_the_same_accuracy() -> None:
    def found(read: float, accuracy: float) -> str:
        rows = [
            _row("utility", "ade", "textcrafter", _utility(accuracy, read)),
            _row("utility", "ade", "gaussian-2", _utility(0.6, 0.4)),
        ]
        return _finding(Records(rows), "norm 2r").verdict

    assert (found(0.3, 0.6), found(0.5, 0.6), found(0.3, 0.5)) == ("agrees", "disagrees", "disagrees")


def test_the_same_within_the_error_decides_nothing_nor_does_a_decoder_at_chance() -> None:
    rows = [_row("utility", "ade", "textcrafter", _utility(0.6, 0.40))]
    rows += [_row("utility", "ade", "gaussian-2", _utility(0.6, 0.41))]
    assert _finding(Records(rows), "norm 2r").verdict == "no difference"

    def lower(clean: float) -> str:
        bleu = {"none": clean, "gaussian": 0.5, "ldp-gaussian": 0.5, "textcrafter": 0.1}
        rows = [_row("sentences", "ade", name, _sentence(value)) for name, value in bleu.items()]
        rows += [_row("utility", "ade", name, _utility(0.5)) for name in bleu]
        return _finding(Records(rows), "lower BLEU").verdict

    assert (lower(0.6), lower(0.01)) == ("agrees", "not measured")


def test_a_share_of_one_seed_has_the_half_interval_of_its_rows() -> None:
    assert _with_half(Measured({0: 20.0}), 400).half == pytest.approx(100 * 1.96 * (0.2 * 0.8 / 400) ** 0.5)


def test_a_larger_radius_is_judged_step_by_step() -> None:
    names = ("textcrafter-embedding-half", "textcrafter-embedding", "textcrafter-embedding-2")
    rows = [_row("utility", "ade", name, _utility(0.8 - i / 5, 0.3)) for i, name in enumerate(names)]
    assert _finding(Records(rows), "the fewer words").verdict == "no difference"
    assert _finding(Records(rows), "the less accurate").verdict == "agrees"


def test_textcrafter_is_nowhere_without_its_label() -> None:
    for table in TextCrafterSets().summary(SPEC, _everything()).tables:
        words = [str(cell) for row in table.rows for cell in row if isinstance(cell, str)]
        named = [word for word in words if "TextCrafter" in word]
        assert named or table.title == "Sets", table.title
        assert all(LABEL in word for word in named), table.title


@pytest.mark.parametrize("records", [_everything(), Records([])])
def test_the_summary_is_a_record_that_the_report_reads(records: Records) -> None:
    summary = TextCrafterSets().summary(SPEC, records)
    parts = {key: [part.to_record() for part in getattr(summary, key)] for key in ("tables", "figures", "findings")}
    record = {
        "schema": "vecveil.experiment/1",
        "name": "textcrafter",
        "what": "w",
        "source": "s",
        "vecveil": "0",
        "created": "2026-01-01T00:00:00+00:00",
        "commits": [],
        "command": "c",
        "quick": False,
        "machine": {},
        "cells": {"asked": 1, "measured": 1, "failed": 0},
        "seconds": 1.0,
        "notes": list(summary.notes),
        **parts,
    }
    read = read_experiment(record, owner="test")
    assert len(read.tables) == (6 if len(records) else 0)
    assert SPEC.digest
