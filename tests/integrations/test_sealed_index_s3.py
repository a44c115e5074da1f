"""A sealed index behind S3's API, spoken over HTTP to a server that keeps objects in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.index import SealedIndex
from vecveil.index.storage import RemoteObject

KEY = bytes(range(32))
X = np.eye(6, 8)


def opened(place: str, options: dict[str, Any], tmp_path: Path, process: str = "a") -> SealedIndex:
    return SealedIndex(f"s3://bucket/{place}", KEY, storage_options=options, cache=tmp_path / process, max_staleness=0)


def test_of_two_commits_with_one_number_the_second_begins_again(s3_options: dict[str, Any], tmp_path: Path) -> None:
    one, two = opened("race", s3_options, tmp_path), opened("race", s3_options, tmp_path, "b")
    one.add(None, ids=list("abc"), vectors=X[:3])
    assert two.count() == 3
    one.add(None, ids=list("def"), vectors=X[3:])
    assert two.count() == 6
    create, done = two._log.storage.create, []

    def overtaken(name: str, data: bytes) -> None:
        if not done:
            done.append(name)
            one.forget(["a"])
        create(name, data)

    two._log.storage.create = overtaken  # type: ignore[method-assign]
    two.compact()
    assert done
    assert sorted(two.ids()) == sorted(one.ids()) == list("bcdef")


def test_a_put_that_happened_though_it_failed_is_not_a_conflict(
    s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = opened("timeout", s3_options, tmp_path)
    put, names = index._log.storage._fs.put_file, list[str]()

    def late(path: str, name: str, **options: Any) -> None:
        put(path, name, **options)
        if name not in names:
            names.append(name)
            raise TimeoutError

    monkeypatch.setattr(index._log.storage._fs, "put_file", late)
    index.add(["text"], ids=["a"], vectors=X[:1])
    index.add(["text"], ids=["b"], vectors=X[:1])
    assert len(names) == 5
    assert opened("timeout", s3_options, tmp_path, "b").count() == 2


def test_a_withheld_mark_is_named_and_not_made_again(s3_options: dict[str, Any], tmp_path: Path) -> None:
    """A process that has not written yet tries the storage's condition by creating it a second time."""
    opened("withheld", s3_options, tmp_path).add(None, ids=["a"], vectors=X[:1])
    index = opened("withheld", s3_options, tmp_path, "b")
    assert index.count() == 1
    index._log.storage.delete(["index.json"])
    with raises("E-INDEX-INCOMPLETE"):
        index.add(None, ids=["b"], vectors=X[1:2])
    assert not index._log.storage.has("index.json")


def test_a_search_of_a_remote_index_fetches_the_parts_that_it_needs(
    s3_options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept on disk; the rows of a search are those of an index in memory."""
    vectors = np.random.default_rng(0).standard_normal((5000, 128)).astype(np.float32)
    opened("parts", s3_options, tmp_path).add(
        [f"text {i} {'long ' * 40}" for i in range(len(vectors))],
        ids=[str(i) for i in range(len(vectors))],
        vectors=vectors,
        metadata=[{"half": i % 2} for i in range(len(vectors))],
    )
    local = opened("parts", s3_options, tmp_path)
    remote = SealedIndex(
        "s3://bucket/parts", KEY, storage_options=s3_options, cache=tmp_path / "empty", vectors="remote"
    )
    fetched = list[int]()
    spans = RemoteObject.spans

    def counted(source: RemoteObject, wanted: Any) -> list[bytes]:
        fetched.extend(stop - start for start, stop in wanted)
        return spans(source, wanted)

    monkeypatch.setattr(RemoteObject, "spans", counted)
    (size,) = (each.bytes for each in local._log.advance().objects.values())
    for query in vectors[:2] + 0.1 * vectors[2:4]:
        for options in ({}, {"where": {"half": 1}}, {"mode": "hybrid", "words": "17"}):
            hits, expected = remote.search(query, top=3, **options), local.search(query, top=3, **options)
            assert (hits.ids, hits.texts, hits.metadata) == (expected.ids, expected.texts, expected.metadata)
            np.testing.assert_array_equal(hits.scores, expected.scores)
    assert 0 < sum(fetched) < size * 0.9
    assert not list((tmp_path / "empty").rglob("*.*"))
    assert remote.ids() == local.ids()
    remote.add(["new"], ids=["0"], vectors=vectors[:1])
    remote.compact()
    assert remote.get(["0"]).texts == ["new"]
    with raises("E-INPUT", "vectors"):
        SealedIndex(tmp_path, KEY, vectors="remote")
    with raises("E-INPUT-NAME", "vectors"):
        SealedIndex(tmp_path, KEY, vectors="nowhere")  # type: ignore[arg-type]
