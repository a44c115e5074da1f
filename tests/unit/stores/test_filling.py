"""A copy into a sealed index is verified at the index's precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vecveil.errors import IncompatibleError
from vecveil.index import SealedIndex
from vecveil.stores import Batch, VectorStore
from vecveil.stores.filling import fill
from vecveil.stores.locations import in_this_process

pytest.importorskip("sqlite_vec")

ROWS = 40


@pytest.fixture
def source(tmp_path: Path) -> Iterator[VectorStore]:
    with in_this_process(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        store.create(16, metric="cosine")
        yield store


@pytest.mark.parametrize(
    ("precision", "length"),
    [("float16", 0.01), ("float16", 1), ("float16", 1e4), ("int8", 1), ("int8", 1e-12), ("int8", 1e12)],
)
def test_a_copy_is_verified_and_repeated(tmp_path: Path, source: VectorStore, precision: str, length: float) -> None:
    X = np.random.default_rng(0).standard_normal((ROWS, 16)).astype(np.float32)
    X *= np.float32(length) / np.linalg.norm(X, axis=1, keepdims=True)
    source.write(Batch(tuple(f"n{i}" for i in range(ROWS)), X, ({},) * ROWS))
    with SealedIndex(tmp_path / "index", os.urandom(32), precision=precision) as index:
        first = fill(source, index)
        assert (first.written, first.compared) == (ROWS, ROWS)
        assert fill(source, index).written == 0
        # The largest difference that is no rounding: two steps of int8.
        X[3, 0] += 2 * np.abs(X[3]).max() / 127
        source.write(Batch(("n3",), X[3:4], ({},)))
        assert fill(source, index).written == 1


def test_vectors_of_another_dimension_do_not_replace_rows(tmp_path: Path, source: VectorStore) -> None:
    source.write(Batch(("n0",), np.ones((1, 16), np.float32), ({},)))
    with SealedIndex(tmp_path / "index", os.urandom(32)) as index:
        index.add(ids=["n0"], vectors=np.ones((1, 8), np.float32))
        with pytest.raises(IncompatibleError, match="16 dimensions; the index has vectors of 8"):
            fill(source, index)
