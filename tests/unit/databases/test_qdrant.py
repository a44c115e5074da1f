"""Qdrant's own: nobody answers, ids of any text, and unit vectors under cosines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vecveil.databases import Batch, open_store
from vecveil.errors import StoreError


def test_nobody_answers() -> None:
    with open_store("qdrant:http://127.0.0.1:9#notes") as store:
        for call in (store.info, store.exists, lambda: store.create(3), lambda: store.read(["a"])):
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.__cause__ is None


def test_cosines_keep_directions_only(tmp_path: Path) -> None:
    X = np.array([[3, 4], [0, 2]], dtype=np.float32)
    with open_store(f"qdrant:{tmp_path}#notes") as store:
        store.create(2, metric="cosine")
        store.write(Batch(("a text", "7"), X, ({"page": 1}, {})))
        assert store.normalises
        read = store.read(["7", "a text"])
        np.testing.assert_allclose(read.vectors, [[0, 1], [0.6, 0.8]], atol=1e-6)
        assert read.fields == ({}, {"page": 1})
