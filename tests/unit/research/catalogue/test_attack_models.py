"""`attacks`: decoders trained on each defence, end to end on made sentences, and what they go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from harness.decoder_data import TINY, corpus_encoder, with_corpus
from harness.errors import raises
from harness.experiment_data import summary_of
from research import decoders, load_spec, run, summarise, tables
from research.bench import Bench
from research.catalogue import experiment_named
from research.catalogue.attacks import AttackModelsSpec, attack_findings
from research.decoders import DecoderSpec, base_decoder, copied, make_attack, published_in
from research.experiment import Cell, Records
from vecveil.auditing.attacks.reconstruction.t5 import PublishedCheckpoint
from vecveil.errors import DataFileError

SPEC = """
experiment: attacks
encoder: {encoder}
models: [{models}]
attacks: [linear]
methods: [laplace]
scales: [{scales}]
judged: 60
decoders: {{{decoders}}}
problems:
  sts12: {{data: sts12, concept: {{terms_file: concepts/sts_terms.json}}}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder with a corpus, and the folder of an encoder."""
    folder = tmp_path_factory.mktemp("decoders")
    data = with_corpus(folder / "data")
    return data, corpus_encoder(data, folder / "lsa")


def described(place: tuple[Path, Path], folder: Path, **more: str) -> Path:
    values = {"models": "mlc, geia", "scales": "clean, effective 5", "decoders": f"geia: {TINY['geia']}"} | more
    path = folder / "spec.yaml"
    path.write_text(SPEC.format(encoder=place[1], **values))
    return path


def bench_of(path: Path, data: Path, work: Path) -> tuple[AttackModelsSpec, Bench]:
    spec, _ = load_spec(path)
    assert isinstance(spec, AttackModelsSpec)
    return spec, Bench(spec, data, work, show_progress=False)


@pytest.fixture(scope="module")
def measured(place: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a specification and of its finished run, with the decoders that it trained."""
    folder = tmp_path_factory.mktemp("measured")
    outcome = run(described(place, folder), place[0], folder / "out", workers=0)
    assert (outcome.asked, outcome.measured, dict(outcome.failed)) == (4, 4, {})
    return folder


def test_a_decoder_reads_clean_vectors_and_noise_takes_that_away(
    place: tuple[Path, Path], measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = measured / "spec.yaml", measured / "out"
    small = summary_of("attacks", out)["tables"][0]
    assert "60 judged texts" in small["title"]
    assert {row[3]["published"] for row in small["rows"]} == {None}
    monkeypatch.setattr(tables, "FEW_TEXTS", 1)
    record = summary_of("attacks", out)
    leaks, texts = record["tables"]
    assert [row[:3] for row in leaks["rows"]] == [
        ["MLC", "clean", "no protection"],
        ["MLC", "effective 5", "Laplace"],
        ["GEIA", "clean", "no protection"],
        ["GEIA", "effective 5", "Laplace"],
    ]
    clean, noisy = leaks["rows"][2:]
    assert clean[3]["low"] > clean[4]["value"] + 0.05  # above chance
    assert noisy[3]["value"] < 0.5 * clean[3]["value"]
    assert noisy[5]["value"] == pytest.approx(noisy[3]["value"] / clean[3]["value"] - 1)
    assert (clean[3]["published"], noisy[3]["published"]) == pytest.approx((0.2534, 0.1230))
    assert texts["rows"][0][5]["value"] > texts["rows"][1][5]["value"]  # token F1
    again = run(path, place[0], out, workers=0)
    assert (again.kept, again.measured) == (4, 0)


def test_vec2text_corrects_what_it_wrote(place: tuple[Path, Path], tmp_path: Path) -> None:
    path = described(place, tmp_path, models="vec2text", decoders=f"vec2text: {TINY['vec2text']}")
    assert not run(path, place[0], tmp_path / "out", workers=0).failed
    rows = (tmp_path / "out" / "attacks" / "records.jsonl").read_text().splitlines()
    assert len(rows) == 2
    assert all('"token_f1_of_hypothesis"' in row for row in rows)
    notes = " ".join(summarise("attacks", tmp_path / "out")["notes"])
    assert "1 rounds of correction" in notes
    assert "Vec2Text is at chance on clean vectors" in notes  # 40 texts teach it nothing


def test_a_base_has_seen_no_text_of_the_problem(
    place: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, bench = bench_of(described(place, tmp_path), place[0], tmp_path / "out" / "attacks" / "work")
    seen: list[str] = []

    class Recorded:
        def run(self, train: Any, test: Any, **_: Any) -> None:
            seen.extend([*train.texts, *test.texts])

    monkeypatch.setattr(decoders, "make_attack", lambda *_, **__: Recorded())
    base_decoder(bench, "sts12", "geia", spec.decoder("geia"))
    own = bench.problem("sts12").texts
    corpus = decoders.corpus_texts(bench, spec.decoder("geia"))
    assert set(corpus) & set(own)
    assert len(seen) > 200
    assert not set(seen) & set(own)
    encode = bench.encoder().encode
    assert (encode(seen) @ encode(own).T).max() < decoders.NEAR


def test_copies_are_found_by_letters_and_by_vectors() -> None:
    X = np.array([[1, 0], [0, 1], [1, 0.2], [0.5, 0.5]], dtype=np.float32)
    Z = np.array([[1, 0]], dtype=np.float32)
    found = copied(["One!", "two", "three", "four"], X, ["TWO", "five"], Z)
    assert found.tolist() == [True, True, True, False]


def test_a_given_decoder_is_gone_on_from_and_judged_on_texts_it_has_not_seen(
    place: tuple[Path, Path], measured: Path, tmp_path: Path
) -> None:
    work = measured / "out" / "attacks" / "work" / "decoders"
    (base,) = (path.parent for path in work.glob("geia-base-*/attack.json"))
    given = TINY["geia"].replace("{", f"{{start_from: '{base}', ", 1)
    path = described(place, tmp_path, models="geia", scales="clean", decoders=f"geia: {given}")
    assert not run(path, place[0], tmp_path / "out", workers=0).failed
    record = summarise("attacks", tmp_path / "out")
    notes = " ".join(record["notes"])
    assert "(given), then 6 epochs" in notes
    assert "are not judged" in notes  # twenty texts of the problem are in the corpus
    assert record["tables"][0]["rows"][0][3]["low"] > 0.05
    assert not list((tmp_path / "out" / "attacks" / "work" / "decoders").glob("geia-base-*"))


def test_a_given_folder_without_a_decoder_is_refused(place: tuple[Path, Path], tmp_path: Path) -> None:
    given = TINY["geia"].replace("{", f"{{start_from: '{tmp_path}', ", 1)
    path = described(place, tmp_path, models="geia", decoders=f"geia: {given}")
    with raises("E-DATA-FILE", "start_from"):
        run(path, place[0], tmp_path / "out", workers=0)


def test_published_weights_are_gone_on_from(tmp_path: Path) -> None:
    spec = DecoderSpec(rounds=2, fine_tuning_rate=1e-4)

    def attack() -> Any:
        return make_attack("vec2text", spec, epochs=1, start=tmp_path, encode=lambda texts: texts)

    assert attack().start_from == tmp_path
    for kind in ("hypothesiser", "corrector"):
        assert published_in(tmp_path) is None or kind == "corrector"
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text("{}")
    found = attack()
    assert found.start_from == PublishedCheckpoint(tmp_path / "hypothesiser", tmp_path / "corrector")
    assert found._settings()["start_from"] == tmp_path.name  # wherever it lies


def test_settings_hold_what_a_cell_depends_on(place: tuple[Path, Path], tmp_path: Path) -> None:
    spec, _ = load_spec(described(place, tmp_path))
    assert isinstance(spec, AttackModelsSpec)
    experiment = experiment_named("attacks")
    mlc, geia = (c for c in experiment.cells(spec) if c["method"] == "none")

    def changed(cell: Cell, **more: Any) -> bool:
        other = structs.replace(spec, **more)
        return experiment.settings(spec, cell) != experiment.settings(other, cell)

    decoder = spec.decoder("geia")
    longer = {"geia": structs.replace(decoder, epochs=7)}
    assert (changed(mlc, decoders=longer), changed(geia, decoders=longer)) == (False, True)
    given = {"geia": structs.replace(decoder, start_from="somewhere")}
    assert changed(mlc, decoders=given)  # other texts are judged
    assert (changed(mlc, attacks=("mlp-512",)), changed(geia, attacks=("mlp-512",))) == (True, False)
    assert changed(mlc, judged=61)
    assert changed(geia, judged=61)
    assert not changed(geia, models=("geia",), seeds=3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"models": "mlc, algen"}, "of mlc, geia, vec2text"),
        ({"decoders": "algen: {}"}, "of geia, vec2text"),
        ({"decoders": "vec2text: {preset: medium}"}, "one of small, paper"),
        ({"decoders": "geia: {rounds: 3}"}, "GEIA does not correct"),
        ({"decoders": "vec2text: {options: {widht: 8}}"}, "one of batch"),
    ],
)
def test_descriptions_that_no_attack_has_are_refused(
    place: tuple[Path, Path], tmp_path: Path, more: dict[str, str], words: str
) -> None:
    with pytest.raises(DataFileError, match=words):
        load_spec(described(place, tmp_path, **more))


def row(attack: str, method: str, scale: str, leak: float, low: float) -> dict[str, Any]:
    found = {"figures": {"leakage": {"value": leak, "low": low, "high": 2 * leak - low, "chance": 0.05}}}
    cell = {"problem": "sts12", "attack": attack, "method": method, "scale": scale, "seed": 0}
    return {"cell": cell, "found": found}


@pytest.mark.parametrize(("low", "verdict"), [(0.3, "agrees"), (0.0, "not measured")])
def test_an_attack_at_chance_on_clean_vectors_decides_no_claim(low: float, verdict: str) -> None:
    rows = [row("geia", "none", "clean", 0.4, low)]
    rows += [
        row("geia", method, scale, leaked, leaked - 0.02)
        for scale in ("effective 5", "effective 10")
        for method, leaked in (("laplace", 0.2), ("purkayastha", 0.2), ("sparse", 0.1))
    ]
    claims = {one.claim: one.verdict for one in attack_findings(Records(rows))}
    assert claims["SPARSE leaks less than the baselines under each attack that was tried."] == verdict


def test_a_dead_classifier_has_the_strongest_live_one_beside_it() -> None:
    def classified(method: str, scale: str, live: float) -> dict[str, Any]:
        figures = {
            name: {"value": v, "low": v - 0.01, "high": v + 0.01, "chance": 0.1}
            for name, v in (("dead", 0.1), ("live", live))
        }
        attacks = {
            "mlc-published": {"r_precision": figures["dead"], "leakage": figures["dead"]},
            "linear": {"r_precision": figures["live"], "leakage": figures["live"]},
        }
        strongest = {"name": "linear", **attacks["linear"]}
        found = {
            "figures": attacks["mlc-published"],
            "attacks": attacks,
            "strongest": strongest,
            "texts": {"judged": 400},
        }
        return {
            "cell": {"problem": "sts12", "attack": "mlc", "method": method, "scale": scale, "seed": 0},
            "found": found,
        }

    others = [row("geia", "none", "clean", 0.4, 0.3), row("geia", "sparse", "effective 10", 0.2, 0.1)]
    rows = Records([classified("none", "clean", 0.5), classified("sparse", "effective 10", 0.25), *others])
    table = experiment_named("attacks").summary(load_spec("attacks")[0], rows).tables[0]
    names = [column.name for column in table.columns]
    dead, live, change = (dict(zip(names, table.rows[1], strict=True))[name] for name in (names[3], names[6], names[7]))
    assert (dead.value, dead.published) == (0.1, None)
    assert (live.value, live.published) == pytest.approx((0.25, 0.2959))
    assert (change.value, change.published) == pytest.approx((-0.5, -0.4438))
