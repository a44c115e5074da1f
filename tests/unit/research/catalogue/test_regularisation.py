"""λ: every mask is trained with the λ of its cell, and the summary says which direction holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.experiment_data import summary_of
from research import load_spec, run
from research.catalogue import experiment_named
from research.experiment import Records
from vecveil.errors import DataFileError

SPEC = """
experiment: lambda
encoder: {encoder}
attacks: [linear]
stability_seeds: 1
recipes:
  published: {{lambdas: [0.01, 0.0001], scales: [effective 10], options: {{epochs: 2}}}}
  fast-gates:
    options: {{gate_learning_rate: 0.2, epochs: 40}}
    lambdas: [0.15, 0.001]
    scales: [effective 10]
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


@pytest.fixture(scope="module")
def out(data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lambda")
    (folder / "spec.yaml").write_text(SPEC.format(encoder=encoder))
    outcome = run(folder / "spec.yaml", data, folder / "out", workers=0)
    assert not outcome.failed
    return folder / "out"


def test_each_mask_has_the_lambda_of_its_cell(out: Path) -> None:
    lines = (out / "lambda" / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 5
    for record in records[1:]:
        parameters = record["found"]["protector"]["parameters"]
        assert parameters["regularisation"] == record["cell"]["lambda"]
    zeros = {
        record["cell"]["lambda"]: record["found"]["protector"]["mask"]["zeros"]
        for record in records
        if record["cell"]["recipe"] == "fast-gates"
    }
    assert zeros[0.15] > zeros[0.001]  # the larger penalty closes more gates


def test_the_table_stands_beside_the_papers(out: Path) -> None:
    record = summary_of("lambda", out)
    points, masks = record["tables"]
    # Of so few texts no figure stands beside a published one.
    assert [row[3]["published"] for row in points["rows"]] == [None] * 5
    assert len(masks["rows"]) == 4
    assert any("caption says that a smaller lambda" in note for note in record["notes"])


def made(leaks: dict[float, float]) -> Records:
    """Return records of one scale in which each λ leaks so much."""

    def row(recipe: str, weight: float, value: float) -> dict[str, Any]:
        mask = {"mean": 0.5, "sd": 0.0, "density": 1, "zeros": 0, "effective_dimensions": 9}
        axes = {"problem": "sts12", "recipe": recipe, "lambda": weight, "scale": "effective 10", "seed": 0}
        figure = {"value": value, "low": value, "high": value, "chance": 0.1}
        found = {
            "leakage": figure,
            "attacks": {"linear": {"r_precision": figure}},
            "utility": {"value": 0.5, "low": 0.5, "high": 0.5, "relative": 0.7},
            "protector": {"mask": mask},
        }
        return {"cell": axes, "found": found}

    clean = row("none", 0.0, 0.6)
    clean["cell"]["scale"] = "clean"
    return Records([clean, *(row("published", weight, value) for weight, value in leaks.items())])


@pytest.mark.parametrize(
    ("leaks", "larger", "smaller", "decides"),
    [
        ({0.01: 0.1, 0.005: 0.2, 0.001: 0.3, 0.0005: 0.4, 0.0001: 0.5}, "agrees", "disagrees", "agrees"),
        ({0.01: 0.5, 0.005: 0.4, 0.001: 0.3, 0.0005: 0.2, 0.0001: 0.1}, "disagrees", "agrees", "agrees"),
        (
            {0.01: 0.3, 0.005: 0.300001, 0.001: 0.300002, 0.0005: 0.300003, 0.0001: 0.300004},
            "no difference",
            "no difference",
            "disagrees",
        ),
    ],
)
def test_a_planted_direction_is_told(leaks: dict[float, float], larger: str, smaller: str, decides: str) -> None:
    summary = experiment_named("lambda").summary(load_spec("lambda")[0], made(leaks))
    findings = {one.claim: one.verdict for one in summary.findings}
    verdicts = {claim.split()[1]: verdict for claim, verdict in findings.items() if "lambda" in claim}
    assert verdicts["larger"] == larger
    assert verdicts["smaller"] == smaller
    assert next(v for claim, v in findings.items() if claim.startswith("λ decides")) == decides


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scales: [effective 10], options", "scales: [clean], options"),
        ("{{epochs: 2}}", "{{regularisation: 2}}"),
        ("{{epochs: 2}}", "{{speed: 2}}"),
    ],
)
def test_wrong_recipes_are_refused(data: Path, encoder: Path, tmp_path: Path, old: str, new: str) -> None:
    assert old in SPEC
    (tmp_path / "spec.yaml").write_text(SPEC.replace(old, new).format(encoder=encoder))
    with pytest.raises(DataFileError):
        run(tmp_path / "spec.yaml", data, tmp_path / "out", workers=0)
