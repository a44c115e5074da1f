"""Encoders: one fitted on the texts, one of a folder, and one that is not there until it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.errors import raises
from harness.experiment_data import summary_of
from research import load_spec, run
from research.catalogue import experiment_named
from research.experiment import Records
from vecveil.texts.encoders import LsaEncoder

SPEC = """
experiment: encoders
attacks: [linear]
encoders: {{lsa: lsa, mine: {mine}, absent: {absent}}}
lsa: {{dimension: 24}}
methods: [laplace]
scales: [clean, effective 20]
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


def cells(out: Path) -> list[dict[str, Any]]:
    lines = (out / "encoders" / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_encoder_that_is_missing_is_said_so_and_tried_again(data: Path, encoder: Path, tmp_path: Path) -> None:
    mine, absent = tmp_path / "mine", tmp_path / "absent"
    shutil.copytree(encoder, mine)
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(SPEC.format(mine=mine, absent=absent))
    first = run(spec, data, out, workers=0)
    assert not first.failed
    found = {(one["cell"]["encoder"], one["cell"]["method"]): one["found"] for one in cells(out)}
    assert "folder does not exist" in found["absent", "none"]["skipped"]
    for name in ("lsa", "mine"):
        # A linear attack on vectors of the words themselves reads them; noise takes some of it.
        clean, noisy = (found[name, method]["leakage"] for method in ("none", "laplace"))
        assert clean["value"] > clean["chance"] + 0.3
        assert noisy["value"] < clean["value"]
    record = summary_of("encoders", out)
    table = record["tables"][0]
    assert [row[1:4:2] for row in table["rows"] if row[0] == "absent"] == [[None, "not measured"]]
    assert {row[1] for row in table["rows"] if row[0] == "lsa"} == {"lsa"}
    assert any(note.startswith("absent: not measured") for note in record["notes"])
    assert "absent" in record["findings"][0]["difference"]
    again = run(spec, data, out, workers=0)
    assert again.kept == 4  # what was measured; the missing one is tried again
    assert again.measured == 2

    texts = [f"{word} near the river {i % 7}" for i in range(60) for word in ("paris", "oslo")]
    LsaEncoder.fit(texts, dimension=6).save(absent)
    third = run(spec, data, out, workers=0)
    assert third.kept == 4
    assert third.measured == 2
    assert not any("skipped" in one["found"] for one in cells(out))


def test_two_encoders_of_one_dimension_have_their_own_masks(data: Path, encoder: Path, tmp_path: Path) -> None:
    """The other encoder is the first with its dimensions in reverse: so is its mask."""
    one = LsaEncoder.load(encoder)
    other = tmp_path / "other"
    reverse = LsaEncoder(one.terms, one.idf, one.components[::-1].copy(), one.ngrams)
    reverse.save(other)
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    text = SPEC.format(mine=encoder, absent=other).replace("lsa: lsa, ", "")
    spec.write_text(text.replace("methods: [laplace]", "methods: [sparse]").replace("clean, ", ""))
    assert not run(spec, data, out, workers=0).failed
    masks = [one["found"]["protector"]["mask"] for one in cells(out)]
    assert masks[0]["last_loss"] != masks[1]["last_loss"]


def made(leaks: dict[str, float]) -> Records:
    """Return records at equal utility, in which each method leaks so much, by chance 0.1."""

    def row(method: str, scale: str, value: float) -> dict[str, Any]:
        figure = {"value": value, "low": value, "high": value, "chance": 0.1}
        found = {"attacks": {"linear": {"r_precision": figure}}, "utility": {"value": 0.7, "relative": 0.95}}
        cell = {"problem": "sts12", "encoder": "e", "method": method, "scale": scale, "seed": 0}
        return {"cell": cell, "found": found}

    return Records([row("none", "clean", 0.7), *(row(name, "utility 0.95", value) for name, value in leaks.items())])


@pytest.mark.parametrize(("sparse", "subspace", "verdict"), [(0.6, 0.2, "agrees"), (0.2, 0.6, "disagrees")])
def test_a_planted_difference_is_told(sparse: float, subspace: float, verdict: str) -> None:
    records = made({"sparse": sparse, "subspace": subspace})
    summary = experiment_named("encoders").summary(load_spec("encoders")[0], records)
    assert summary.findings[-1].verdict == verdict
    assert f"{100 * (subspace - 0.1):.1f} against {100 * (sparse - 0.1):.1f}" in summary.findings[-1].ours
    assert all(one.verdict == "not measured" for one in summary.findings[:-1])  # they are of ε = 10


def test_wrong_options_are_refused(data: Path, encoder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    text = SPEC.format(mine=encoder, absent=encoder)
    spec.write_text(text.replace("{dimension: 24}", "{size: 24}"))
    with raises("E-DATA-FILE", "lsa"):
        run(spec, data, tmp_path / "out", workers=0)
