"""What findings rest on: attacks that are live on clean vectors, and shares of an excess over chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.experiment_data import small_data
from research import load_spec, run, summarise
from research.catalogue import experiment_named
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


def point(method: str, scale: str, *, dead: float, live: float, recipe: str) -> dict[str, Any]:
    """Return a record with an attack that is at chance on clean vectors."""
    attacks = {
        name: {"r_precision": {"value": value, "low": value - 0.01, "high": value + 0.01, "chance": 0.2}}
        for name, value in (("dead", dead), ("linear", live))
    }
    worst = "dead" if dead > live else "linear"
    axes = {"recipe": recipe, "lambda": 0.001} if recipe else {"encoder": "e"}
    return {
        "cell": {"problem": "p", "method": method, "scale": scale, "seed": 0, **axes},
        "found": {
            "attacks": attacks,
            "worst": worst,
            "leakage": attacks[worst]["r_precision"],
            "categories": {"city": {**attacks[worst]["r_precision"], "n": 500}},
            "utility": {"metric": "m", "value": 0.8, "relative": 0.9},
            "protector": {"mask": {"effective_dimensions": 9}},
        },
    }


@pytest.mark.parametrize("name", ["categories", "frontier", "encoders", "lambda"])
def test_an_attack_at_chance_on_clean_vectors_decides_nothing(name: str) -> None:
    """The live attack recovers the same behind every method; the dead one far more behind SPARSE."""
    leaks = {"sparse": 0.9, "laplace": 0.6, "subspace": 0.5, "purkayastha": 0.6}
    rows = [point("none", "clean", dead=0.2, live=0.8, recipe="none" if name == "lambda" else "")]
    for scale in ("effective 10", "utility 0.95"):
        for method, dead in leaks.items():
            recipe = ("published" if method == "sparse" else "fast-gates") if name == "lambda" else ""
            rows.append(point(method, scale, dead=dead, live=0.4, recipe=recipe))
    told = experiment_named(name).summary(load_spec(name)[0], Records(rows)).findings
    if name == "frontier":
        assert [(one.verdict, one.ours[:5]) for one in told] == [("disagrees", "100 %")]
    else:
        assert told
        assert not [one.claim for one in told if one.verdict in ("agrees", "disagrees")]


def test_the_data_sets_are_counted_and_stand_beside_the_papers(tmp_path: Path) -> None:
    spec = "experiment: datasets\nproblems:\n  sts12: {data: sts12, concept: {terms_file: concepts/sts_terms.json}}\n"
    (tmp_path / "spec.yaml").write_text(spec)
    run(tmp_path / "spec.yaml", small_data(tmp_path / "data"), tmp_path, workers=0, show_progress=False)
    (row,) = summarise("datasets", tmp_path)["tables"][0]["rows"]
    text = [cell if isinstance(cell, str) else cell and cell["value"] for cell in row]
    assert (text[0], text[2], text[5], text[7]) == ("sts12", 10_684, 9, 123)
    assert 0 < text[4] < text[1] <= 440
