"""The options of an encoder are those of the fit: a protector saves them, and queries get the prompt of queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import run
from harness.errors import raises
from harness.http_encoder import embedding_server
from unit.texts.encoders.conftest import build_tiny
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.texts.encoders import load_encoder

TEXTS = [f"the {a} {b} {c}" for a in ("dog", "cat", "man") for b in ("runs", "eats", "sleeps") for c in ("fast", "red")]
QUERIES = ["a red dog", "the blue cat"]


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with prompts of its own, as E5 has."""
    folder = build_tiny(tmp_path_factory.mktemp("prompted") / "e5", normalize=True)
    config = folder / "config_sentence_transformers.json"
    record = json.loads(config.read_text())
    config.write_text(json.dumps(record | {"prompts": {"query": "a red: ", "document": "the blue: "}}))
    return folder


def fitted(encoder: Any) -> vecveil.Protector:
    X = np.asarray(load_encoder(encoder).encode(TEXTS * 2))
    other = X + np.random.default_rng(0).normal(size=X.shape).astype(np.float32) / 10
    return vecveil.fit_pairs(X, other, method="laplace", noise_to_signal=0.5, encoder=encoder, seed=0)


def test_queries_and_documents_get_the_prompts_of_the_model(prompted: Path, tmp_path: Path) -> None:
    import sentence_transformers

    encoder = load_encoder(prompted, precision="fp32", cache=tmp_path)
    model = sentence_transformers.SentenceTransformer(str(prompted), device="cpu")
    for _ in range(2):  # the second time from the cache, which keeps the two apart
        np.testing.assert_allclose(encoder.encode(QUERIES), model.encode_document(QUERIES), atol=1e-5)
        np.testing.assert_allclose(encoder.encode_query(QUERIES), model.encode_query(QUERIES), atol=1e-5)
    policy = ReleasePolicy(fitted(encoder), query_noise=0)
    np.testing.assert_allclose(policy.embed_queries(QUERIES), model.encode_query(QUERIES), atol=1e-5)
    plain = load_encoder(prompted, precision="fp32", cache=None, prompt="", query_prompt="the: ")
    np.testing.assert_allclose(plain.encode(QUERIES), model.encode(QUERIES, prompt=""), atol=1e-5)
    np.testing.assert_allclose(plain.encode_query(QUERIES), model.encode(QUERIES, prompt="the: "), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("tiny", {"truncate_dim": 8}),
        ("tiny", {"normalize": True}),
        ("tiny", {"prompt": "a red: "}),
        ("tiny", {"query_prompt": "a red: "}),
        ("tiny", {"max_seq_length": 5}),
        ("tiny", {"truncate_dim": 16, "normalize": True, "prompt": "the: "}),
        ("minilm", {"truncate_dim": 64, "query_prompt": "a red: ", "max_seq_length": 5}),
    ],
    ids=str,
)
def test_a_protector_finds_its_encoder_again(
    tmp_path: Path, tiny_folder: Path, model: str, options: dict[str, Any]
) -> None:
    name = tiny_folder if model == "tiny" else model
    encoder = load_encoder(name, precision="fp32", cache=None, **options)
    protector = fitted(encoder)
    protector.save(tmp_path / "p.vecveil")
    again = vecveil.load(tmp_path / "p.vecveil", encoder=None if model == "minilm" else name)
    assert again.encoder_info == protector.encoder_info
    assert again.encoder_info.options == options
    np.testing.assert_allclose(again.loaded_encoder().encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    np.testing.assert_allclose(again.loaded_encoder().encode_query(TEXTS), encoder.encode_query(TEXTS), atol=1e-6)
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        again.check_encoder(load_encoder(name, precision="fp32", cache=None))


def test_the_dimensions_of_a_server_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with embedding_server() as (url, seen):
        fitted(load_encoder(f"{url}#m", dimensions=16, cache=None)).save(tmp_path / "p.vecveil")
        seen.clear()
        vecveil.load(tmp_path / "p.vecveil", encoder=f"{url}#m").encode(TEXTS)
        assert {each["dimensions"] for each in seen} == {16}


def test_the_command_line_names_options(prompted: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("\n".join(f"{text} {i}" for i in range(3) for text in TEXTS))
    (tmp_path / "c.yaml").write_text("name: animal\nterms: [dog, cat]\n")
    out, table = tmp_path / "p.vecveil", ["--encoder", prompted, "--no-cache", "--precision", "fp32"]
    done = run(
        "fit",
        notes,
        "--concept",
        tmp_path / "c.yaml",
        "--method",
        "laplace",
        "--noise-to-signal",
        0.5,
        *table,
        "--encoder-option",
        "truncate_dim=16",
        "--encoder-option",
        "prompt=the: ",
        "-o",
        out,
    )
    assert done.code == 0, done.err
    assert vecveil.load(out).encoder_info.options == {"prompt": "the: ", "truncate_dim": 16}
    protect = ["protect", notes, "-p", out, *table, "-o"]
    assert run(*protect, tmp_path / "a.parquet").code == 0
    other = run(*protect, tmp_path / "b.parquet", "--encoder-option", "truncate_dim=8")
    assert (other.code, len(other.errors)) == (1, 1)
    assert run(*protect, tmp_path / "c.parquet", "--encoder-option", "nonsense=8").code == 1


@pytest.mark.parametrize(
    "options",
    [
        {"token": "x"},
        {"trust_remote_code": True},
        {"truncate_dim": "8"},
        {"normalize": 1},
        {"truncate_dim": 0},
        [],
        {"prompt": None},
    ],
)
def test_a_file_holds_no_other_options(options: Any) -> None:
    record = {"name": "minilm", "fingerprint": None, "precision": "fp32", "options": options}
    with pytest.raises((ValueError, LookupError)):
        vecveil.privacy.protector.EncoderInfo.from_record(record)
