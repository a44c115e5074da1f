"""Readings of SPARSE: each law is the one that its description says, and a small run has every table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.experiment_data import measured
from research.catalogue.readings import FLOOR, Reading, Readings, ReadingsSpec, _replaced, release_of
from research.experiment import Cell
from research.specification import ConceptSpec, ProblemSpec
from vecveil.privacy.concepts.matching import Span

N = 24
MASK = np.linspace(0.0, 0.8, N)
MATERIAL: Any = SimpleNamespace(positive=np.random.default_rng(0).standard_normal((500, N)))
SPEC = """
experiment: readings
encoder: {encoder}
attacks: [linear, mlp-512]
scales: [effective 10, utility 0.5]
seeds: 2
first: [laplace, truncated]
masks:
  published: {{options: {{epochs: 2}}}}
  replaced: {{options: {{epochs: 2}}, negatives: masked}}
  steps: {{steps: 30}}
readings:
  laplace: {{what: Laplace noise, mask: ones}}
  unscaled: {{what: not scaled, scaling: none}}
  replaced: {{what: replaced, mask: replaced}}
  steps: {{what: steps, mask: steps}}
  truncated: {{what: truncated, law: truncated, kept: 12}}
  random: {{what: control, law: truncated, mask: random, kept: 12}}
  hopeless: {{what: one dimension, law: truncated, kept: 1}}
  per-token: {{what: a mask for each word, law: per-token, mask: ones}}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def covariance(epsilon: float = 40.0, **settings: Any) -> np.ndarray:
    """Return the variances of a reading's released noise."""
    made = release_of(Reading(what="", **settings), MASK, MATERIAL)(epsilon)
    return np.diag(made.released_noise_covariance())


def test_each_law_has_the_noise_that_its_description_says() -> None:
    unit = (N + 1) / 40.0**2
    weights = MASK + FLOOR
    scaled = weights / weights.mean()
    np.testing.assert_allclose(covariance(), unit * scaled, rtol=1e-6)
    np.testing.assert_allclose(covariance(scaling="none"), unit * weights, rtol=1e-6)
    determinant = covariance(scaling="det") / unit
    assert np.log(determinant).sum() == pytest.approx(0, abs=1e-3)
    np.testing.assert_allclose(covariance(twice=True), unit * scaled**2, rtol=1e-4, atol=1e-12)
    inverse = weights**-1.0
    np.testing.assert_allclose(covariance(power=-1.0), unit * inverse / inverse.mean(), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(covariance(law="masked"), unit, rtol=1e-6)
    kept = covariance(law="truncated")
    np.testing.assert_allclose(kept[1:], N / 40.0**2)  # k + 1 with k = N - 1
    assert kept[0] == 0


def test_masked_laws_release_the_masked_vector() -> None:
    X = np.random.default_rng(1).standard_normal((5, N))
    for law in ("masked", "truncated"):
        made = release_of(Reading(what="", law=law), MASK, MATERIAL)(1.0)  # type: ignore[arg-type]
        np.testing.assert_allclose(made.protect(X, noise=False), X * MASK / MASK.max(), atol=2e-3 * np.abs(X).max())


def test_clipping_bounds_the_coordinates() -> None:
    made = release_of(Reading(what="", clip=True), MASK, MATERIAL)(1.0)
    assert len(np.unique(made.protect(MATERIAL.positive[:50], 0))) <= 255


def test_a_span_becomes_the_mask_token() -> None:
    spans = [Span(0, 5, "city"), Span(10, 14, "city")]
    assert _replaced("Paris and Oslo.", spans) == "[MASK] and [MASK]."


def test_a_run_has_a_table_for_each_scale_and_a_line_for_each_reading(
    data: Path, encoder: Path, tmp_path: Path
) -> None:
    record = measured(SPEC.format(encoder=encoder), data, tmp_path)
    titles = [one["title"] for one in record["tables"]]
    assert titles[:2] == ["sts12, effective 10", "sts12, utility 0.5"]
    assert titles[2].startswith("Per-token masks")
    heads = [column["name"] for column in record["tables"][0]["columns"]]
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in record["tables"][0]["rows"]}
    assert rows["Laplace noise"]["Utility − Laplace's"]["value"] == 0
    assert rows["not scaled"]["Utility − Laplace's"]["value"] > 0
    assert rows["truncated"]["Effective dimensions"]["value"] <= 12
    assert rows["truncated"]["Leakage − random dimensions'"] is not None
    assert rows["control"]["Leakage − random dimensions'"] is None
    claims = [one["claim"] for one in record["findings"]]
    assert "truncated: leaks less than Laplace noise at equal utility." in claims
    # Masking to one dimension costs more than the target allows, whatever the noise.
    assert not any(claim.startswith(("one dimension", "Laplace noise:")) for claim in claims)
    assert all(one["id"] == "" for one in record["findings"])


def test_wrong_specifications_are_refused() -> None:
    good: dict[str, Any] = {
        "experiment": "readings",
        "masks": {},
        "readings": {"laplace": Reading(what="", mask="ones")},
    }
    assert ReadingsSpec(**good)
    for change, param in (
        ({"readings": {"other": Reading(what="", mask="ones")}}, "readings"),
        ({"readings": {**good["readings"], "x": Reading(what="")}}, "mask"),
        ({"scales": ("clean",)}, "scales"),
        ({"first": ("x",)}, "first"),
    ):
        with raises("E-INPUT", param):
            ReadingsSpec(**{**good, **change})


def test_cells_of_the_first_readings_come_first() -> None:
    laplace, other = Reading(what="", mask="ones"), Reading(what="", mask="ones", clip=True)
    spec = ReadingsSpec(
        experiment="readings",
        masks={},
        readings={"other": other, "laplace": laplace},
        first=("laplace",),
        seeds=2,
        problems={"p": ProblemSpec(data=("sts12",), concept=ConceptSpec())},
    )
    cells = Readings().cells(spec)
    assert [cell["reading"] for cell in cells] == ["laplace"] * 4 + ["other"] * 4
    assert cells[0] == Cell.of(problem="p", reading="laplace", scale="effective 10", seed=0)
