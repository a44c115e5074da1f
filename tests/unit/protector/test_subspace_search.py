"""Which settings a search tries, and which of them it takes for the best."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vecveil.protector.methods.subspace import (
    SubspaceSetting,
    _ranked,
    fourth_settings,
    third_settings,
)

LABELS = np.repeat([1, 0], 50)[:, None]  # the standard error of an area of 0.7 is 0.052


def row(recovered: float, rank: int, kept: int, noise: float = 0.5) -> dict[str, Any]:
    return {
        "feasible": True, "recovered": recovered, "noise_to_signal": noise, "rank": rank,
        "kept": kept,
    }  # fmt: skip


def order(*rows: dict[str, Any]) -> list[tuple[int, int]]:
    return [(found["rank"], found["kept"]) for found in _ranked(list(rows), LABELS)]


def test_of_equal_settings_the_one_that_releases_least_is_taken() -> None:
    assert order(row(0.70, 9, 96), row(0.74, 3, 24), row(0.73, 5, 24))[0] == (5, 24)
    # Control: a clear difference decides alone.
    assert order(row(0.70, 9, 96), row(0.80, 3, 24))[0] == (9, 96)
    # Next to no noise counts against a setting first.
    assert order(row(0.70, 9, 96), row(0.70, 3, 24, noise=0.05))[0] == (9, 96)


@pytest.mark.parametrize("n", [2, 5, 12, 384, 1024])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_steps_release_less_and_fit_into_the_dimension(n: int, share: float) -> None:
    best = SubspaceSetting(max(1, round(n * share)), max(1, n // 3), 0.9, True)
    for setting in third_settings(n, best):
        assert 1 <= setting.rank <= best.rank
        assert 1 <= setting.kept < best.kept
        assert setting.rank + setting.kept <= n
        assert (setting.flattening, setting.pairs) == (0.9, True)
    if n == 384:
        assert [s.kept for s in third_settings(n, best)] == [48, 32, 24]


@pytest.mark.parametrize("n", [2, 5, 12, 384, 1024])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_a_readers_directions_are_part_of_the_erased_ones(n: int, share: float) -> None:
    rank = min(n - 1, max(1, round(n * share)))
    best = SubspaceSetting(rank, max(1, min(n - rank, n // 3)), 0.9, False)
    found = list(fourth_settings(n, best, {}))
    for setting in found:
        assert 1 <= setting.gradients < setting.rank
        assert setting.kept >= 1
        assert setting.rank + setting.kept <= n
        assert not setting.pairs
        assert SubspaceSetting.of(vars(setting) | {"recovered": 0.1}) == setting
    # What the caller fixes is left alone.
    for setting in fourth_settings(n, best, {"rank": rank}):
        assert (setting.rank, setting.kept, setting.flattening) == (rank, best.kept, 0.9)
    assert len(found) == (2 if n >= 384 and rank > 1 else len(found))


def test_of_equal_settings_one_with_a_readers_directions_is_taken() -> None:
    plain, read = row(0.70, 9, 96), row(0.72, 7, 96) | {"gradients": 2}
    assert order(plain, read)[0] == (7, 96)
    # Control: not where it clearly leaks more, nor where it releases more.
    assert order(plain, read | {"recovered": 0.80})[0] == (9, 96)
    assert order(plain, read | {"kept": 97})[0] == (9, 96)
