"""Shares of another method's excess over chance: told only where there is an excess."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiment_data import small_data
from research import run, summarise
from research.experiment import Records
from research.tables import excess_shares


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


@pytest.mark.parametrize(
    ("sparse", "subspace", "shares"), [(0.6, 0.3, [0.25]), (0.6, 0.1, [-0.25]), (0.2, 0.3, []), (0.1, 0.3, [])]
)
def test_a_share_is_of_an_excess(sparse: float, subspace: float, shares: list[float]) -> None:
    rows = records(sparse, subspace)
    assert excess_shares(rows.where(method="subspace"), rows.where(method="sparse")) == pytest.approx(shares)


def test_the_data_sets_are_counted_and_stand_beside_the_papers(tmp_path: Path) -> None:
    spec = "experiment: datasets\nproblems:\n  sts12: {data: sts12, concept: {terms_file: concepts/sts_terms.json}}\n"
    (tmp_path / "spec.yaml").write_text(spec)
    run(tmp_path / "spec.yaml", small_data(tmp_path / "data"), tmp_path, workers=0, show_progress=False)
    (row,) = summarise("datasets", tmp_path)["tables"][0]["rows"]
    text = [cell if isinstance(cell, str) else cell and cell["value"] for cell in row]
    assert (text[0], text[2], text[5], text[7]) == ("sts12", 10_684, 9, 123)
    assert 0 < text[4] < text[1] <= 440
