"""Every method that ``vecveil methods`` lists can be fitted, protects, and is audited from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import leftovers, run, write_pairs
from vecveil.privacy.protector import METHODS, TEXT_METHODS

SCALES = {
    "sigma": 0.2,
    "epsilon": 30.0,
    "noise_to_signal": 0.5,
    "target_utility": 0.8,
    "target_cosine": 0.8,
    "target_advantage": 0.6,
    "radius": 0.9,
}
CHEAP = {
    "sparse": ("epochs=1", "stability_seeds=1"),
    "sparse-whitebox": ("epochs=1", "steps=2"),
    "textcrafter": ("epochs=1",),
    "textcrafter-subspace": ("epochs=1",),
    "subspace": ("rank=3", "kept=16", "flattening=0", "pairs=true"),
}
"""Options that make a fit short."""


def listed() -> list[dict[str, Any]]:
    methods: list[dict[str, Any]] = run("methods", "--json").json["methods"]
    return methods


def options_of(method: str) -> list[object]:
    unit = ["--before", "normalise"] if method.startswith("textcrafter") else []  # the vectors here are longer
    return [*unit, *(part for option in CHEAP.get(method, ()) for part in ("--option", option))]


def scale_options(method: dict[str, Any], scale: str | None) -> list[object]:
    """Return the command line's words for a scale, and δ beside it."""
    words: list[object] = []
    if scale is not None:
        words += [f"--{scale.replace('_', '-')}", SCALES[scale]]
    return words + (["--delta", 1e-6] if method["delta"] else [])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """Vectors with and without the concept, and labels of three words."""
    folder = tmp_path_factory.mktemp("pairs")
    positive, negative = write_pairs(folder)
    difference = np.load(positive) - np.load(negative)
    np.save(folder / "labels.npy", (difference[:, :3] > 0.3).astype(np.uint8))
    labelled = ("--labels", folder / "labels.npy", "--background", negative)
    return ("--positive", positive, "--negative", negative, *labelled)


def test_the_list_is_what_the_package_has() -> None:
    assert all(name in run("methods").out for name in METHODS)
    assert [method["name"] for method in listed()] == [*METHODS, *TEXT_METHODS]
    for method in listed():
        known = METHODS if method["name"] in METHODS else TEXT_METHODS
        assert tuple(method["scales"]) == known[method["name"]].scales
        assert set(method["scales"]) <= set(SCALES)


CASES = [(name, scale) for name, one in METHODS.items() for scale in one.scales or (None,)]


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_every_method_fits_with_each_of_its_scales_and_protects(
    name: str, scale: str | None, tmp_path: Path, pairs: tuple[object, ...]
) -> None:
    method = next(one for one in listed() if one["name"] == name)
    out = tmp_path / "p.vecveil"
    done = run(
        f"fit --method {name} -o {out} --json --verbose", *pairs, *scale_options(method, scale), *options_of(name)
    )
    assert done.code == 0, done.err
    assert done.json["method"] == name
    assert f"Guarantee ({method['kind']})" in done.err
    made = run("protect", pairs[3], "-p", out, "-o", tmp_path / "y.npy", "--json")
    assert made.code == 0, made.err
    Y, X = np.load(tmp_path / "y.npy"), np.load(str(pairs[3]))
    assert Y.shape == X.shape
    assert (Y != X).any(axis=1).all()
    again = run("protect", pairs[3], "-p", out, "-o", tmp_path / "z.npy")
    assert again.code == 0
    same = (np.load(tmp_path / "z.npy") == Y).all()
    assert same == (not vecveil.load(out).mechanism.is_random)
    assert leftovers(tmp_path) == []


def test_a_finished_training_removes_its_own_files_alone(tmp_path: Path, pairs: tuple[object, ...]) -> None:
    work = tmp_path / "p.vecveil.training"
    work.mkdir()
    (work / "thesis.txt").write_text("mine")
    done = run(
        f"fit --method textcrafter --radius 0.8 -o {tmp_path / 'p.vecveil'} --verbose",
        *pairs,
        *options_of("textcrafter"),
    )
    assert done.code == 0, done.err
    assert [path.name for path in work.iterdir()] == ["thesis.txt"]
    assert "empirical, no formal privacy guarantee" in done.err
    assert "Nothing bounds how well an attacker" in done.err


# subspace is audited with every family in test_cli_audit.py.
AUDITED = {"shuffle": [], "purkayastha": ["--epsilon", 800], "textcrafter": ["--radius", 1.0, "--option", "epochs=1"]}


@pytest.mark.parametrize("name", AUDITED)
def test_methods_of_every_family_are_audited(name: str, tmp_path: Path, notes: Path, lsa: Path) -> None:
    concept, out = notes.with_name("concept.yaml"), tmp_path / "p.vecveil"
    encoder = ("--encoder", lsa, "--no-cache")
    done = run(
        f"fit {notes} --text-column text --concept {concept} --method", name, *AUDITED[name], *encoder, "-o", out
    )
    assert done.code == 0, done.err
    done = run(
        f"audit {notes} -p {out} --concept {concept} --json {tmp_path / 'audit.json'} --html "
        f"{tmp_path / 'audit.html'} --limit 300 --skip alignment --skip held-out-terms --skip averaging",
        *encoder,
    )
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert record["method"] == name
    assert record["guarantee"]["kind"] == METHODS[name].kind
    worst = next(one for one in record["attacks"] if one["name"] == record["worst"])
    assert worst["low"] <= worst["value"] <= worst["high"]
    if name == "shuffle":  # distances are those of the clean vectors, so nothing is hidden
        assert record["utility"]["similarity"]["relative"] == pytest.approx(1, abs=1e-3)
        assert worst["value"] > 0.7 * worst["clean"]
    assert "<html" in (tmp_path / "audit.html").read_text(encoding="utf-8")
