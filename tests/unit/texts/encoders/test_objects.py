"""Callables and objects of the user's own: wrapped, checked, cached only with a fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.texts.encoders import Encoder, TextEncoder, as_text_encoder, load_encoder
from vecveil.validation import checked_vectors


class Lengths:
    """Encodes a text as its length; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), 1.0, -1.0] for text in texts])


def test_callables_and_objects_are_wrapped() -> None:
    lengths = Lengths()
    assert isinstance(lengths, Encoder)
    expected = np.array([[1, 1, -1], [0, 1, -1]], np.float32)
    for given in (lengths, lengths.encode, lambda texts: lengths.encode(texts).tolist()):
        encoder = as_text_encoder(given)
        assert encoder.dimension == 3
        assert encoder.fingerprint is None
        assert encoder.cache is None
        assert encoder.precision == "native"
        np.testing.assert_array_equal(encoder.encode(["a", ""]), expected)
    assert as_text_encoder(encoder) is encoder
    assert isinstance(load_encoder(lengths), TextEncoder)
    assert as_text_encoder(lengths).name == "Lengths"


def test_equal_texts_are_encoded_once_and_batches_are_small() -> None:
    sizes: list[int] = []

    def encode(texts: list[str]) -> np.ndarray:
        sizes.append(len(texts))
        return np.array([[float(text)] for text in texts])

    texts = [str(i % 10) for i in range(100)]
    got = as_text_encoder(encode, batch_size=4).encode(texts)
    np.testing.assert_array_equal(got[:, 0], [float(text) for text in texts])
    assert sizes == [4, 4, 2]


def test_a_fingerprint_turns_the_cache_on(tmp_path: Path) -> None:
    lengths = Lengths()
    for _ in range(2):
        encoder = as_text_encoder(lengths, fingerprint="lengths-1", cache=tmp_path)
        got = encoder.encode(["one", "three"])
        np.testing.assert_array_equal(got[:, 0], [3, 5])
    assert lengths.asked == ["one", "three"]
    as_text_encoder(lengths, fingerprint="lengths-2", cache=tmp_path).encode(["one"])
    assert lengths.asked == ["one", "three", "one"]


def test_an_encoder_that_changed_under_its_fingerprint_is_refused(tmp_path: Path) -> None:
    def two(texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2))

    as_text_encoder(Lengths(), fingerprint="same", cache=tmp_path).encode(["one"])
    with raises("E-INPUT", "fingerprint"):
        as_text_encoder(two, fingerprint="same", cache=tmp_path).encode(["one", "two"])


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (np.ones((3, 2)), "E-INPUT-SHAPE"),
        (np.ones(2), "E-INPUT-SHAPE"),
        (np.ones((2, 0)), "E-INPUT-SHAPE"),
        (np.array([[1.0], [np.nan]]), "E-INPUT-FINITE"),
        (np.array([[1e300], [1.0]]), "E-INPUT-FINITE"),
        ([[1.0, 2.0], [1.0]], "E-INPUT-TYPE"),
        ([["a"], ["b"]], "E-INPUT-TYPE"),
        (None, "E-INPUT-TYPE"),
        (np.ma.masked_equal([[1.0, 2.0], [3.0, 9.0]], 9.0), "E-INPUT-TYPE"),
        ([np.ma.masked_equal([1.0, 9.0], 9.0), np.ones(2)], "E-INPUT-TYPE"),
        (np.array([[1j], [1j]]), "E-INPUT-TYPE"),
    ],
)
def test_what_is_no_array_of_vectors_is_refused(returned: Any, code: str) -> None:
    with raises(code, "encode"):
        as_text_encoder(lambda _: returned).encode(["one", "two"])


def test_the_dimension_must_stay() -> None:
    widths = iter([2, 2, 3])
    encoder = as_text_encoder(lambda texts: np.ones((len(texts), next(widths))))
    encoder.encode(["a"])
    encoder.encode(["b"])
    with raises("E-INPUT", "encode"):
        encoder.encode(["c"])


def test_tensors_are_taken() -> None:
    import torch

    rows = [[1.0, 2.0], [3.0, 4.0]]
    expected = np.array(rows, np.float32)
    tensor = torch.tensor(rows, dtype=torch.bfloat16, requires_grad=True)
    for value in (tensor, [tensor[0], tensor[1]], [np.array(row) for row in rows], rows):
        got = checked_vectors(value, rows=2, owner="test")
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)


def test_other_objects_and_options_are_refused(tiny_folder: Path) -> None:
    with raises("E-INPUT-TYPE", "encoder"):
        load_encoder(3)  # type: ignore[arg-type]
    with raises("E-INPUT-TYPE", "encoder"):
        as_text_encoder(Lengths)
    with raises("E-INPUT", "options"):
        load_encoder(Lengths(), nonsense=1)
    with raises("E-INPUT", "options"):
        load_encoder(tiny_folder, nonsense=1)
    with raises("E-INPUT-TYPE", "fingerprint"):
        as_text_encoder(Lengths(), fingerprint="")
    for wrong in (0, -1, 2.5, True):
        with raises("E-INPUT", "batch_size"):
            load_encoder(tiny_folder, batch_size=wrong)  # type: ignore[arg-type]
    with raises("E-INPUT", "precision"):
        load_encoder(tiny_folder, precision="int8")
    with raises("E-INPUT", "device"):
        load_encoder(tiny_folder, device="abacus")


def test_embeddings_of_langchain_are_taken() -> None:
    class Embeddings:
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[float(len(text)), 1.0] for text in texts]

    encoder = as_text_encoder(Embeddings())
    np.testing.assert_array_equal(encoder.encode(["one", "three"]), [[3, 1], [5, 1]])
    assert encoder.name == "Embeddings"
