"""Vectors that the curves are measured on: whole groups, none of which the policy learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import raises
from unit.privacy.textcrafter.planted_policy import centroids, classifier, column, settings, vectors
from vecveil.privacy.textcrafter import TrainedPolicy, train_policy
from vecveil.privacy.textcrafter.policy_gradient import PolicyGradient, group_numbers, hold_out

PAIRS = np.tile(np.arange(100), 2)


def _split(rows: int, groups: Any, seed: int = 0) -> tuple[Any, Any]:
    return hold_out(rows, groups, torch.Generator().manual_seed(seed))


def _trained(groups: Any, **options: Any) -> TrainedPolicy:
    return train_policy(
        vectors(), classifier(), centroids(), settings(epochs=1), groups=groups, show_progress=False, **options
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_on_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for groups in (PAIRS, rng.integers(0, 30, 200), np.sort(rng.integers(0, 60, 200))):
        groups = np.unique(groups, return_inverse=True)[1]
        out, learnt = _split(200, groups, seed)
        assert sorted([*out, *learnt]) == list(range(200))
        assert not set(groups[out]) & set(groups[learnt])
        assert 15 <= len(out) <= 20
    out, learnt = _split(200, None, seed)
    assert (len(out), set(PAIRS[out]) & set(PAIRS[learnt]) != set()) == (20, True)  # the control


def test_groups_of_one_row_are_as_none_given() -> None:
    for ours, theirs in zip(_split(200, None), _split(200, np.arange(200)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    alone, none = _trained([f"{i:03}" for i in range(200)]), _trained(None)
    for name, array in none.weights.arrays.items():
        np.testing.assert_array_equal(array, alone.weights.arrays[name])
    pairs = _trained(PAIRS).weights.arrays  # the control: another split, other weights
    assert not np.array_equal(pairs["mean.head.weight"], none.weights.arrays["mean.head.weight"])
    assert column(none.curves, "reward").tolist() == column(alone.curves, "reward").tolist()


def test_where_no_group_fits_the_least_is_held_out() -> None:
    out, learnt = _split(200, np.repeat([0, 1, 2], [90, 40, 70]))
    assert sorted(out) == list(range(90, 130))
    assert len(learnt) == 160
    out, learnt = _split(2, np.array([1, 0]))
    assert (len(out), len(learnt)) == (1, 1)


def test_at_most_two_thousand_are_held_out() -> None:
    assert len(_split(30_000, None)[0]) == 2000
    assert len(_split(30_000, np.arange(30_000) // 2)[0]) == 2000
    assert len(_split(30_000, np.arange(30_000) // 3)[0]) == 1998


def test_the_policy_learns_from_no_row_of_a_group_held_out() -> None:
    X = vectors()
    groups = group_numbers(PAIRS, 200, owner="test")
    learner = PolicyGradient(X, classifier(), centroids(), settings(), 0, groups)
    place = {row.tobytes(): at for at, row in enumerate(X)}
    sides = [
        {int(PAIRS[place[row.numpy().tobytes()]]) for row in side} for side in (learner._held_out, learner._vectors)
    ]
    assert (len(sides[0]), len(sides[1])) == (10, 90)
    assert not sides[0] & sides[1]
    wanted = [centroids()[np.argmax(centroids() @ row)] for row in learner._held_out.numpy()]
    np.testing.assert_allclose(learner._held_out_targets.numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize(
    "groups", [PAIRS[:-1], np.zeros((200, 1), dtype=int), ["a"] * 200], ids=["too few", "a table", "one group"]
)
def test_groups_that_are_refused(groups: Any) -> None:
    with raises("E-INPUT", "groups"):
        _trained(groups)


def test_a_checkpoint_of_other_groups_is_refused(tmp_path: Path) -> None:
    _trained(PAIRS, checkpoint=tmp_path)
    _trained([f"pair {i}" for i in PAIRS + 100], checkpoint=tmp_path)  # other names, the same groups
    for other in (None, np.arange(200) // 2):
        with raises("E-CHECKPOINT", "checkpoint"):
            _trained(other, checkpoint=tmp_path)
