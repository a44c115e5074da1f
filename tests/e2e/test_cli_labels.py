"""A concept given by a column of labels, from the command line: fit, protect, audit."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from harness.command_line import run
from vecveil.texts.encoders import LsaEncoder

HIGH = ["good", "great", "lovely", "fine", "superb", "happy"]
LOW = ["bad", "awful", "poor", "sad", "dull", "wrong"]
THINGS = [f"thing{chr(97 + i)}" for i in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 400 texts with one of two moods, a concept file, and an encoder of the words."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        mood = str(rng.choice(["low", "high"]))
        words = [*rng.choice(THINGS, 6), *rng.choice(HIGH if mood == "high" else LOW, 2)]
        rows.append((" ".join(map(str, rng.permutation(words))), mood))
    with open(folder / "texts.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("text", "mood"), *rows])
    (folder / "concept.yaml").write_text("name: mood\nlabels_column: mood\n", encoding="utf-8")
    LsaEncoder.fit([text for text, _ in rows], 20).save(folder / "lsa")
    return folder


def test_fit_protect_and_audit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    common = ("texts.csv", "--concept", "concept.yaml", "--encoder", "lsa", "--no-cache")
    fitted = run("fit", *common, "--noise-to-signal", 0.3, "-o", "mood.vecveil", "--json", "--verbose")
    assert fitted.code == 0, fitted.err
    assert fitted.json["report"]["parameters"]["rank"] == 1
    assert "400 of 400 texts have a label" in fitted.err
    assert any("labels give no pairs" in line for line in fitted.json["guarantee"]["not_promised"])

    done = run("protect texts.csv -p mood.vecveil -o out.npy --encoder lsa --text-column text --no-cache")
    assert done.code == 0, done.err
    assert np.load("out.npy").shape == (400, 20)

    audited = run(
        "audit -p mood.vecveil --json audit.json --html a.html --skip candidates --skip alignment --skip "
        "averaging --skip held-out-terms",
        *common,
    )
    assert audited.code == 0, audited.err
    record = json.loads(Path("audit.json").read_text(encoding="utf-8"))
    found = {attack["name"]: attack for attack in record["attacks"]}
    assert found["linear"]["clean"] > 0.9
    assert found["linear"]["value"] < 0.65  # behind the erasure; one half is chance
    assert found["probe-linear"]["metric"] == "AUC"
    assert found["probe-linear"]["clean"] > 0.95
    assert found["probe-linear"]["value"] < 0.65
    assert record["concept_distance"] is None
    page = Path("a.html").read_text(encoding="utf-8")
    assert "mood" in page


def test_a_column_of_classes_is_preserved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "things.yaml").write_text("name: things\nterms: [thinga, thingb, thingc]\n", encoding="utf-8")
    common = ("fit", "texts.csv", "--text-column", "text", "--encoder", "lsa", "--no-cache", "--noise-to-signal", 0.3)
    given = (*common, "--concept", "things.yaml", "-o", "things.vecveil", "--preserve", "mood")
    fitted = run(*given, "--option", "rank=3", "--option", "kept=17", "--json")
    assert fitted.code == 0, fitted.err
    assert fitted.json["report"]["preserved"] == {"classes": 2, "texts": 400}
    assert "nothing that correlates with the 2 classes is erased" in fitted.err.lower()
    assert run(*given, "--force", "--method", "laplace").code == 2
