"""One model is recognised by its vectors, in any precision and behind any server; another is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.http_encoder import embedding_server
from vecveil.errors import InvalidInputError
from vecveil.privacy.protector import EncoderInfo
from vecveil.texts.encoders import load_encoder
from vecveil.texts.encoders.text_encoder import PROBE_SENTENCES, PROBE_TOLERANCE, probe_cosines, probe_distance


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.asarray(load_encoder("minilm", cache=None).encode(PROBE_SENTENCES))


def probe(X: np.ndarray) -> tuple[float, ...]:
    return probe_cosines(lambda _: X, owner="test")


def test_half_precision_scale_and_rotation_change_nothing(vectors: np.ndarray) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(384, 384)))[0]
    for same in (vectors.astype(np.float16), 3 * vectors, vectors @ Q.astype(np.float32)):
        assert probe_distance(probe(vectors), probe(same)) < PROBE_TOLERANCE / 10


def test_other_vectors_are_another_encoder(vectors: np.ndarray) -> None:
    half = vectors[:, :192]
    noise = np.random.default_rng(0).normal(size=vectors.shape)
    for other in (half, vectors[::-1], noise):
        assert probe_distance(probe(vectors), probe(other)) > 2 * PROBE_TOLERANCE
    assert probe_distance(probe(vectors), ()) == np.inf


def test_vectors_that_are_none(vectors: np.ndarray) -> None:
    with pytest.raises(InvalidInputError):
        probe(vectors[:3])
    assert probe(np.zeros((12, 4))) == (0.0,) * 66


def test_a_protector_knows_its_encoder_behind_a_server(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 384))
    fitted = vecveil.fit_pairs(X, X + 1, method="laplace", noise_to_signal=0.5, encoder="minilm", seed=0)
    fitted.save(tmp_path / "a.vecveil")
    protector = vecveil.load(tmp_path / "a.vecveil")
    assert protector.encoder_info == fitted.encoder_info
    assert len(protector.encoder_info.probe) == 66
    minilm = load_encoder("minilm", cache=None)
    with embedding_server(encode=lambda texts: np.asarray(minilm.encode(texts))) as (url, _):
        protector.check_encoder(load_encoder(f"{url}#anything", cache=None))
    with embedding_server() as (url, _), raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        protector.check_encoder(load_encoder(f"{url}#anything", cache=None))


@pytest.mark.parametrize("changed", [{"probe": "x"}, {"probe": ["x"]}, {"probe": {}}, {"name": 3}, {"precision": []}])
def test_a_damaged_record(changed: dict) -> None:
    with pytest.raises(ValueError, match=r"probe|encoder"):
        EncoderInfo.from_record({"name": "a", "fingerprint": None, "precision": None, **changed})


def test_an_encoder_of_ones_own_is_not_asked_for_sentences_that_it_may_not_know() -> None:
    encoder = load_encoder(lambda texts: [{"a": [1.0, 2.0]}[text] for text in texts])
    assert EncoderInfo.of(encoder).probe == ()
