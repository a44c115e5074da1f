"""The PII classifier's held-out figures: against scikit-learn's, their intervals, warnings, groups and split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from unit.privacy.textcrafter.planted_classes import figures, planted
from vecveil.privacy.textcrafter.pii_classifier import (
    balanced_rows,
    doubts,
    fit_pii_classifier,
    measure,
    row_groups,
    split_by_group,
)


def test_a_planted_signal_is_found_and_nothing_warned_of() -> None:
    fitted = fit_pii_classifier(*planted(0, shift=8.0))
    held = figures(fitted)
    assert held.auc.value > 0.98
    assert held.accuracy.value > 0.9
    assert held.warnings == ()
    assert held.auc.low <= held.auc.value <= held.auc.high
    assert (held.auc.chance, held.accuracy.chance) == (0.5, 0.5)
    assert held.macro_f1.chance == pytest.approx(1 / 3)
    assert held.positive_f1.chance == pytest.approx(2 / 3)
    assert held.held_out_rows == 120


def test_permuted_labels_are_warned_of_and_not_refused() -> None:
    """Null: a signal is planted, then the labels are permuted; the AUC's interval lies above chance in 2.5 % of runs.

    Seeds are fixed. False failure over seeds: fewer than five of ten warn, P(Bin(10, 0.03) > 5) < 2e-7.
    Control: as planted, none warns.
    """
    warned = kept = 0
    for seed in range(10):
        X = np.concatenate(planted(seed, shift=8.0))
        mixed = np.random.default_rng(seed).permutation(X)
        told = figures(fit_pii_classifier(mixed[:300], mixed[300:], seed=seed)).warnings
        warned += any("AUC" in sentence for sentence in told)
        for sentence in told:
            assert "not above chance" in sentence
            assert sentence.endswith(".")
        kept += bool(figures(fit_pii_classifier(X[:300], X[300:], seed=seed)).warnings)
    assert warned >= 5
    assert kept == 0


def test_a_signal_turned_round_is_warned_of_too() -> None:
    """An AUC whose whole interval lies below chance is not above it."""
    rng = np.random.default_rng(0)
    logits, y = rng.standard_normal(200), np.arange(200) % 2 == 0
    told = doubts(measure(logits - 3.0 * y, y, np.arange(200), y, 0))
    assert len(told) == 2
    assert doubts(measure(logits + 3.0 * y, y, np.arange(200), y, 0)) == []


def test_figures_equal_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(150) < 0.4
    logits = rng.standard_normal(150) + y
    found = measure(logits, y, np.arange(150), np.array([True, False]), 0)
    answer = logits >= 0
    assert found["accuracy"].value == pytest.approx((answer == y).mean())
    assert found["positive_f1"].value == pytest.approx(f1_score(y, answer))
    assert found["positive_f1"].chance == pytest.approx(f1_score(y, np.ones(150)))
    assert found["macro_f1"].value == pytest.approx(f1_score(y, answer, average="macro"))
    assert found["auc"].value == pytest.approx(roc_auc_score(y, logits))
    for one in found.values():
        assert one.low < one.value < one.high
        assert one.n == 150


def test_the_larger_class_is_sampled_down() -> None:
    P, Q = planted(0, positive=100, plain=700)
    held = figures(fit_pii_classifier(P, Q))
    assert (held.positive_rows, held.plain_rows, held.used_rows) == (100, 700, 100)
    assert held.held_out_rows == 40
    rng = np.random.default_rng(0)
    for positive, plain in ((100, 700), (700, 100), (50, 50)):
        rows = balanced_rows(positive, plain, rng)
        for chosen, size in zip(rows, (positive, plain), strict=True):
            assert len(chosen) == min(positive, plain) == len(np.unique(chosen))
            assert (np.diff(chosen) > 0).all()
            assert chosen.max() < size
    assert balanced_rows(100, 700, rng)[1].max() > 100  # not the first hundred


def test_pairs_are_held_out_together() -> None:
    """Two halves of each pair nearly equal, the classes random in them: only a leak could tell them apart."""
    rng = np.random.default_rng(0)
    groups = row_groups(np.arange(200), np.arange(200), 200, 200, owner="test")
    assert groups.tolist() == [*range(200), *range(200)]
    y = np.repeat([True, False], 200)
    test = split_by_group(groups, y, 0.2, rng, owner="test")
    assert test[:200].tolist() == test[200:].tolist()
    assert test.sum() == 80
    alone = split_by_group(np.arange(400), y, 0.2, rng, owner="test")
    assert alone[:200].tolist() != alone[200:].tolist()  # control: without groups pairs are torn
    assert (alone[:200].sum(), alone[200:].sum()) == (40, 40)


def test_groups_of_plain_rows_are_those_of_the_plain_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row numbers of the sample are looked up in the right half of the groups."""
    seen: list[Any] = []

    def watch(groups: Any, *rest: Any, **options: Any) -> Any:
        seen.append(groups)
        return split_by_group(groups, *rest, **options)

    monkeypatch.setattr("vecveil.privacy.textcrafter.pii_classifier.split_by_group", watch)
    P, Q = planted(0, positive=40, plain=90)
    fit_pii_classifier(P, Q, groups_positive=np.arange(40), groups_plain=100 + np.arange(90) % 10)
    assert np.unique(seen[0][:40]).tolist() == list(range(40))
    assert np.unique(seen[0][40:]).tolist() == list(range(40, 50))


def test_rows_without_groups_stand_alone_beside_given_ones() -> None:
    numbers = row_groups(["a", "b", "a"], None, 3, 2, owner="test")
    assert numbers.tolist() == [0, 1, 0, 2, 3]
    assert row_groups(None, [7, 7], 2, 2, owner="test").tolist() == [1, 2, 0, 0]
    assert row_groups(["a", "b"], ["b", "c"], 2, 2, owner="test").tolist() == [0, 1, 1, 2]


def test_every_split_leaves_both_classes_on_both_sides() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        y = np.repeat([True, False], 20)
        for share in (0.01, 0.5, 0.99):
            test = split_by_group(np.arange(40), y, share, rng, owner="test")
            assert set(y[test]) == set(y[~test]) == {True, False}
