"""The learning curve and its forecast."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit

from vecveil.auditing.attacks import FurtherVectors, LabelledVectors
from vecveil.auditing.records.audit_record import LearningPoint
from vecveil.auditing.result import forecast


def _curve(*values: float, half: float = 0.02) -> list[LearningPoint]:
    return [LearningPoint(500 * 2**i, v, v - half, v + half) for i, v in enumerate(values)]


@pytest.mark.parametrize(("start", "slope"), [(-2.0, 0.3), (0.0, 0.2), (-1.0, 0.0)])
def test_the_forecast_continues_the_logit_and_lets_doublings_teach_less(start: float, slope: float) -> None:
    curve = _curve(*(float(expit(start + slope * i)) for i in range(4)))
    ahead = forecast(curve)
    assert ahead is not None
    assert ahead.texts == 40_000
    assert ahead.value == pytest.approx(expit(start + slope * (3 + 0.9)))
    assert ahead.low < curve[-1].value < ahead.high
    assert ahead.low < ahead.value < ahead.high
    assert ahead.high > expit(start + slope * (3 + np.log2(10)))
    wider = forecast(_curve(*(point.value for point in curve), half=0.04))
    assert wider is not None
    assert wider.high - wider.low > ahead.high - ahead.low


def test_more_texts_never_tell_less_and_two_points_tell_nothing() -> None:
    ahead = forecast(_curve(0.42, 0.41, 0.4, 0.39))
    assert ahead is not None
    assert ahead.value >= 0.39
    assert forecast(_curve(0.3, 0.4)) is None


def test_parts_are_nested_by_group_and_keep_what_was_made_from_their_texts() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 2)
    made = np.concatenate([groups, np.full(100, -1)])
    further = FurtherVectors(rng.standard_normal((180, 3)), np.ones((180, 2)), np.ones(180), made)
    whole = LabelledVectors(rng.standard_normal((80, 3)), np.ones((80, 2)), groups, further=further)
    assert whole.texts_known == 180
    parts = [whole.part(share, seed=1) for share in (1 / 8, 1 / 4, 1 / 2, 1)]
    assert [len(part) for part in parts] == [10, 20, 40, 80]
    for smaller, larger in itertools.pairwise(parts):
        assert set(np.unique(smaller.groups)) < set(np.unique(larger.groups))
    for part in parts:
        assert part.further is not None
        assert set(np.unique(part.further.groups)) == {-1, *np.unique(part.groups)}
    assert parts[-1].texts_known == 180
