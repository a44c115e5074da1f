"""The papers' own models: one command runs Tables 1, 2, 7 and 8 on small ones with their parts and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness import command_line
from harness.decoder_data import with_corpus
from harness.experiment_data import sentences, summary_of
from harness.t5_models import DIMENSION, checkpoint_folder, published_weights, sentence_t5, t5_folder
from research import decoders
from vecveil.texts.encoders import load_encoder

SPECS = Path(__file__).parents[4] / "research" / "specs" / "gtr"
TEXTS = sentences(300, 3)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A current folder with every model that the specifications name."""
    place = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("sentence-transformers/gtr-t5-base", "sentence-transformers/sentence-t5-base")):
        sentence_t5(place / name, TEXTS, seed=seed)
    sentence_t5(place / "all-mpnet-base-v2", TEXTS, seed=2)  # of another architecture: any model of the library will do
    config = t5_folder(place / "vec2text-gtr" / "t5", TEXTS)
    for seed, kind in enumerate(("hypothesiser", "corrector")):
        weights, _ = published_weights(config, kind, seed)
        checkpoint_folder(place / "vec2text-gtr", ("t5-base", config), kind, weights)
    return place


def test_an_encoder_like_gtr_is_its_t5_its_mean_its_layer_and_its_length(models: Path) -> None:
    import transformers
    from safetensors.torch import load_file

    folder = models / "sentence-transformers" / "gtr-t5-base"
    t5 = transformers.T5EncoderModel.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    (layer,) = load_file(folder / "2_Dense" / "model.safetensors").values()
    expected = []
    for text in TEXTS[:5]:
        given = tokens(text, truncation=True, max_length=24, return_tensors="pt")
        with torch.no_grad():
            hidden = t5(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).last_hidden_state[0]
        vector = layer @ hidden.mean(dim=0)
        expected.append((vector / vector.norm()).numpy())
    found = load_encoder(str(folder)).encode(TEXTS[:5])
    assert found.shape == (5, DIMENSION)
    np.testing.assert_allclose(found, np.array(expected), atol=2e-6)


def test_one_command_runs_the_papers_tables_on_their_models(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    monkeypatch.setattr(decoders, "NEAR", 0.9999)  # vectors of untrained models are close to each other
    data, out = with_corpus(tmp_path / "data"), tmp_path / "out"
    specs = tmp_path / "specs"
    specs.mkdir()
    for path in SPECS.glob("*.yaml"):  # as they are, with fewer cells
        text = path.read_text("utf-8").replace("laplace, purkayastha, sparse, subspace", "laplace, sparse")
        text = text.replace(", utility 0.95", "").replace("[linear, transplant]", "[linear]")
        text += "options: {sparse: {epochs: 2, stability_seeds: 1}}\n"
        (specs / path.name).write_text(text, "utf-8")
    result = command_line.run(
        "experiment run", specs, "--quick", "--workers", 0, "--data", data, "--out", out, "--json"
    )
    assert result.code == 0, result.err
    counts = result.json
    assert counts["not_run"] == []
    assert set(counts["experiments"]) == {"attacks", "encoders", "tradeoff"}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, count in counts["experiments"].items():
        assert not count["failed"]
        found[name] = [json.loads(line) for line in (out / name / "records.jsonl").read_text().splitlines()]
        assert len(found[name]) == count["asked"]
    assert not any("skipped" in row["found"] for row in found["encoders"])
    names = {row["cell"]["encoder"]: row["found"]["encoder"] for row in found["encoders"]}
    assert names.keys() == {"gtr-base", "sentence-t5", "sbert"}
    assert len({one["fingerprint"] for one in names.values()}) == 3
    written = [row["found"] for row in found["attacks"] if row["cell"]["attack"] == "vec2text"]
    assert written
    assert all("token_f1_of_hypothesis" in one["figures"] for one in written)
    notes = " ".join(summary_of("attacks", out)["notes"])
    assert "(given), then 2 epochs" in notes
    assert "2 rounds of correction" in notes


def test_a_folder_without_a_specification_is_refused(tmp_path: Path) -> None:
    result = command_line.run("experiment run", tmp_path, "--data", tmp_path, "--out", tmp_path / "out")
    assert result.code == 2
    assert "no specification" in result.err
