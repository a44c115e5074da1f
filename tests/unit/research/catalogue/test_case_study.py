"""`case-study`: what is shown, what is not, and whose decoders are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.decoder_data import TINY, corpus_encoder, with_corpus
from harness.experiment_data import summary_of
from research import load_spec, run, summarise, tables
from vecveil.errors import DataFileError

SHARED = """
encoder: {encoder}
methods: [laplace]
scales: [clean, effective 10]
judged: 50
decoders: {{geia: {geia}}}
problems:
  sts12:
    data: sts12
    concept: {{terms: [paris, london, madrid, oslo, lima, one, two, three, morning, lunch, storm, vote, week]}}
"""
CASE = "experiment: case-study\nshown: 3\ngiven: ['{own}', 'Nobody saw two whales in Madrid.']\nshow_texts: {show}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data folder, an encoder, and a folder in which `attacks` and `case-study` were run."""
    folder = tmp_path_factory.mktemp("case")
    data = with_corpus(folder / "data")
    encoder = corpus_encoder(data, folder / "lsa")
    shared = SHARED.format(encoder=encoder, geia=TINY["geia"])
    first = folder / "attacks.yaml"
    first.write_text("experiment: attacks\nmodels: [geia]\n" + shared)
    out = folder / "out"
    assert not run(first, data, out, workers=0).failed
    own = with_text(data)
    for show in ("true", "false"):
        path = folder / f"show-{show}.yaml"
        path.write_text(CASE.format(own=own, show=show) + shared)
        where = out if show == "true" else folder / "silent"
        if show == "false":  # beside the same decoders
            where.mkdir()
            (where / "attacks").symlink_to(out / "attacks")
        assert not run(path, data, where, workers=0).failed
    return {"data": data, "encoder": encoder, "out": out, "silent": folder / "silent", "spec": path}


def with_text(data: Path) -> str:
    """Return a text of the problem."""
    import pyarrow.parquet as pq

    return str(pq.read_table(data / "sts" / "sts12.parquet").to_pydict()["sentence1"][0])


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "case-study" / "records.jsonl").read_text().splitlines()]


def test_texts_stand_beside_their_reconstructions(place: dict[str, Path]) -> None:
    clean, noisy = records(place["out"])
    assert [r["cell"]["scale"] for r in (clean, noisy)] == ["clean", "effective 10"]
    shown = clean["found"]["shown"]
    assert [one["given"] for one in shown] == [False, False, False, True, True]
    assert [one["learnt"] for one in shown] == [False, False, False, True, False]
    assert [one["original"] for one in shown] == [one["original"] for one in noisy["found"]["shown"]]
    for one in shown[:3]:
        words = one["original"].lower().rstrip(".").split()
        assert one["words"] == len(one["sensitive"]) >= 2
        assert set(one["sensitive"]) <= set(words)
        written = one["reconstruction"].lower().replace(".", " ").split()
        assert set(one["surviving"]) == set(one["sensitive"]) & set(written)
    assert clean["found"]["semantic"]["low"] > clean["found"]["semantic"]["chance"]
    assert noisy["found"]["semantic"]["value"] < clean["found"]["semantic"]["value"]
    assert clean["found"]["texts"]["judged"] == 50


def test_the_decoders_of_attacks_are_used(place: dict[str, Path]) -> None:
    trained = {path.parent.name for path in place["out"].glob("*/work/decoders/*/attack.json")}
    assert len(trained) == 3  # a base, and one for each defence
    assert not (place["out"] / "case-study" / "work" / "decoders").exists()
    mine = {r["cell"]["scale"]: r["found"]["leakage"]["value"] for r in records(place["out"])}
    lines = (place["out"] / "attacks" / "records.jsonl").read_text().splitlines()
    theirs = [json.loads(line) for line in lines]
    assert mine == {r["cell"]["scale"]: r["found"]["figures"]["leakage"]["value"] for r in theirs}


def test_the_page_has_a_table_for_each_text_and_one_for_all(
    place: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FEW_TEXTS", 1)
    record = summary_of("case-study", place["out"])
    *sides, means = record["tables"]
    assert len(sides) == 5
    assert "given by the user; the attack may have learnt this text" in sides[3]["caption"]
    assert [row[1] for row in sides[0]["rows"]] == ["no protection", "Laplace"]
    assert sides[0]["rows"][0][2] in json.dumps(records(place["out"])[0]["found"]["shown"][0])
    assert means["rows"][1][2]["published"] == pytest.approx(0.23)  # Table 12, ε = 10, Laplace
    claims = {one["claim"]: one["verdict"] for one in record["findings"]}
    assert "not measured" in claims.values()  # SPARSE is not among the methods


def test_without_show_texts_figures_alone_are_kept(place: dict[str, Path]) -> None:
    text = (place["silent"] / "case-study" / "records.jsonl").read_text()
    loud = (place["out"] / "case-study" / "records.jsonl").read_text()
    for one in records(place["out"])[0]["found"]["shown"]:
        for kept in (one["original"], *(f'"{word}"' for word in one["sensitive"])):
            assert kept in loud
            assert kept not in text
    quiet, said = records(place["silent"])[0]["found"], records(place["out"])[0]["found"]
    assert [one["semantic"] for one in quiet["shown"]] == [one["semantic"] for one in said["shown"]]
    tables = summarise("case-study", place["silent"])["tables"]
    assert "not shown" in tables[0]["caption"]
    assert tables[0]["rows"][0][2] is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("judge: minilm\nencoder: minilm", "`judge` is the attacked encoder"),
        ("attack: mlc", "one of geia, vec2text"),
        ("given: [' ']", "`given` has an empty text"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, more: str, words: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"experiment: case-study\n{more}\nproblems: {{}}\n")
    with pytest.raises(DataFileError, match=words):
        load_spec(path)
