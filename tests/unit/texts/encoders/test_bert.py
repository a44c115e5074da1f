"""BERT without torch: what NumPy runs, what it leaves to the library, and that both are one encoder."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from unit.texts.encoders.conftest import build_tiny
from vecveil.errors import MissingDependencyError
from vecveil.index import SealedIndex
from vecveil.texts.encoders import bert, load_encoder
from vecveil.texts.encoders.bert import BertBackend
from vecveil.texts.encoders.sentence_transformer import SentenceTransformerBackend

TEXTS = ["the dog runs", "a red cat sleeps", "", "the man eats " * 30]


def change(folder: Path, file: str, **values: Any) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def change_tokenizer(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def to_bfloat16(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file({name: value.to(torch.bfloat16) for name, value in load_file(file).items()}, file)


OTHERS: dict[str, Callable[[Path], None]] = {
    "MPNet": lambda folder: change(folder, "config.json", model_type="mpnet", relative_attention_num_buckets=32),
    "activation": lambda folder: change(folder, "config.json", hidden_act="relu"),
    "positions": lambda folder: change(folder, "config.json", position_embedding_type="relative_key"),
    "decoder": lambda folder: change(folder, "config.json", is_decoder=True),
    "shapes": lambda folder: change(folder, "config.json", hidden_size=16),
    "pooling": lambda folder: change(folder, "1_Pooling/config.json", pooling_mode="weightedmean"),
    "two poolings": lambda folder: change(folder, "1_Pooling/config.json", pooling_mode=["cls", "mean"]),
    "prompt left out": lambda folder: change(folder, "1_Pooling/config.json", include_prompt=False),
    "library's settings": lambda folder: change(folder, "sentence_bert_config.json", query_length=4),
    "task": lambda folder: change(folder, "sentence_bert_config.json", transformer_task="fill-mask"),
    "tokenizers disagree": change_tokenizer,
    "bfloat16 weights": lambda folder: to_bfloat16(folder),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "no modules": lambda folder: (folder / "modules.json").unlink(),
    "broken": lambda folder: (folder / "config.json").write_text("{", encoding="utf-8"),
}


@pytest.mark.parametrize("change_folder", OTHERS.values(), ids=OTHERS)
def test_other_models_are_left_to_the_library(
    tiny_folder: Path, tmp_path: Path, change_folder: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    assert bert.read_bert(folder, {}, max_seq_length=None, truncate_dim=None) is not None
    change_folder(folder)
    assert bert.read_bert(folder, {}, max_seq_length=None, truncate_dim=None) is None


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"precision": "bf16"}], ids=str)
def test_a_named_device_and_bf16_take_torch(tiny_folder: Path, options: dict[str, str]) -> None:
    assert isinstance(load_encoder(tiny_folder, cache=None)._backend, BertBackend)
    assert isinstance(load_encoder(tiny_folder, cache=None, **options)._backend, SentenceTransformerBackend)


def test_folders_of_earlier_versions_of_the_library(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "old")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": true}')
    flags = {"cls_token": False, "mean_tokens": False, "max_tokens": True, "mean_sqrt_len_tokens": False}
    flags = {f"pooling_mode_{name}": value for name, value in flags.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **flags}))
    change(folder, "tokenizer_config.json", do_lower_case=False)
    change_tokenizer(folder)
    ours, theirs = load_encoder(folder, cache=None), load_encoder(folder, device="cpu", cache=None)
    assert isinstance(ours._backend, BertBackend)
    assert ours.fingerprint == theirs.fingerprint
    texts = [*TEXTS, "The DOG runs"]
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-5, rtol=0)


def test_half_precision_weights_are_widened(tiny_folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(tiny_folder, tmp_path / "half")
    weights = {name: value.astype(np.float16) for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder, "config.json", dtype="float16")
    ours, theirs = load_encoder(folder, cache=None), load_encoder(folder, device="cpu", cache=None)
    assert isinstance(ours._backend, BertBackend)
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5, rtol=0)


def test_many_texts_go_to_a_gpu_with_the_same_result(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{text} {i}" for i in range(10) for text in TEXTS]
    encoder = load_encoder(tiny_folder, cache=None, query_prompt="the: ")
    documents, queries = encoder.encode(texts), encoder.encode_query(texts)
    calls: list[int] = []
    real = SentenceTransformerBackend.run
    monkeypatch.setattr(
        SentenceTransformerBackend, "run", lambda self, *given: calls.append(len(given[0])) or real(self, *given)
    )
    monkeypatch.setattr(bert, "MANY_TEXTS", len(texts))
    np.testing.assert_array_equal(encoder.encode(texts), documents)  # no GPU here
    monkeypatch.setattr(bert, "gpu_available", lambda: True)
    np.testing.assert_allclose(encoder.encode(texts), documents, atol=1e-5, rtol=0)
    np.testing.assert_allclose(encoder.encode_query(texts), queries, atol=1e-5, rtol=0)
    encoder.encode(texts[:-1])
    assert calls == [len(texts)] * 2


def test_an_index_of_one_opens_with_the_other(tmp_path: Path) -> None:
    torch = load_encoder("minilm", device="cpu", cache=None)
    first, second = (tmp_path / name for name in ("first", "second"))
    key = bytes(range(32))
    for place, writer, reader in ((first, torch, "minilm"), (second, "minilm", torch)):
        trusted = tmp_path / f"{place.name}.heads"
        with SealedIndex(place, key, encoder=writer, trusted_state=trusted) as index:
            index.add(["She felt sick after dinner.", "The invoice is overdue."], ids=["a", "b"])
        with SealedIndex(place, key, encoder=reader, trusted_state=trusted) as index:
            assert index.search("nausea after a meal", top=1).ids == ["a"]


def test_the_cache_is_one(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = load_encoder(tiny_folder, device="cpu", cache=tmp_path).encode(TEXTS)
    monkeypatch.setattr(BertBackend, "run", lambda *_: pytest.fail("encoded again"))
    np.testing.assert_array_equal(load_encoder(tiny_folder, cache=tmp_path).encode(TEXTS), vectors)


def test_threads_share_the_weights_of_a_file(tiny_folder: Path) -> None:
    first, second = (load_encoder(tiny_folder, cache=None) for _ in range(2))
    expected = load_encoder(tiny_folder, device="cpu", cache=None).encode(TEXTS)
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda encoder=encoder: results.append(encoder.encode(TEXTS)))  # type: ignore[misc]
        for encoder in (first, second, first, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_allclose(result, expected, atol=1e-5, rtol=0)
    names = [encoder._backend._model._weights for encoder in (first, second)]  # type: ignore[attr-defined]
    assert names[0] is names[1]
    weight = names[0]["encoder.layer.0.output.dense.weight"]
    assert not weight.flags.owndata  # a view of the mapped file
    assert not weight.flags.writeable


def test_nothing_is_read_before_a_text_is_encoded(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    encoder = load_encoder(folder, cache=None)
    assert encoder.fingerprint == load_encoder(tiny_folder, cache=None).fingerprint
    assert encoder.dimension == 32
    (folder / "tokenizer.json").write_text("{}")
    with raises("E-INPUT", "name"):
        encoder.encode(["the dog"])


def test_an_index_of_given_vectors_reads_no_model(tmp_path: Path) -> None:
    with SealedIndex(tmp_path / "index", bytes(range(32)), encoder="minilm", trusted_state=tmp_path / "heads") as index:
        index.add(["a text"], ids=["a"], vectors=np.eye(384)[:1])
        assert index.search(np.eye(384)[0], top=1).ids == ["a"]
        assert index.noted_encoder is not None
        assert index.encoder._backend._model._tokenizer is None  # type: ignore[union-attr]
        assert index.search("a text", top=1).ids == ["a"]


def test_weights_that_changed_after_the_fingerprint_are_not_read(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    encoder = load_encoder(folder, cache=None)
    before = encoder.fingerprint
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    os.utime(folder / "model.safetensors", ns=(1, 1))  # the memory of digests goes by size and time
    with raises("E-INPUT", "name"):
        encoder.encode(["the dog"])
    again = load_encoder(folder, cache=None)
    assert len(again.encode(["the dog"])) == 1
    assert again.fingerprint != before


def test_an_encoder_is_pickled_by_its_folder(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(tiny_folder, cache=None, query_prompt="the: ")
    vectors, queries = encoder.encode(TEXTS), encoder.encode_query(TEXTS)
    data = pickle.dumps(encoder)
    assert len(data) < 10_000
    for other in (pickle.loads(data), copy.deepcopy(encoder)):
        assert other.fingerprint == encoder.fingerprint
        np.testing.assert_array_equal(other.encode(TEXTS), vectors)
        np.testing.assert_array_equal(other.encode_query(TEXTS), queries)
    monkeypatch.setattr(bert, "MANY_TEXTS", 1)
    monkeypatch.setattr(bert, "gpu_available", lambda: True)
    np.testing.assert_allclose(pickle.loads(data).encode(TEXTS), vectors, atol=1e-5, rtol=0)


def test_the_window_is_at_most_that_of_the_model(tiny_folder: Path) -> None:
    for length in (0, 2, 65):
        with raises("E-INPUT-RANGE", "max_seq_length"):
            load_encoder(tiny_folder, max_seq_length=length)
    with raises("E-INPUT-TYPE", "max_seq_length"):
        load_encoder(tiny_folder, max_seq_length="9")


def test_missing_tokenizers_name_the_extra(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"vecveil\[minilm\]"):
        load_encoder(tiny_folder)


def test_paths_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    folder = build_tiny(tmp_path / "model")
    shutil.move(folder / "1_Pooling", tmp_path / "1_Pooling")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "../1_Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert bert.read_bert(folder, {}, max_seq_length=None, truncate_dim=None) is None


def test_gelu_is_exact() -> None:
    from scipy.special import ndtr

    x = np.linspace(-12, 12, 100_001).astype(np.float32)
    np.testing.assert_allclose(bert.gelu(x), x.astype(float) * ndtr(x.astype(float)), atol=6e-7, rtol=0)


def test_encoding_imports_no_torch() -> None:
    code = (
        "import sys, vecveil\n"
        "vecveil.load_encoder('minilm', cache=None).encode(['a text'])\n"
        "bad = {'torch', 'transformers', 'sentence_transformers', 'scipy.special', 'pandas'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
