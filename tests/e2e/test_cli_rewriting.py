"""Text-level methods from the command line: fit, protect texts, refuse vectors, audit."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.command_line import CANARY, run
from vecveil.privacy.protector import TEXT_METHODS
from vecveil.texts.encoders import LsaEncoder

DRUGS = ["aspirin", "codeine", "heparin", "insulin", "lithium", CANARY]
WORDS = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(6) for j in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 300 texts, two thirds with a drug, a concept file, and an encoder of the words."""
    folder = tmp_path_factory.mktemp("rewriting")
    rng = np.random.default_rng(0)
    texts = []
    for i in range(300):
        words = [str(word) for word in rng.choice(WORDS, size=6)]
        if i % 3:
            words.insert(int(rng.integers(6)), str(rng.choice(DRUGS)))
        texts.append(" ".join(words))
    with open(folder / "texts.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text",), *((text,) for text in texts)])
    (folder / "concept.yaml").write_text(f"name: drug\nterms: {json.dumps(DRUGS)}\n", "utf-8")
    encoder = LsaEncoder.fit(texts, 20)
    encoder.save(folder / "lsa")
    np.save(folder / "clean.npy", encoder.encode(texts))
    return folder


COMMON = ("texts.csv", "--concept", "concept.yaml", "--encoder", "lsa", "--no-cache")


@pytest.mark.parametrize("method", TEXT_METHODS)
def test_fit_protect_and_refuse(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(folder)
    file, out = tmp_path / "p.vecveil", tmp_path / "out.npy"
    fitted = run("fit", *COMMON, "--method", method, "-o", file, "--json", "--verbose")
    assert fitted.code == 0, fitted.err
    assert fitted.json["method"] == method
    assert "Guarantee (empirical)" in fitted.err
    assert CANARY not in fitted.err + fitted.out

    words = ("-p", file, "--encoder", "lsa", "--no-cache")
    done = run("protect", "texts.csv", *words, "-o", out, "--json")
    assert done.code == 0, done.err
    assert done.json["noise"] is False
    clean, released = np.load("clean.npy"), np.load(out)
    changed = np.abs(clean - released).max(axis=1) > 1e-6
    assert changed[1::3].mean() > 0.9
    assert not changed[::3].any()  # nothing is found in them

    bare = run("protect", "clean.npy", *words, "-o", tmp_path / "bare.npy")
    assert bare.code == 1
    assert "vectors contain the concept" in bare.errors[0]
    assert not (tmp_path / "bare.npy").exists()
    quiet = run("protect", "texts.csv", *words, "--no-noise", "-o", tmp_path / "bare.npy")
    assert quiet.code == 1
    assert "the same text always gives the same vector" in quiet.errors[0]


def test_a_text_stage(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(folder)
    file, out, key = tmp_path / "p.vecveil", tmp_path / "out.npy", tmp_path / "search.keys"
    (tmp_path / "d.yaml").write_text(f"name: some\nterms: {json.dumps(DRUGS[:3])}\n", "utf-8")
    method = ("--method", "laplace", "--epsilon", "1e6")
    stage = ("--rewrite", "delete", "--detector", tmp_path / "d.yaml")
    fitted = run("fit", *COMMON, *method, *stage, "-o", file, "--json")
    assert fitted.code == 0, fitted.err
    recall = fitted.json["report"]["rewriting"]["detector_recall"]
    assert 0.3 < recall["recall"] < 0.7
    assert f"the detector finds {100 * recall['recall']:.1f} % of the concept's" in fitted.err
    assert CANARY not in fitted.err + fitted.out

    words = ("-p", file, "--encoder", "lsa", "--no-cache")
    done = run("protect", "texts.csv", *words, "-o", out, "--json")
    assert done.code == 0, done.err
    assert done.json["noise"] is True
    texts = (folder / "texts.csv").read_text(encoding="utf-8").splitlines()[1:]
    written = [" ".join(w for w in text.split() if w not in DRUGS[:3]) for text in texts]
    encoder = LsaEncoder.load(folder / "lsa")
    np.testing.assert_allclose(np.load(out), encoder.encode(written), atol=1e-2)
    bare = run("protect", "clean.npy", *words, "-o", tmp_path / "bare.npy")
    assert bare.code == 1
    assert "vectors contain the concept" in bare.errors[0]

    with open(tmp_path / "ids.csv", "w", encoding="utf-8", newline="") as table:
        csv.writer(table).writerows([("id", "text"), *enumerate(texts)])
    assert run("key", "new", key).code == 0
    name = ("--seal-key", key, "--seal-name", "notes")
    sealed = run("seal", tmp_path / "ids.csv", *words, *name, "--id-column", "id", "-o", tmp_path / "s.parquet")
    assert sealed.code == 0, sealed.err
    opened = run("unseal", tmp_path / "s.parquet", *name, "-o", tmp_path / "u.parquet")
    assert opened.code == 0, opened.err
    rows = pq.read_table(tmp_path / "u.parquet").to_pydict()
    assert rows["text"] == texts
    exact = np.array(rows["embedding"], np.float32)
    np.testing.assert_allclose(exact, np.load("clean.npy"), atol=1e-2)

    for wrong in (("--detector", "concept.yaml"), ("--rewrite", "delete", "--method", "redact")):
        assert run("fit", *COMMON, "--epsilon", "9", *wrong, "-o", tmp_path / "no").code == 2
