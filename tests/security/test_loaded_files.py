"""A file from somebody else decides on no server that gets texts or a key, no download, and no other file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import run
from harness.errors import raises
from harness.http_encoder import embedding_server
from vecveil.auditing.records.audit_record import EncoderRecord
from vecveil.gateway.langchain import ProtectedEmbeddings
from vecveil.gateway.llama_index import ProtectedEmbedding
from vecveil.gateway.server import ServedPolicySettings, ServeSettings
from vecveil.gateway.server.service import open_service
from vecveil.privacy.concepts.concept import concept_from_record
from vecveil.privacy.protector import EncoderInfo

TEXTS = [f"note {i} on the {word}" for i in range(40) for word in ("garden", "budget", "drugs")]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Any]]]:
    """URL of a server, and its requests."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    with embedding_server() as (url, seen):
        yield f"{url}#m", seen


@pytest.fixture
def forged(spy: tuple[str, list[Any]], tmp_path: Path) -> Path:
    """The file of a protector that names the server, without a fingerprint; table and concept beside it."""
    X = np.random.default_rng(0).normal(size=(200, 16))
    fitted = vecveil.fit_pairs(X, X + 1, method="laplace", noise_to_signal=0.5, seed=0)
    info = replace(fitted.encoder_info, name=spy[0])
    replace(fitted, encoder_info=info).save(tmp_path / "p.vecveil")
    (tmp_path / "notes.txt").write_text("\n".join(TEXTS))
    (tmp_path / "concept.yaml").write_text("name: drug\nterms: [drugs]\n")
    return tmp_path


def _collection(forged: Path) -> None:
    assert run("key", "new", forged / "search.keys").code == 0
    vecveil.ProtectedCollection(
        f"sqlite-vec:{forged / 'a.db'}#notes", forged / "p.vecveil", forged / "search.keys"
    ).add(TEXTS, ids=[str(i) for i in range(len(TEXTS))])


USES: dict[str, Callable[[Path], Any]] = {
    "encode": lambda at: vecveil.load(at / "p.vecveil").encode(TEXTS),
    "audit": lambda at: vecveil.audit(
        vecveil.load(at / "p.vecveil"), TEXTS, vecveil.Concept.from_terms("drug", ["drugs"])
    ),
    "collection": _collection,
    "serve": lambda at: open_service(ServeSettings({"drug": ServedPolicySettings(str(at / "p.vecveil"))})),
    "langchain": lambda at: ProtectedEmbeddings(at / "p.vecveil").embed_query(TEXTS[0]),
    "llama_index": lambda at: ProtectedEmbedding(at / "p.vecveil").get_query_embedding(TEXTS[0]),
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_a_server_that_only_a_protector_names_is_not_called(
    spy: tuple[str, list[Any]], forged: Path, use: Callable[[Path], Any]
) -> None:
    with raises("E-ENCODER-NOT-NAMED", "encoder"):
        use(forged)
    assert spy[1] == []


@pytest.mark.parametrize(
    "words",
    [
        ["protect", "notes.txt", "-p", "p.vecveil", "-o", "out.parquet"],
        ["audit", "notes.txt", "-p", "p.vecveil", "--concept", "concept.yaml"],
        ["serve", "-p", "p.vecveil"],
    ],
    ids=lambda words: str(words[0]),
)
def test_nor_by_the_command_line(
    spy: tuple[str, list[Any]], forged: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(forged)
    done = run(*words)
    assert done.code == 1
    assert ("`--upstream`" if words[0] == "serve" else "`--encoder`") in done.err, done.err
    assert spy[1] == []


def test_control_a_server_that_the_user_names_is_called(spy: tuple[str, list[Any]], forged: Path) -> None:
    url, seen = spy
    assert vecveil.load(forged / "p.vecveil", encoder=url).encode(TEXTS[:3]).shape == (3, 16)
    table = ["protect", forged / "notes.txt", "-p", forged / "p.vecveil", "-o", forged / "o.parquet"]
    assert run(*table, "--encoder", url, "--no-cache").code == 0
    assert {each["headers"]["authorization"] for each in seen} == {"Bearer canary-key"}


def test_a_model_that_a_protector_or_a_concept_names_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("the network was used"))
    entities = {"kind": "entities", "engine": "huggingface", "model": "somebody/a", "types": ["PER"], "min_score": 0.0}
    with raises("E-INPUT", "model"):
        concept_from_record({"name": "people", "detectors": [entities]}).detect(["Anna"])
    path = tmp_path / "concept.yaml"
    path.write_text(json.dumps({"name": "a", "entities": {key: entities[key] for key in ("engine", "model", "types")}}))
    with raises("E-INPUT", "model"):
        vecveil.Concept.from_file(path)


def test_a_model_with_pickled_weights_is_not_loaded(tmp_path: Path) -> None:
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    model = transformers.BertForTokenClassification(config)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    entities = {"kind": "entities", "engine": "huggingface", "types": ["LABEL_0"], "min_score": 0.0}
    with raises("E-INPUT", "model"):
        concept_from_record({"name": "people", "detectors": [entities | {"model": str(tmp_path / "model")}]}).detect(
            ["Anna"]
        )


def test_a_concept_file_reads_terms_in_its_own_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("secret\n")
    inside = tmp_path / "concept"
    inside.mkdir()
    (inside / "link.txt").symlink_to(tmp_path / "private.txt")
    (inside / "terms.txt").write_text("aspirin\n")
    os.mkfifo(tmp_path / "pipe")  # opened, it would wait for a writer
    for named in ("../private.txt", str(tmp_path / "private.txt"), "link.txt", "../pipe", "/dev/zero", "../none"):
        (inside / "concept.yaml").write_text(f"name: a\nterms_file: {named}\n")
        with raises("E-CONCEPT-PATH", "terms_file"):
            vecveil.Concept.from_file(inside / "concept.yaml")
    (inside / "concept.yaml").write_text("name: a\nterms_file: terms.txt\n")
    with contextlib.chdir(tmp_path):
        assert vecveil.Concept.from_file("concept/concept.yaml").detect(["aspirin"])[0]


def test_a_frontier_names_no_server(spy: tuple[str, list[Any]]) -> None:
    from vecveil.cli.tables import load_encoder_named

    options = {"encoder": None, "encoder_options": (), "precision": None, "cache": False}
    with raises("E-ENCODER-NOT-NAMED", "encoder"):
        load_encoder_named(options, "minilm", recorded=EncoderRecord(spy[0], None, "api", (), (), {}))
    assert spy[1] == []
    forged = {"fingerprint": "forged", "trust_remote_code": True, "normalize": "yes", "prompt": "query: "}
    encoder = load_encoder_named(options, recorded=EncoderRecord("minilm", None, "fp32", (), (), forged))
    assert encoder is not None
    assert (encoder.fingerprint != "forged", encoder.options) == (True, {"prompt": "query: "})


def test_the_name_in_the_message_cannot_control_the_terminal() -> None:
    X = np.random.default_rng(0).normal(size=(200, 16))
    fitted = vecveil.fit_pairs(X, X + 1, method="laplace", noise_to_signal=0.5, seed=0)
    named = replace(fitted, encoder_info=EncoderInfo(name="https://a\x1b[2J" + "x" * 5000))
    with raises("E-ENCODER-NOT-NAMED", "encoder") as error:
        named.encode(TEXTS)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 600
