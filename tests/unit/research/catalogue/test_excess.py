"""Shares of another method's excess over chance: told only where there is an excess."""

from __future__ import annotations

import math

import pytest

from research.experiment import Records
from research.tables import excess_ratio


def records(sparse: float, subspace: float) -> Records:
    cells = {"sparse": sparse, "subspace": subspace}
    return Records(
        [
            {
                "cell": {"problem": "p", "method": method, "scale": "utility 0.95", "seed": 0},
                "found": {"leakage": {"value": value, "chance": 0.2}},
            }
            for method, value in cells.items()
        ]
    )


def ratio(sparse: float, subspace: float) -> float:
    return excess_ratio(records(sparse, subspace), "p", "subspace", "sparse", "utility 0.95")


def test_a_share_of_the_excess() -> None:
    assert ratio(0.6, 0.3) == pytest.approx(0.25)
    assert ratio(0.6, 0.1) < 0


@pytest.mark.parametrize("sparse", [0.2, 0.1])
def test_nothing_is_a_share_of_no_excess(sparse: float) -> None:
    assert math.isnan(ratio(sparse, 0.3))
