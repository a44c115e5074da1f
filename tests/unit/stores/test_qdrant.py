"""Qdrant's own: nobody answers, ids of any text, and unit vectors under cosines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vecveil.errors import StoreError
from vecveil.stores import Batch, open_store


def test_nobody_answers() -> None:
    with open_store("qdrant:http://127.0.0.1:9#notes") as store:
        for call in (store.info, store.exists, lambda: store.create(3), lambda: store.read(["a"])):
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.__cause__ is None


def test_a_folder_keeps_what_was_written(tmp_path: Path) -> None:
    """Qdrant's local client scales to norm 1 in memory only: reads must not depend on which process wrote."""
    X = np.array([[3, 4], [0, 2]], dtype=np.float32)
    with open_store(f"qdrant:{tmp_path}#notes") as store:
        store.create(2, metric="cosine")
        store.write(Batch(("a text", "7"), X, ({"page": 1}, {})))
        assert not store.normalises
        for _ in range(2):
            assert store.search(np.float32([1, 2]), 1)[0].id == "a text"
            read = store.read(["7", "a text"])
            assert read.vectors.tolist() == [[0, 2], [3, 4]]
            assert read.fields == ({}, {"page": 1})
