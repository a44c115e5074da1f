"""What an audit takes for the database's view: lengths, tokens, and means over equal queries, to the last figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import vecveil
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch
from vecveil.stores.locations import in_this_process
from vecveil.stores.store import VectorStore, with_blob
from vecveil.stores.visible_rows import visible_queries, visible_rows

pytest.importorskip("sqlite_vec")

X = np.eye(6, 8, dtype=np.float32)
IDS = tuple("abcdef")


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    opened = in_this_process(f"sqlite-vec:{tmp_path}/rows.db#notes")
    opened.create(8, metric="cosine")
    fields = [with_blob({}, b"b" * (100 + i), {"vecveil_filter_tenant": "xy"[i % 2]}) for i in range(6)]
    opened.write(Batch(IDS, X, tuple(fields)))
    return opened


def test_rows_show_their_vectors_lengths_and_tokens(store: VectorStore) -> None:
    vectors, beside = visible_rows(store, ["c", "b"])
    np.testing.assert_array_equal(vectors, X[[2, 1]])
    assert beside is not None
    assert beside[:, 0].tolist() == [102, 101]
    assert sorted(beside[:, 1:].T.tolist()) == [[0, 1], [1, 0]]
    store.write(Batch(("g",), X[:1], ({},)))
    assert visible_rows(store, ["g"])[1] is None


def test_equal_queries_are_averaged_with_the_rows_they_fetch(store: VectorStore) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.standard_normal((2, 300, 8)).astype(np.float32)
    protector = vecveil.fit_pairs(*pairs, method="laplace", noise_to_signal=0.01)
    fetched: list[list[int]] = []
    search = store.search

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.stack([X[IDS.index(text)] for text in texts])

    def observed(vector: np.ndarray, k: int) -> list[object]:
        matches = search(vector, k)
        fetched.append([IDS.index(match.id) for match in matches])
        return list(matches)

    store.search = observed  # type: ignore[assignment, method-assign]
    queries = ["a", "b", "a"]
    seen, centres = visible_queries(store, ReleasePolicy(protector), queries, encode, candidates=2)
    assert [len(rows) for rows in fetched] == [2, 2, 2]
    visible_queries(store, ReleasePolicy(protector), ["a"], encode, candidates=None)
    assert len(fetched.pop()) == 6  # of 200, the number where the protector's report has none
    assert [rows[0] for rows in fetched] == [0, 1, 0]  # the noise is small: each finds itself first
    means = np.stack([X[rows].mean(axis=0) for rows in fetched])
    np.testing.assert_array_equal(seen[0], seen[2])
    np.testing.assert_allclose(centres[1], means[1], atol=1e-6)
    np.testing.assert_allclose(centres[0], (means[0] + means[2]) / 2, atol=1e-6)
    assert np.abs(seen - encode(queries)).max() < 0.2
    assert np.abs(seen - encode(queries)).min() > 0  # control: noise was drawn
