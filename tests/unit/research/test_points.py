"""Points: a defence at a scale, with what was planted in the texts to find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from research.bench import Bench, Material
from research.points import attacks_named, defend, measure_point
from research.scales import EFFECTIVE_NORM, Scale, parse_scale
from research.specification import ConceptSpec, ProblemSpec, Spec


@pytest.fixture(scope="module")
def bench(data: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    concept = ConceptSpec(terms_file="concepts/sts_terms.json")
    problems = {"sts": ProblemSpec(data=("sts12",), concept=concept)}
    spec = Spec(experiment="tradeoff", problems=problems, encoder=str(encoder))
    return Bench(spec, data, tmp_path_factory.mktemp("work"), show_progress=False)


@pytest.fixture(scope="module")
def material(bench: Bench) -> Material:
    return bench.material("sts", 0)


def test_no_group_is_fitted_and_judged(material: Material) -> None:
    judged = set(material.case.groups[material.case.test].tolist())
    assert judged.isdisjoint(material.fit_groups.tolist())
    assert len(material.fit_rows) == len(material.fit_labels) >= len(material.case.train)
    ordinary = material.case.matches.without_concept
    kept = [i for i in ordinary if material.case.groups[i] not in judged]
    assert len(material.background) == len(kept)


def test_clean_vectors_tell_and_noise_hides(bench: Bench, material: Material) -> None:
    names = ("linear", "kernel")
    clean = measure_point(bench, material, "none", parse_scale("clean"), names)
    drowned = measure_point(bench, material, "laplace", parse_scale("literal 0.1"), names)
    assert clean["protector"] is None
    assert clean["utility"]["relative"] == 1.0
    assert clean["leakage"]["value"] > clean["leakage"]["chance"] + 0.3
    assert drowned["leakage"]["low"] <= drowned["leakage"]["chance"] + 0.1
    assert abs(drowned["utility"]["relative"]) < 0.5
    assert set(clean["categories"]) == {"city", "number"}
    count = sum(one["n"] for one in clean["categories"].values())
    hits = sum(one["n"] * one["value"] for one in clean["categories"].values())
    assert hits / count == pytest.approx(clean["leakage"]["value"], abs=1e-4)


def test_the_effective_scale_is_a_norm(bench: Bench, material: Material) -> None:
    protector = defend(bench, material, "laplace", parse_scale("effective 10"))
    assert protector is not None
    X = material.positive[:200]
    norms = np.linalg.norm(protector.protect(X, 0) - X, axis=1)
    assert np.sqrt(np.mean(norms**2)) == pytest.approx(EFFECTIVE_NORM / 10, rel=0.1)


def test_a_mask_is_learnt_once_for_all_scales(
    bench: Bench, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"epochs": 2, "stability_seeds": 1}
    low = defend(bench, material, "sparse", parse_scale("effective 10"), **options)
    import vecveil.privacy.sensitivity.hard_concrete as learning

    monkeypatch.setattr(learning, "fit_hard_concrete_mask", None)  # calling it would raise
    high = defend(bench, material, "sparse", parse_scale("literal 10"), **options)
    assert low is not None
    assert high is not None
    assert np.array_equal(low.mechanism.shape.covariance(), high.mechanism.shape.covariance())
    assert low.report["mask"] == high.report["mask"]
    assert high.report["epsilon"] == 10


def test_scales_fit_methods() -> None:
    assert parse_scale("clean").fits("none")
    assert not parse_scale("clean").fits("laplace")
    assert not parse_scale("utility 0.9").fits("none")
    assert parse_scale("utility 0.9").fits("subspace")
    assert not parse_scale("utility 0.9").fits("shuffle")
    assert parse_scale("fixed").fits("shuffle")
    assert not parse_scale("fixed").fits("laplace")
    assert parse_scale("radius 1").fits("textcrafter")
    assert parse_scale("literal 5").fits("ldp-gaussian")
    assert parse_scale("literal 5").arguments("ldp-gaussian") == {"epsilon": 5.0, "delta": 1e-5}
    assert parse_scale("literal 5").arguments("gaussian") == {"sigma": 0.2}
    assert parse_scale("utility 0.95") == Scale("utility", 0.95)


@pytest.mark.parametrize(
    "wrong", ["", "clean 5", "effective", "effective 0", "utility 1", "utility nan", "literal inf", "x 3"]
)
def test_a_wrong_scale_is_refused(wrong: str) -> None:
    with raises("E-INPUT", "scales"):
        parse_scale(wrong)


def test_attacks_by_name() -> None:
    names = [attack.name for attack in attacks_named(["linear", "quick", "linear"], further=False)]
    assert names[0] == "linear"
    assert len(names) == len(set(names)) > 5
    assert "kernel-further" not in names
    assert "kernel-further" in [attack.name for attack in attacks_named(["quick"], further=True)]
    with raises("E-INPUT", "attacks"):
        attacks_named(["linea"], further=False)
