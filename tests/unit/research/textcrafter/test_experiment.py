"""The experiment as a whole: which cells there are, what decides each, and a run on a few rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from harness.errors import raises
from harness.experiment_data import sentences
from research import load_spec, run, shipped_spec, summarise
from research.catalogue.textcrafter import TextCrafterSets
from research.experiment import Cell
from research.textcrafter.data import read_pii, read_set
from research.textcrafter.defences import DEFENCES
from research.textcrafter.specification import PiiSpec, TextCrafterSpec
from research.textcrafter.summary import RADII, SWEPT
from unit.research.textcrafter.files import PROBLEMS, json_lines, parquet, pii, write_data
from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.texts.encoders.lsa import LsaEncoder

SPEC = TextCrafterSpec(experiment="textcrafter", problems=PROBLEMS, seeds=2)
OWN = TextCrafterSets()


def _cell(part: str, where: str, defence: str) -> Cell:
    return Cell.of(part=part, set=where, defence=defence, seed=0)


def test_rows_of_the_table_have_all_seeds_and_controls_fewer() -> None:
    cells = OWN.cells(SPEC)
    assert len({cell.name for cell in cells}) == len(cells)
    whole = {name: {0, 1} if one.main else {0} for name, one in DEFENCES.items()}
    curves = {name: seeds for name, seeds in whole.items() if DEFENCES[name].main or name in SWEPT}
    assert "textcrafter-12" not in curves  # is on no curve
    accuracy = {name: {0, 1} if name in RADII else seeds for name, seeds in whole.items()}
    for part, expected in (("utility", accuracy), ("sentences", curves)):
        seeds: dict[str, set[int]] = {}
        for cell in cells:
            if cell["part"] == part:
                seeds.setdefault(cell["defence"], set()).add(cell["seed"])
        assert seeds == expected
    policies = [cell["defence"] for cell in cells if cell["part"] == "curves"]
    assert policies == [*(f"textcrafter{one}" for one in ("", "-untrained", "-embedding", "-reparametrised"))]


@pytest.mark.parametrize(
    ("change", "part", "defence", "differs"),
    [
        ({"radius": 2.0}, "utility", "gaussian", True),
        ({"radius": 2.0}, "utility", "orthogonal", True),
        ({"radius": 2.0}, "utility", "textcrafter", True),
        ({"radius": 2.0}, "utility", "subspace", False),
        ({"rows": (9, 9)}, "utility", "none", True),
        ({"pii": PiiSpec(texts=9)}, "utility", "textcrafter", True),
        ({"pii": PiiSpec(texts=9)}, "utility", "textcrafter-set", False),
        ({"attacks": ("linear",)}, "utility", "none", True),
        ({"attacks": ("linear",)}, "sentences", "none", False),
        ({"seen": 9}, "utility", "none", False),
        ({"seen": 9}, "sentences", "none", True),
        ({"base_texts": 9}, "sentences", "none", True),
        ({"start_from": "folder"}, "sentences", "none", True),
        ({"seeds": 9, "defences": ("none",), "parts": ("utility",)}, "utility", "none", False),
        ({"options": {"textcrafter": {"epochs": 3.0}}}, "utility", "textcrafter", True),
        ({"options": {"textcrafter": {"epochs": 3.0}}}, "utility", "textcrafter-12", False),
    ],
)
def test_what_decides_a_cell(change: dict[str, Any], part: str, defence: str, differs: bool) -> None:
    cell = _cell(part, "ade", defence)
    other = structs.replace(SPEC, **change)
    assert (OWN.settings(SPEC, cell) != OWN.settings(other, cell)) is differs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": ("all",)}, "parts"),
        ({"defences": ("gauss",)}, "defences"),
        ({"variants": {"x": "gauss"}}, "variants"),
        ({"variants": {"gaussian": "none"}}, "name of a defence"),
        ({"options": {"x": {}}}, "options"),
        ({"attacks": ("quick",)}, "attacks"),
        ({"rows": (9,)}, "two numbers"),
        ({"radius": 0.0}, "above 0"),
        ({"texts": 9}, "rows"),
        ({"problems": {"pii": PROBLEMS["ade"]}}, "reserved"),
        ({"problems": {"a": structs.replace(PROBLEMS["ade"], texts=9)}}, "takes no texts"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        structs.replace(SPEC, **change)


def test_the_shipped_specification_is_whole_and_its_quick_part_small(tmp_path: Path) -> None:
    spec, text = load_spec("textcrafter")
    assert isinstance(spec, TextCrafterSpec)
    assert set(spec.defences) >= set(DEFENCES)
    quick, _ = load_spec("textcrafter", quick=True)
    assert isinstance(quick, TextCrafterSpec)
    assert "sentences" not in quick.parts
    assert len(OWN.cells(quick)) < len(OWN.cells(spec)) / 10
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("radius:", "radios:"))
    with raises("E-DATA-FILE", "radios"):
        load_spec(wrong)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data folder, and an encoder fitted on what is in it."""
    folder = tmp_path_factory.mktemp("whole")
    data = folder / "data"
    write_data(data)
    for name in ("presidio_synth_v2", "presidio_generated_large"):  # enough to train a policy
        rows = [pii(i, split, name) for split in ("train", "test") for i in range(30)]
        json_lines(data / "pii" / f"{name}.jsonl.gz", rows)
    plain = [
        {"source": source, "text": text}
        for seed, source in enumerate(("wikitext2_valid", "wikitext2_test"))
        for text in sentences(60, seed)
    ]
    parquet(data / "lm" / "sentences.parquet", plain)
    corpus = read_pii(PiiSpec(), data)
    texts = read_set("sst2", PROBLEMS["sst2"], data, (99, 99)).texts
    every = [*texts, *corpus.texts, *corpus.plain_train, *corpus.plain_test]
    LsaEncoder.fit(every, dimension=16).save(folder / "lsa")
    return data, folder / "lsa"


def test_a_missing_detector_is_named_before_texts_are_encoded(
    place: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, encoder = place
    (tmp_path / "mine.yaml").write_text(shipped_spec("textcrafter").replace("minilm", str(encoder)))
    monkeypatch.setattr(TextCrafterSets, "prepare", lambda *arguments: pytest.fail("texts are encoded"))
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[presidio\]"):
        run(tmp_path / "mine.yaml", data, tmp_path / "out", quick=True)


def test_a_run_measures_its_cells_once(place: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("torch")
    data, encoder = place
    spec = tmp_path / "mine.yaml"
    spec.write_text(f"""
experiment: textcrafter
encoder: {encoder}
parts: [curves, pii, utility]
problems:
  sst2: {{data: [sst2], concept: {{terms_file: concepts/sts_terms.json}}}}
defences: [none, textcrafter, quiet]
variants: {{quiet: gaussian}}
options: {{quiet: {{sigma: 0.001}}, textcrafter: {{epochs: 1}}}}
seeds: 1
""")
    out = tmp_path / "out"
    first = run(spec, data, out, workers=0, show_progress=False)
    assert (first.measured, dict(first.failed)) == (7, {})
    policies = list((out / "textcrafter" / "work" / "policies").glob("*.vecveil"))
    assert len(policies) == 1  # of the curves, the PII cell and the set
    again = run(spec, data, out, workers=0, show_progress=False)
    assert (again.measured, again.kept) == (0, 7)
    lines = (out / "textcrafter" / "records.jsonl").read_text().splitlines()
    found = {tuple(r["cell"].values()): r["found"] for r in map(json.loads, lines)}
    clean, quiet = (found["utility", "sst2", name, 0] for name in ("none", "quiet"))
    assert clean["noise_norm"] == 0
    assert 0 < quiet["noise_norm"] < 0.01
    assert found["utility", "sst2", "textcrafter", 0]["noise_norm"] == pytest.approx(1, abs=1e-4)
    assert quiet["sizes"]["train"] == 30
    assert len(found["curves", "pii", "textcrafter", 0]["training"]["epochs"]) == 2
    assert set(found["pii", "pii", "textcrafter", 0]["frozen"]) == {"benchmark", "policy"}
    summary = summarise("textcrafter", out)
    titles = [row[0] for table in summary["tables"] for row in table["rows"]]
    assert any("sigma = 0.001" in words for words in titles)


def test_reconstruction_goes_on_from_one_decoder(place: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    data, encoder = place
    spec = tmp_path / "mine.yaml"
    spec.write_text(f"""
experiment: textcrafter
encoder: {encoder}
parts: [sentences]
problems:
  sst2: {{data: [sst2], concept: {{terms_file: concepts/sts_terms.json}}}}
defences: [none, gaussian]
seeds: 1
seen: 30
judged: 5
base_texts: 110
""")
    out = tmp_path / "out"
    done = run(spec, data, out, workers=0, show_progress=False)
    assert (done.measured, dict(done.failed)) == (2, {})
    assert len(list((out / "textcrafter" / "work" / "base").glob("*/decoder.json"))) == 1
    lines = (out / "textcrafter" / "records.jsonl").read_text().splitlines()
    for found in (json.loads(line)["found"] for line in lines):
        assert found["judged"] == 5
        assert set(found["figures"]) == {"bleu", "token_f1", "exact_match", "rouge_l", "cosine"}
        assert found["details"]["test_texts_in_base_corpus"] == 0
    (table,) = (t for t in summarise("textcrafter", out)["tables"] if t["title"].startswith("Reco"))
    assert [row[1] for row in table["rows"]] == ["none", DEFENCES["gaussian"].title]
