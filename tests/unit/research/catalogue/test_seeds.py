"""Which cells are measured with more seeds than the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.errors import raises
from research import load_spec, shipped_spec
from research.catalogue import experiment_named

NAMES = ("attributes", "lambda", "pii-transforms", "tradeoff", "frontier", "whitebox")


def seeds_by_scale(name: str, spec_text: str, folder: Path) -> dict[str, set[int]]:
    path = folder / "spec.yaml"
    path.write_text(spec_text)
    spec, _ = load_spec(path)
    cells = experiment_named(name).cells(spec)
    assert max(Counter(cells).values()) == 1
    found: dict[str, set[int]] = {}
    for cell in cells:
        found.setdefault(cell["scale"], set()).add(cell["seed"])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_scales_that_matter_have_five(name: str, tmp_path: Path) -> None:
    text = shipped_spec(name)
    found = seeds_by_scale(name, text, tmp_path)
    assert found["utility 0.95"] == found["clean"] == set(range(5))
    if name not in ("attributes", "frontier"):  # claims of the papers are judged at every effective ε
        assert {len(seeds) for scale, seeds in found.items() if scale.startswith("effective")} == {5}
    assert {len(seeds) for seeds in found.values()} <= {1, 5}


@pytest.mark.parametrize("name", [*NAMES, "attacks", "case-study"])
def test_a_coarse_run_has_one(name: str) -> None:
    spec, _ = load_spec(name, quick=True)
    assert {cell["seed"] for cell in experiment_named(name).cells(spec)} == {0}


@pytest.mark.parametrize("name", ["attacks", "case-study"])
def test_decoders_are_trained_for_five_at_every_scale(name: str, tmp_path: Path) -> None:
    found = seeds_by_scale(name, shipped_spec(name), tmp_path)
    assert found == {scale: set(range(5)) for scale in ("clean", "effective 10", "effective 5")}


@pytest.mark.parametrize("name", ["attributes", "lambda"])
def test_a_scale_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    text = shipped_spec(name).replace("more_scales: [", "more_scales: [often, ")
    with raises("E-DATA-FILE", "scales"):
        seeds_by_scale(name, text, tmp_path)
