"""Which settings a search tries, and which of them it takes for the best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.token_data import token_data
from vecveil.auditing.metrics import SimilarityTask
from vecveil.privacy.mechanisms import NOTHING_BEFORE
from vecveil.privacy.protector import Data
from vecveil.privacy.protector.method import Aim, Scale
from vecveil.privacy.protector.methods.subspace import (
    MapFit,
    SubspaceSetting,
    _fold,
    _left_out,
    _ranked,
    first_settings,
    gentle_settings,
    second_settings,
)
from vecveil.privacy.sensitivity.concept_subspace import near_duplicate_groups


def row(
    recovered: float, rank: int, neighbours: float | None, noise: float = 0.5
) -> tuple[SubspaceSetting, dict[str, Any]]:
    return SubspaceSetting(rank, 1, 0.0, False), {
        "feasible": True,
        "recovered": recovered,
        "noise_to_signal": noise,
        "neighbours": neighbours,
        "error": 0.05,
    }


def order(*rows: tuple[SubspaceSetting, dict[str, Any]]) -> list[int]:
    return [setting.rank for setting in _ranked(dict(rows))]


def test_of_equal_settings_the_one_that_keeps_most_neighbours_is_taken() -> None:
    assert order(row(0.70, 1, 0.3), row(0.74, 2, 0.5), row(0.73, 3, 0.4)) == [2, 3, 1]
    # Control: a clear difference decides alone.
    assert order(row(0.70, 1, 0.3), row(0.80, 2, 0.5)) == [1, 2]
    # Next to no noise counts against a setting first.
    assert order(row(0.70, 1, 0.3), row(0.70, 2, 0.5, noise=0.05)) == [1, 2]
    # Too few texts for neighbours: the least leakage.
    assert order(row(0.72, 1, None), row(0.70, 2, None)) == [2, 1]


@pytest.mark.parametrize("n", [2, 5, 12, 384, 1024])
@pytest.mark.parametrize("fixed", [{}, {"rank": 1}, {"kept": 1}, {"pairs": True}, {"flattening": 0.5}])
def test_settings_fit_into_the_dimension_and_keep_what_is_fixed(n: int, fixed: dict[str, Any]) -> None:
    first = list(first_settings(n, fixed))
    assert first
    for best in first:
        for setting in (best, *second_settings(n, best, fixed)):
            assert setting.rank >= 1
            assert setting.kept >= 1
            assert setting.rank + setting.kept <= n
            assert all(getattr(setting, name) == value for name, value in fixed.items())
    gentle = gentle_settings(n, pairs=True)
    assert all(setting.rank + setting.kept <= n for setting in gentle)
    assert len(set(gentle)) == len(gentle) > 0
    if n >= 16:  # all that is not erased, about half, and few: each is the best one for some texts
        assert {n - 1, n // 2, n // 8} <= {setting.kept for setting in gentle}
    # Without labels there are only pairs.
    assert all(setting.pairs for setting in first_settings(n, {}, labels=False))


def test_more_erased_directions_may_leave_fewer_to_release() -> None:
    best = SubspaceSetting(192, 192, 0.3, False)
    assert replace(best, rank=240, kept=144) in second_settings(384, best, {})
    assert {each.kept for each in second_settings(384, best, {"kept": 192})} == {192}


@pytest.mark.slow
def test_the_fit_reports_what_is_read_of_listed_and_of_unlisted_words() -> None:
    data = token_data(800, 32, 12, dtype=float)
    report = vecveil.fit_pairs(*data.arguments(), target_utility=0.6, rank=8, kept=12).report
    tried, reader = report["search"], report["reader"]
    least = min(row["recovered"] for row in tried if row["feasible"])
    errors = {row["error"] for row in tried if row["feasible"] and row["recovered"] == least}
    assert errors == {0.0}
    for kind in ("listed", "unlisted"):
        found = reader[kind]
        assert found["low"] <= found["value"] <= found["high"]
        assert found["value"] < found["clean"] - 0.1
        assert found["chance"] < found["clean"] - 0.1
        assert found["n"] >= 20
    # A handful of labels leaves none out, and too few texts leave nothing to report on.
    few = data.labels[:, :3]
    fitted = vecveil.fit_pairs(data.positive, data.negative, few, target_utility=0.6, rank=8).report
    assert "unlisted" not in fitted["reader"]
    part = [rows[:60] for rows in data.arguments()]
    assert "reader" not in vecveil.fit_pairs(*part, target_utility=0.6, rank=8).report


def test_a_reader_learns_even_if_all_texts_are_near_each_other() -> None:
    """Some encoders put all texts into a cone, where cosines group them all as near-duplicates."""
    data = token_data(200, 24, 8, dtype=float)
    shift = 4 * data.positive.std(axis=0).sum() * np.eye(24)[0]
    near = [rows + shift for rows in (data.positive, data.negative)]
    assert near_duplicate_groups(near[0]).max() == 0
    setting: dict[str, Any] = {"rank": 1, "kept": 20, "noise_to_signal": 0.005}
    tried = vecveil.fit_pairs(*near, data.labels, **setting).report["search"]
    # Without any other text to learn from, a reader guesses the most frequent labels: 0.37.
    assert min(row["recovered"] for row in tried if row["feasible"]) > 0.8


@pytest.mark.parametrize("transplants", [False, True])
@pytest.mark.parametrize("held_by_all", [False, True])
def test_the_map_of_a_fold_knows_no_pair_of_an_unlisted_word(transplants: bool, held_by_all: bool) -> None:
    """The pairs of texts that hold column 0 also differ along the first axis, those of other texts never."""
    data = token_data(200, 16, 8, dtype=float)
    labels = data.labels.copy()
    if held_by_all:
        labels[:, 0] = 1
    positive, negative = data.positive.copy(), data.negative.copy()
    positive[:, 0] = negative[:, 0] = 0
    positive[labels[:, 0] == 1, 0] = 1
    fit = Data(positive, negative, labels)
    aim = Aim(SimilarityTask.of(positive, seed=0), Scale("noise_to_signal", 0.1), NOTHING_BEFORE, 0, False)
    assert MapFit(fit, aim, transplants=transplants).moments.C[0, 0] > 0.1  # control
    fold = _fold(fit, np.arange(150), np.array([0]))
    assert MapFit(fold, aim, transplants=transplants).moments.C[0, 0] == 0


def test_words_that_occur_together_are_left_out_together() -> None:
    labels = token_data(300, 8, 12).labels
    names = np.repeat(labels, 2, axis=1)  # columns 2i and 2i + 1: the two words of a name
    for seed in range(20):
        left_out = _left_out(names, np.random.default_rng(seed))
        assert len(left_out) == 6
        assert (left_out[::2] + 1 == left_out[1::2]).all()
        # Words that occur by themselves are left out at random, and all in one are never left out.
        assert len(_left_out(labels, np.random.default_rng(seed))) == 3
        assert not len(_left_out(np.repeat(labels[:, :1], 12, axis=1), np.random.default_rng(seed)))
