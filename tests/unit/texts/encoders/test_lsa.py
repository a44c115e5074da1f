"""The LSA encoder: its formula, its files, its fingerprint, and what it refuses."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from vecveil.texts.encoders import LsaEncoder, as_text_encoder, load_encoder

WORDS = [f"word{chr(97 + i)}" for i in range(26)]


def made_texts(count: int = 120, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=6)) for _ in range(count)]


@pytest.fixture(scope="module")
def fitted() -> LsaEncoder:
    return LsaEncoder.fit(made_texts(), dimension=10)


def test_vectors_have_norm_1_and_do_not_depend_on_the_batch(fitted: LsaEncoder) -> None:
    texts = [*made_texts(30, seed=2), "", "nothing known here", WORDS[0].upper()]
    together = fitted.encode(texts)
    assert together.shape == (33, 10)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    for i, text in enumerate(texts):
        np.testing.assert_array_equal(fitted.encode([text])[0], together[i])
    np.testing.assert_array_equal(together[30], together[31])
    np.testing.assert_array_equal(together[32], fitted.encode([WORDS[0]])[0])
    assert fitted.encode([]).shape == (0, 10)


def test_the_same_texts_give_the_same_encoder(fitted: LsaEncoder) -> None:
    again = LsaEncoder.fit(made_texts(), dimension=10)
    assert again.fingerprint == fitted.fingerprint
    others = [
        LsaEncoder.fit(made_texts(seed=5), dimension=10),
        LsaEncoder.fit(made_texts(), dimension=9),
        LsaEncoder.fit(made_texts(), dimension=10, ngrams=2),
    ]
    assert len({fitted.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_saves_and_loads_the_same_vectors(fitted: LsaEncoder, tmp_path: Path) -> None:
    fitted.save(tmp_path / "lsa")
    loaded = LsaEncoder.load(tmp_path / "lsa")
    assert loaded.fingerprint == fitted.fingerprint
    texts = made_texts(10, seed=3)
    np.testing.assert_array_equal(loaded.encode(texts), fitted.encode(texts))
    encoder = load_encoder(tmp_path / "lsa", cache=tmp_path / "cache")
    assert encoder.name == as_text_encoder(fitted).name == "lsa"
    assert encoder.fingerprint == load_encoder(fitted).fingerprint == fitted.fingerprint
    np.testing.assert_array_equal(encoder.encode(texts), fitted.encode(texts))
    for file in (tmp_path / "lsa").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_damaged_folders_are_refused_without_a_term(fitted: LsaEncoder, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    file = tmp_path / "lsa.safetensors"
    whole = file.read_bytes()
    turned = whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:]
    for data in (b"", b"{", whole[:100], turned, whole.replace(b'\\"ngrams\\": 1', b'\\"ngrams\\": 2')):
        assert data != whole
        file.write_bytes(data)
        with raises("E-DATA-FILE", "folder") as caught:
            LsaEncoder.load(tmp_path)
        assert "word" not in str(caught.value)
    file.unlink()
    with raises("E-DATA-FILE", "folder"):
        LsaEncoder.load(tmp_path)


def test_refuses_what_cannot_be_fitted() -> None:
    with raises("E-INPUT", "dimension"):
        LsaEncoder.fit(made_texts(20), dimension=20)
    with raises("E-INPUT", "dimension"):
        LsaEncoder.fit([f"alone{i}" for i in range(50)], dimension=5)
    with raises("E-INPUT-RANGE", "ngrams"):
        LsaEncoder.fit(made_texts(), dimension=5, ngrams=3)
    with raises("E-INPUT", "name"):
        load_encoder("lsa")
