"""bf16 is chosen only where the hardware gains from it and it is close enough; else fp32."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from vecveil.texts.encoders import load_encoder, sentence_transformer
from vecveil.texts.encoders.sentence_transformer import cpu_has_bf16, lowest_cosine, verify_bf16


@pytest.mark.parametrize(("error", "chosen"), [(0.001, "bf16"), (0.1, "fp32"), (float("nan"), "fp32")])
def test_bf16_must_be_close(error: float, chosen: str) -> None:
    def encode(texts: list[str], name: str) -> np.ndarray:
        vectors = np.eye(len(texts), 64, dtype=np.float32)
        if name == "bf16":
            vectors[0, -1] = error  # one bad text is enough
        return vectors

    assert verify_bf16(encode) == chosen


def test_a_small_model_stays_in_fp32(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    monkeypatch.setattr(sentence_transformer, "cpu_has_bf16", lambda: True)
    assert load_encoder(tiny_folder, cache=None).precision == "fp32"


def test_lowest_cosine_is_of_the_worst_row() -> None:
    first = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    second = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert lowest_cosine(first, second) == pytest.approx(np.sqrt(0.5))
    assert lowest_cosine(np.zeros((1, 2)), np.ones((1, 2))) == -1.0


def test_auto_without_hardware_is_fp32(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    monkeypatch.setattr(sentence_transformer, "cpu_has_bf16", lambda: False)
    encoder = load_encoder(tiny_folder, cache=None)
    assert encoder.precision == "fp32"


def test_auto_with_hardware_asks_the_check(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    seen: list[float] = []

    def check(encode_with: sentence_transformer.EncodeWith) -> str:
        texts = list(sentence_transformer.CALIBRATION_TEXTS)
        seen.append(lowest_cosine(encode_with(texts, "fp32"), encode_with(texts, "bf16")))
        return "bf16"

    monkeypatch.setattr(sentence_transformer, "cpu_has_bf16", lambda: True)
    monkeypatch.setattr(sentence_transformer, "verify_bf16", check)
    monkeypatch.setattr(sentence_transformer, "MIN_WEIGHTS", 1)
    encoder = load_encoder(tiny_folder, cache=None)
    assert encoder.precision == "bf16"
    assert 0.99 < seen[0] < 1.0 - 1e-9  # both precisions really ran


def test_bf16_of_minilm_is_close_to_fp32(mixed_texts: list[str]) -> None:
    texts = [*(text for text in mixed_texts[-9:] if len(text) < 200), *sentence_transformer.CALIBRATION_TEXTS]
    half = load_encoder("minilm", precision="bf16", cache=None)
    full = load_encoder("minilm", precision="fp32", cache=None)
    first, second = half.encode(texts), full.encode(texts)
    assert first.dtype == np.float32
    assert lowest_cosine(first, second) >= sentence_transformer.MIN_COSINE
    assert np.abs(first - second).max() > 1e-6  # control: bf16 did run
    assert half.fingerprint != full.fingerprint
    assert half.model_fingerprint == full.model_fingerprint


def test_the_hardware_question_has_an_answer() -> None:
    assert cpu_has_bf16() in (True, False)


@pytest.mark.parametrize(("flag", "expected"), [("avx512_bf16", False), ("amx_bf16", True), ("bf16", True)])
def test_bf16_without_matrix_units_is_slower_than_fp32(
    monkeypatch: pytest.MonkeyPatch, flag: str, expected: bool
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {flag: True}, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"flags : fma {flag}\n")
    assert sentence_transformer.cpu_has_bf16() is expected


def test_calibration_texts_are_distinct_and_mixed() -> None:
    lengths = [len(text) for text in sentence_transformer.CALIBRATION_TEXTS]
    assert len(set(sentence_transformer.CALIBRATION_TEXTS)) == len(lengths)
    assert min(lengths) == 0
    assert max(lengths) > 200
    assert any(a != b for a, b in itertools.pairwise(lengths))
