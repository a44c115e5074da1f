"""Groups of words: hits are shared out rightly, planted overlaps are found, and the protected word falls most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.experiment_data import TERMS, lsa_folder, small_data, summary_of
from research import run, summarise
from research.catalogue.concept_groups import (
    Overlap,
    _measured,
    _verdict_on,
    change_of,
    closed_mask,
    mask_overlap,
    shared,
    top_dimensions,
    union_of_top,
)
from research.experiment import Records
from research.judging import compare
from vecveil.errors import DataFileError

SPEC = """
experiment: concept-groups
encoder: {encoder}
attacks: [linear]
scale: radius 0.8
methods: [laplace, sparse, mean-difference, subspace]
recipes: {{sparse: {{epochs: 5}}}}
groups: {groups}
words: 2
min_texts: 40
pairs: 100
problems:
  sts12: {{data: sts12, concept: {{}}}}
"""
GROUPS = {"cities": [*TERMS["city"], "rome"], "numbers": TERMS["number"]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a data folder with enough texts of each word, and its encoder."""
    folder = tmp_path_factory.mktemp("groups")
    data = small_data(folder / "data", pairs=700)
    return data, lsa_folder(data, folder / "lsa")


@pytest.fixture(scope="module")
def out(place: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, encoder = place
    folder = tmp_path_factory.mktemp("out")
    text = SPEC.format(encoder=encoder, groups=json.dumps(GROUPS))
    (folder / "spec.yaml").write_text(text)
    outcome = run(folder / "spec.yaml", data, folder, workers=0)
    assert not outcome.failed
    assert outcome.measured == 1 + 4 * 2
    return folder


def read(out: Path) -> Records:
    lines = (out / "concept-groups" / "records.jsonl").read_text().splitlines()
    return Records([json.loads(line) for line in lines])


def test_every_instance_is_counted_once(out: Path) -> None:
    records = read(out)
    clean = records[0]["found"]["words"]
    total = sum(row["n"] for row in clean.values())
    for row in records[1:]:
        assert len(row["found"]["words"]) == 2
        for word, found in row["found"]["words"].items():
            assert found["target"][2] == clean[word]["n"]
            group = next(g for g, own in GROUPS.items() if word in own)
            similar = sum(r["n"] for w, r in clean.items() if w in GROUPS[group] and w != word)
            assert found["similar"][2] == similar
            assert sum(found[key][2] for key in ("target", "similar", "other")) == total
    assert records.where(group="cities")[0]["found"]["left_out"]["rome"] == "too rare to be attacked"


def test_the_protected_word_falls_most_where_the_method_knows_it(out: Path) -> None:
    records = read(out)
    for group in GROUPS:
        change = {
            (method, kind): change_of(records, group, method, kind)[0]
            for method in ("laplace", "subspace")
            for kind in ("target", "similar", "other")
        }
        assert change["subspace", "target"] < change["laplace", "target"] - 0.1
        assert change["subspace", "target"] < change["subspace", "other"]


def test_words_have_masks_of_their_own(out: Path) -> None:
    found = [w for row in read(out).where(method="sparse") for w in row["found"]["words"].values()]
    masks = [np.array(one["mask"]) for one in found]
    assert len({mask.tobytes() for mask in masks}) == 4
    assert all(mask.shape == (24,) for mask in masks)
    assert not np.array_equal(found[0]["mask"], found[0]["again"])


def test_a_mask_in_closed_form_is_the_mean_difference_and_judges_the_papers_claims(out: Path) -> None:
    rng = np.random.default_rng(0)
    N = rng.standard_normal((30, 6))
    P = N + np.array([0.0, -2.0, 0.5, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(closed_mask(P, N), [0, 1, 0.25, 0, 0, 0.5], atol=1e-12)
    found = summary_of("concept-groups", out)["findings"]
    assert all("closed form" in one["difference"] for one in found if one["id"])


def test_the_summary_has_heat_maps_and_the_papers_figures(out: Path) -> None:
    record = summary_of("concept-groups", out)
    changes, overlaps = record["tables"]
    rows = {(row[0], row[1]): row for row in changes["rows"]}
    assert rows["cities", "SPARSE"][5]["published"] is None  # the scale is not the paper's
    assert len(rows) == 8
    clean = read(out).where(method="none")[0]["found"]["words"]
    words = read(out).where(group="cities", method="sparse")[0]["found"]["words"]
    instances = sum(clean[word]["n"] for word in words)
    hits = sum(clean[word]["n"] * clean[word]["value"] for word in words)
    assert rows["cities", "SPARSE"][3]["value"] == instances
    assert rows["cities", "SPARSE"][4]["value"] == pytest.approx(hits / instances)
    assert [row[0] for row in overlaps["rows"]] == ["mean-difference", "sparse"]
    heats = [figure for figure in record["figures"] if figure["kind"] == "heat"]
    assert len(heats) == 4
    for figure in heats:
        assert len(figure["values"]) == len(figure["rows"]) == 2
        assert 5 <= len(figure["columns"]) <= 10
        assert all(len(row) == len(figure["columns"]) for row in figure["values"])
    assert not any(word in str(record["notes"]) for word in ("rome", "paris"))


def test_the_papers_figures_stand_beside_the_effective_scale(place: tuple[Path, Path], tmp_path: Path) -> None:
    data, encoder = place
    text = SPEC.format(encoder=encoder, groups=json.dumps(GROUPS)).replace("radius 0.8", "effective 10")
    text = text.replace("[laplace, sparse, mean-difference, subspace]", "[sparse]").replace("words: 2", "words: 1")
    (tmp_path / "spec.yaml").write_text(text)
    assert not run(tmp_path / "spec.yaml", data, tmp_path / "out", workers=0).failed
    record = summarise("concept-groups", tmp_path / "out")
    row = next(row for row in record["tables"][0]["rows"] if row[0] == "cities")
    assert [cell["published"] for cell in row[5:8]] == pytest.approx([-0.702, -0.398, -0.147])


def records(hits: dict[str, float]) -> Records:
    """Return records of two groups of two words; of each instance ten, found as often as ``hits`` says."""
    clean = {word: {"value": 0.8, "n": 10, "chance": 0.1} for word in ("a", "b", "c", "d")}

    def word() -> dict[str, Any]:
        instances = {"target": 10, "similar": 10, "other": 20}
        return {key: [hits[key] * 0.8 * n, 0.0, n] for key, n in instances.items()} | {"utility": 1}

    def row(group: str, method: str, found: dict[str, Any]) -> dict[str, Any]:
        cell = {"problem": "p", "group": group, "method": method, "seed": 0}
        return {"cell": cell, "found": found}

    return Records(
        [
            row("all", "none", {"words": clean}),
            row("first", "sparse", {"words": {"a": word()}, "left_out": {"b": "in too few texts"}}),
        ]
    )


def test_a_planted_change_is_found() -> None:
    made = records({"target": 0.25, "similar": 0.5, "other": 1.0})
    found = {k: change_of(made, "first", "sparse", k)[0] for k in ("target", "similar", "other")}
    assert found == pytest.approx({"target": -0.75, "similar": -0.5, "other": 0.0})


def test_seeds_of_one_word_are_no_independent_draws() -> None:
    """Of two words one falls and one does not, in twenty seeds: that says nothing of other words."""
    made = records({"target": 0.25, "similar": 0.5, "other": 1.0})
    (found,) = made.where(group="first")[0]["found"]["words"].values()
    still = found | {"target": [8.0, 0.0, 10]}
    both = {"a": found, "b": still}
    rows = [
        {
            "cell": {**row["cell"], "seed": seed},
            "found": {"words": both, "left_out": {}} if "left_out" in row["found"] else row["found"],
        }
        for seed in range(20)
        for row in made
    ]
    value, low, high = change_of(Records(rows), "first", "sparse", "target")
    assert (value, low, high) == pytest.approx((-0.375, -0.75, 0.0))
    one = _measured(Records(rows), "first", "sparse", "target")
    assert one is not None
    assert (one.value, one.pooled) == (pytest.approx(-37.5), 20)
    assert compare(one, 0.0) == 0


def test_a_planted_overlap_is_found_and_a_permuted_one_is_not() -> None:
    """Control: the same words in groups at random."""
    rng = np.random.default_rng(0)
    groups = [name for name in ("x", "y", "z") for _ in range(5)]
    own = {name: rng.permutation(200)[:5] for name in ("x", "y", "z")}
    masks = []
    for name in groups:
        mask = 0.1 * rng.random(200)
        mask[own[name][:4]] += 1  # the fifth is each word's own
        masks.append(mask)
    found = mask_overlap(masks, groups, top=5)
    assert found.within >= 0.8
    assert found.across < 0.2
    assert found.p_value < 0.001
    mixed = mask_overlap(masks, [groups[i] for i in rng.permutation(15)], top=5)
    assert mixed.p_value > 0.01
    assert mask_overlap(masks[:3], ["x", "y", "z"], top=5).p_value == 1  # no two of a group


@pytest.mark.parametrize(
    ("within", "p_value", "few", "told"),
    [
        (0.3, 0.01, False, "agrees"),
        (0.3, 0.2, False, "no difference"),
        (0.3, 0.2, True, "unclear"),
        (0.1, 0.99, False, "disagrees"),
    ],
)
def test_an_overlap_within_the_error_is_no_difference(within: float, p_value: float, few: bool, told: str) -> None:
    assert _verdict_on(Overlap(within, 0.2, {}, p_value), few=few) == told


def test_highest_dimensions() -> None:
    one, other = np.array([0.1, 0.9, 0.5, 0.2]), np.array([0.9, 0.8, 0.1, 0.0])
    assert list(top_dimensions(one, 2)) == [1, 2]
    assert union_of_top([one, other], 2) == [0, 1, 2]
    assert shared(one, other, 2) == 0.5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("radius 0.8", "clean"),
        ("[laplace, sparse, mean-difference, subspace]", "[shuffle]"),
        ('"oslo"', '"new york"'),
        ('"oslo"', '"one"'),
    ],
)
def test_wrong_specifications_are_refused(place: tuple[Path, Path], tmp_path: Path, old: str, new: str) -> None:
    data, encoder = place
    text = SPEC.format(encoder=encoder, groups=json.dumps(GROUPS))
    assert old in text
    (tmp_path / "spec.yaml").write_text(text.replace(old, new))
    with pytest.raises(DataFileError):
        run(tmp_path / "spec.yaml", data, tmp_path / "out", workers=0)
