"""Shares of another method's excess over chance: told only where there is an excess."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.experiment_data import small_data
from research import run, summarise
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


def test_the_data_sets_are_counted_and_stand_beside_the_papers(tmp_path: Path) -> None:
    spec = "experiment: datasets\nproblems:\n  sts12: {data: sts12, concept: {terms_file: concepts/sts_terms.json}}\n"
    (tmp_path / "spec.yaml").write_text(spec)
    run(tmp_path / "spec.yaml", small_data(tmp_path / "data"), tmp_path, workers=0, show_progress=False)
    (row,) = summarise("datasets", tmp_path)["tables"][0]["rows"]
    text = [cell if isinstance(cell, str) else cell and cell["value"] for cell in row]
    assert (text[0], text[2], text[5], text[7]) == ("sts12", 10_684, 9, 123)
    assert 0 < text[4] < text[1] <= 440
