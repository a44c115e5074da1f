"""What the method ``textcrafter`` learns from: pairs that are not torn, targets that are the plain texts'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vecveil
from harness.token_data import token_data
from vecveil.privacy.mechanisms import TextCrafter
from vecveil.privacy.textcrafter import plain_centroids
from vecveil.privacy.textcrafter.pii_classifier import balanced_rows, split_by_group

ROWS, N = 80, 12
DATA = token_data(ROWS, N, dtype=np.float64)


def _fit(**options: Any) -> TextCrafter:
    protector = vecveil.fit_pairs(*DATA.arguments(), method="textcrafter", radius=0.8, epochs=1, **options)
    assert isinstance(protector.mechanism, TextCrafter)
    return protector.mechanism


def test_targets_are_the_centroids_of_the_plain_side() -> None:
    plain = np.concatenate([DATA.negative, DATA.background])
    found = _fit(clusters=5, seed=3).centroids
    np.testing.assert_allclose(found, plain_centroids(plain, clusters=5, seed=3), atol=1e-12)
    for other in (DATA.positive, DATA.negative, np.concatenate([DATA.positive, plain])):
        assert np.abs(found - plain_centroids(other, clusters=5, seed=3)).max() > 1e-3


@pytest.mark.parametrize("groups", [None, np.arange(ROWS) // 4])
def test_no_pair_is_on_both_sides_of_the_classifiers_split(monkeypatch: pytest.MonkeyPatch, groups: Any) -> None:
    """By the rows of the arrays, whatever groups the method has made of them."""
    seen: dict[str, Any] = {}

    def balance(positive: int, plain: int, rng: Any) -> Any:
        seen["sizes"] = (positive, plain)
        seen["rows"] = balanced_rows(positive, plain, rng)
        return seen["rows"]

    def split(*given: Any, **options: Any) -> Any:
        seen["test"] = split_by_group(*given, **options)
        return seen["test"]

    where = "vecveil.privacy.textcrafter.pii_classifier"
    monkeypatch.setattr(f"{where}.balanced_rows", balance)
    monkeypatch.setattr(f"{where}.split_by_group", split)
    _fit(groups=groups)
    assert seen["sizes"] == (ROWS, ROWS + len(DATA.background))
    of_pair = np.arange(ROWS) if groups is None else groups
    positive, plain = seen["rows"]
    paired = plain < ROWS
    held = np.concatenate([seen["test"][: len(positive)], seen["test"][len(positive) :][paired]])
    pairs = np.concatenate([of_pair[positive], of_pair[plain[paired]]])
    assert paired.sum() > 20  # both halves of many pairs are in the sample
    assert 0 < held.sum() < len(held)
    assert not set(pairs[held]) & set(pairs[~held])
