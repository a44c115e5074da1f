"""Our encoding, in NumPy and in torch, equals the library's own, for every pooling, length and setting."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from unit.texts.encoders.conftest import build_tiny, library_modules
from vecveil import runtime
from vecveil.texts.encoders import as_text_encoder, load_encoder
from vecveil.texts.encoders.bert import BertBackend


def library_vectors(folder: Path, texts: list[str], **options: object) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    encode_options = {k: options.pop(k) for k in ("prompt", "normalize_embeddings") if k in options}
    model = SentenceTransformer(str(folder), device="cpu", **options)
    return model.encode(texts, show_progress_bar=False, **encode_options)


# "auto" takes NumPy for these models, and a named device torch.
DEVICES = ["auto", "cpu"]


@pytest.mark.parametrize("device", DEVICES)
def test_minilm_equals_the_library(minilm_folder: Path, mixed_texts: list[str], device: str) -> None:
    encoder = load_encoder("minilm", device=device, cache=None)
    assert isinstance(encoder._backend, BertBackend) is (device == "auto")
    ours = encoder.encode(mixed_texts)
    assert ours.dtype == np.float32
    assert ours.shape == (len(mixed_texts), encoder.dimension) == (len(mixed_texts), 384)
    assert encoder.keeps_accents is False
    np.testing.assert_allclose(ours, library_vectors(minilm_folder, mixed_texts), atol=1e-5, rtol=0)
    # Control: the rows are told apart by far more than the tolerance.
    assert np.abs(ours[0] - ours[1]).max() > 1e-3


def test_bf16_of_minilm_is_close_to_fp32(mixed_texts: list[str]) -> None:
    texts = [text for text in mixed_texts[-9:] if len(text) < 200]
    half, full = load_encoder("minilm", precision="bf16", cache=None), load_encoder("minilm", cache=None)
    first, second = half.encode(texts), full.encode(texts)
    assert first.dtype == np.float32
    assert ((first * second).sum(axis=1) >= 0.9999).all()
    assert np.abs(first - second).max() > 1e-6  # control: bf16 did run
    assert half.fingerprint != full.fingerprint
    assert half.model_fingerprint == full.model_fingerprint


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_batches_on_several_threads_give_the_same(
    tiny_folder: Path, mixed_texts: list[str], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()
    encoder = load_encoder(tiny_folder, cache=None, device="cpu", precision=precision, batch_size=5)
    encoder._backend._model.register_forward_hook(lambda *_: threads.add(threading.get_ident()))
    vectors = []
    for count in ("1", "3"):
        monkeypatch.setattr(runtime, "_pool", None)
        monkeypatch.setenv("VECVEIL_THREADS", count)
        vectors.append(encoder.encode(mixed_texts * 3))
        assert (len(threads) > 1) is (count == "3")
    # Torch adds up in another order when it has another number of threads: the last bit may differ.
    np.testing.assert_allclose(*vectors, atol=1e-6 if precision == "fp32" else 0.05, rtol=0)
    # Control: rows that changed places would be further apart.
    assert np.abs(vectors[0][0] - vectors[0][1]).max() > 0.1


def test_a_query_takes_one_thread_of_torch(tiny_folder: Path) -> None:
    import torch

    before, threads = torch.get_num_threads(), []
    encoder = load_encoder(tiny_folder, cache=None, device="cpu")
    encoder._backend._model.register_forward_hook(lambda *_: threads.append(torch.get_num_threads()))  # type: ignore[attr-defined]
    torch.set_num_threads(2)
    try:
        encoder.encode(["the dog runs"])
        encoder.encode(["the dog runs " * 400])
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 2]


def test_the_tokeniser_gets_long_texts_a_few_at_a_time(
    tiny_folder: Path, mixed_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load_encoder(tiny_folder, cache=None, device="cpu")
    whole = encoder.encode(mixed_texts)
    monkeypatch.setattr("vecveil.texts.encoders.sentence_transformer.CHARACTERS_AT_A_TIME", 100)
    model, calls = encoder._backend._model, []
    name = "preprocess" if hasattr(model, "preprocess") else "tokenize"
    tokenise = getattr(model, name)
    monkeypatch.setattr(model, name, lambda texts: calls.append(list(map(len, texts))) or tokenise(texts))
    np.testing.assert_allclose(encoder.encode(mixed_texts), whole, atol=1e-6)
    assert sum(map(len, calls)) == len(mixed_texts)
    assert all(len(call) == 1 or max(call) * len(call) <= 100 for call in calls)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
@pytest.mark.parametrize("normalize", [False, True])
def test_tiny_models_equal_the_library(tmp_path: Path, mixed_texts: list[str], pooling: str, normalize: bool) -> None:
    folder = build_tiny(tmp_path / "model", pooling=pooling, normalize=normalize)
    expected, fingerprints = library_vectors(folder, mixed_texts), set()
    for device in DEVICES:
        encoder = load_encoder(folder, cache=None, device=device, batch_size=5)
        ours = encoder.encode(mixed_texts)
        np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=0)
        assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5) is normalize
        fingerprints.add(encoder.fingerprint)
    assert len(fingerprints) == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"prompt": "the dog "}, {"prompt": "the dog "}),
        ({"truncate_dim": 16}, {"truncate_dim": 16}),
        ({"normalize": True}, {"normalize_embeddings": True}),
    ],
)
def test_options_equal_the_library(
    tiny_folder: Path, mixed_texts: list[str], ours: dict[str, object], theirs: dict[str, object], device: str
) -> None:
    got = load_encoder(tiny_folder, cache=None, device=device, **ours).encode(mixed_texts)
    np.testing.assert_allclose(got, library_vectors(tiny_folder, mixed_texts, **theirs), atol=1e-5, rtol=0)


def test_max_seq_length_cuts_texts(tiny_folder: Path) -> None:
    encoder = load_encoder(tiny_folder, cache=None, max_seq_length=5)
    first, second = encoder.encode(["the dog runs fast red blue", "the dog runs a cat"])
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_an_object_of_the_library_gives_the_same(tiny_folder: Path, mixed_texts: list[str]) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_folder), device="cpu")
    encoder = as_text_encoder(model, cache=None)
    loaded = load_encoder(tiny_folder, cache=None)
    np.testing.assert_allclose(encoder.encode(mixed_texts), loaded.encode(mixed_texts), atol=1e-5)
    assert encoder.fingerprint is not None


def test_an_object_in_half_precision_is_run_as_it_is(tiny_folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(tiny_folder), device="cpu").bfloat16()
    encoder = as_text_encoder(model, cache=None)
    assert encoder.precision == "native"
    assert encoder.encode(["the dog"]).dtype == np.float32
    with raises("E-INPUT", "precision"):
        as_text_encoder(model, cache=None, precision="fp32")


def test_models_without_attention_masks_go_by_the_library(mixed_texts: list[str]) -> None:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "dog": 1, "cat": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    static = library_modules().StaticEmbedding(tokenizer, embedding_weights=weights)
    model = SentenceTransformer(modules=[static], device="cpu")
    texts = [text for text in mixed_texts if text.strip()]
    ours = as_text_encoder(model, cache=None).encode(texts)
    np.testing.assert_allclose(ours, model.encode(texts), atol=1e-5)


def test_no_texts_give_no_rows(tiny_folder: Path) -> None:
    encoder = load_encoder(tiny_folder, cache=None)
    assert encoder.encode([]).shape == (0, 32)


def test_a_lone_surrogate_is_refused_by_position(tiny_folder: Path) -> None:
    encoder = load_encoder(tiny_folder, cache=None)
    with raises("E-INPUT", "texts") as caught:
        encoder.encode(["fine", "secretword\ud800"])
    assert "secretword" not in str(caught.value)


def test_a_bare_string_is_refused(tiny_folder: Path) -> None:
    encoder = load_encoder(tiny_folder, cache=None)
    with raises("E-INPUT-TYPE", "texts"):
        encoder.encode("text")


def test_the_bar_counts_texts(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = load_encoder(tiny_folder, cache=None, show_progress=True)
    encoder.encode(["the dog", "the dog", "a cat"])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "3/3" in shown.err
    encoder.encode(["the dog"], show_progress=False)
    assert capsys.readouterr().err == ""
