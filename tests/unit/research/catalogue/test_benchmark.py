"""The benchmark, run whole on a small data set with a submitted method; and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.documents import ROOT
from harness.errors import raises
from harness.experiment_data import summary_of
from research import run
from research.catalogue.benchmark import file_checksum, strength_for, submitted_module
from vecveil.auditing.metrics import StsTask

TEMPLATE = ROOT / "research" / "submissions" / "isotropic.py"
SPEC = """
experiment: benchmark
encoder: {encoder}
attacks: [linear]
least: 3
targets: [0.9]
methods: {{laplace: [], redact: [fixed]}}
candidates: 20
checksums: {checksums}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


@pytest.fixture
def specification(encoder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.format(encoder=encoder, checksums="{}"))
    return path


def test_methods_of_the_package_beside_a_submitted_one(searched: Path, specification: Path, tmp_path: Path) -> None:
    outcome = run(specification, searched, tmp_path / "out", workers=0, methods=[TEMPLATE])
    assert not outcome.failed
    assert outcome.measured == 4
    record = summary_of("benchmark", tmp_path / "out")
    assert [table["title"] for table in record["tables"]] == ["All problems", "sts12"]
    lines = (tmp_path / "out" / "benchmark" / "records.jsonl").read_text().splitlines()
    found = {Path(r["cell"]["method"]).stem: r["found"] for r in map(json.loads, lines)}
    # Laplace and Gaussian noise at one share of the similarity are nearly the same noise.
    assert found["isotropic"]["utility"]["relative"] == pytest.approx(
        found["laplace"]["utility"]["relative"], abs=0.1
    )  # calibrated on 55 pairs and measured on 55 others
    assert found["isotropic"]["listed"]["value"] == pytest.approx(found["laplace"]["listed"]["value"], abs=0.15)
    assert found["redact"]["listed"]["value"] < found["none"]["listed"]["value"]
    assert found["none"]["search"]["ranked"]["value"] == 1
    assert found["isotropic"]["search"]["alone"]["value"] < 1
    # A run without the file keeps the other rows; a changed file is another method.
    again = run(specification, searched, tmp_path / "out", workers=0)
    assert (again.asked, again.kept) == (3, 3)


def test_other_data_than_the_frozen_one_is_refused(searched: Path, encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "frozen.yaml"
    path.write_text(SPEC.format(encoder=encoder, checksums="{sts12: 0123456789abcdef}"))
    with raises("E-DATA", param="data"):
        run(path, searched, tmp_path / "out", workers=0)


def test_a_submitted_file_must_be_whole_and_unchanged(searched: Path, specification: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    for code in ("def fit(*arrays, seed):\n    return None\n", "1 / 0\n", "raise SystemExit(0)\n"):
        own.write_text(code)
        with raises("E-DATA", param="submitted"):
            run(specification, searched, tmp_path / "out", workers=0, methods=[own])
    twin = shutil.copy(TEMPLATE, tmp_path)
    with raises("E-INPUT", param="submitted"):
        run(specification, searched, tmp_path / "out", workers=0, methods=[TEMPLATE, twin])
    with raises("E-DATA", param="submitted"):
        submitted_module(str(TEMPLATE), "0" * 64)
    with raises("E-DATA", param="method"):
        run("frontier", searched, tmp_path / "out", workers=0, methods=[TEMPLATE])
    with raises("E-DATA", param="method"):
        run(specification, searched, tmp_path / "out", workers=0, methods=["none.py"])


def test_what_a_submitted_method_prints_is_no_result(
    searched: Path, specification: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "loud.py"
    code = TEMPLATE.read_text().replace("    noise =", '    print("protects")\n    noise =')
    own.write_text(f'{code}print("loaded")\n')
    run(specification, searched, tmp_path / "out", workers=0, methods=[own])
    said = capsys.readouterr()
    assert said.out == ""
    assert "loaded" in said.err
    assert "protects" in said.err


def test_the_strength_keeps_the_target() -> None:
    rng = np.random.default_rng(0)
    left = rng.standard_normal((600, 24))
    right = left + rng.standard_normal((600, 24)) * rng.uniform(0.2, 2, (600, 1))
    scores = -np.linalg.norm(left - right, axis=1)
    task = StsTask(left, right, scores)
    module = submitted_module(str(TEMPLATE), file_checksum(TEMPLATE))
    for target in (0.98, 0.9):
        own = strength_for(module, 1.0, task, target, 0)
        draws = [
            task.protected(lambda X, rng, own=own: own.protect(X, rng), np.random.default_rng(seed))
            for seed in range(10)
        ]
        mean = np.mean([one.value for one in draws])
        assert mean / task.clean().value == pytest.approx(target, abs=0.03)
    assert "Gaussian" in own.guarantee
