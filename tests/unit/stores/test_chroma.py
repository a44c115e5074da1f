"""Chroma's own: its fields, a folder that is no database, and a server that goes away."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.store_factories import chroma_server
from vecveil.errors import StoreError
from vecveil.keys import KeyFile
from vecveil.stores import Batch, open_store
from vecveil.stores.collection import ProtectedCollection
from vecveil.stores.locations import in_this_process
from vecveil.stores.scanning import scan
from vecveil.stores.store import PROTECTOR_FIELD


def batch(count: int, start: int = 0) -> Batch:
    X = np.random.default_rng(start).standard_normal((count, 4)).astype(np.float32)
    ids = tuple(f"r{start + i}" for i in range(count))
    return Batch(ids, X, tuple({"page": i} for i in range(count)))


def test_text_and_address_are_fields(tmp_path: Path) -> None:
    with chromadb.PersistentClient(tmp_path) as client:
        made = client.create_collection("notes", embedding_function=None)
        made.add(ids=["a"], embeddings=[[1, 2]], documents=["a text"], metadatas=[{"page": 3}])
        made.add(ids=["b"], embeddings=[[3, 4]], uris=["file:b"])
    with in_this_process(f"chroma:{tmp_path}") as store:
        assert store.info().name == "notes", "the only collection needs no name"
        read = store.read(["b", "a"])
        assert read.fields == ({"chroma:uri": "file:b"}, {"page": 3, "chroma:document": "a text"})
        np.testing.assert_array_equal(read.vectors, [[3, 4], [1, 2]])


@pytest.mark.slow
def test_scan_finds_what_the_queue_keeps_of_replaced_rows(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    with chromadb.PersistentClient(tmp_path) as client:
        made = client.create_collection("notes", embedding_function=None, configuration={"hnsw": {"space": "cosine"}})
        client.create_collection("others", embedding_function=None).add(ids=["a"], embeddings=X[:1])
        made.add(ids=list("abcd"), embeddings=X[:4], documents=["she takes one of them every day"] * 4)
        made.add(ids=["z"], embeddings=X[4:5])
    with open_store(f"chroma:{tmp_path}#notes") as store:
        assert not scan(store, show_progress=False).beside, "the queue has the same rows"
        marked = tuple({PROTECTOR_FIELD: "0123456789abcdef"} for _ in "abc")
        for noise in (1, 2):  # what vecveil wrote itself is no clean vector
            store.write(Batch(tuple("abc"), X[:3] + noise * X[3:6], marked))
        store.delete(["z"])
        seen = scan(store, show_progress=False)
    assert {one.name: one.rows for one in seen.beside} == {
        "embeddings_queue.vector": 4,
        "embeddings_queue.chroma:document": 3,
    }
    assert {"numbers-in-other-tables", "plaintext-in-other-tables"} <= {one.code for one in seen.findings}


@pytest.mark.slow
def test_a_sealed_collection_refuses_texts(tmp_path: Path) -> None:
    KeyFile.create(tmp_path / "search.keys", "one")
    X = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    protector = vecveil.fit_pairs(X, X[::-1], method="laplace", noise_to_signal=0.5)
    for apart, name in ((False, "notes"), (True, "apart")):
        store = in_this_process(f"chroma:{tmp_path}#{name}")
        with store.apart() if apart else store as opened:
            made = ProtectedCollection(opened, protector, tmp_path / "search.keys", name=name)
            made.add(["a"], ids=["1"], vectors=X[:1])
            made.add(["b"], ids=["2"], vectors=X[1:2])
    client = chromadb.PersistentClient(str(tmp_path), chromadb.config.Settings(anonymized_telemetry=False))
    for name in ("notes", "apart"):
        collection = client.get_collection(name)
        with pytest.raises(Exception, match="vecveil"):
            collection.add(ids=["3"], documents=["clean"])
        assert collection.count() == 2
    client.close()


def test_replacing_leaves_nothing_of_the_old_row(tmp_path: Path) -> None:
    X = np.ones((2, 2), dtype=np.float32)
    old = ({"page": 1, "more": 2, "chroma:document": "old"}, {"page": 5})
    with in_this_process(f"chroma:{tmp_path}#notes") as store:
        store.create(2)
        store.write(Batch(("a", "b"), X, old))
        store.write(Batch(("a", "b"), X * 2, ({"page": 7}, {"page": 6, "none": None})))
        assert store.read(["a", "b"]).fields == ({"page": 7}, {"page": 6})
        assert store.info().count == 2


def test_fields_that_chroma_has_no_value_for_are_refused(tmp_path: Path) -> None:
    X = np.ones((1, 2), dtype=np.float32)
    with in_this_process(f"chroma:{tmp_path}#notes") as store:
        store.create(2)
        with raises("E-INPUT", "fields"):
            store.write(Batch(("a",), X, ({"nested": {"a": 1}},)))
        assert store.info().count == 0
        store.write(Batch(("a",), X, ({"tags": ["x", "y"], "whole": np.int64(3)},)))
        assert store.read(["a"]).fields == ({"tags": ["x", "y"], "whole": 3},)


def test_more_collections_than_one_need_a_name(tmp_path: Path) -> None:
    with chromadb.PersistentClient(tmp_path) as client:
        for name in ("notes", "others"):
            client.create_collection(name, embedding_function=None)
    with in_this_process(f"chroma:{tmp_path}") as store:
        with raises("E-STORE", "location"):
            store.info()
        assert not store.exists()
        with raises("E-INPUT", "location"):
            store.create(3)


def test_a_name_that_chroma_refuses_is_pointed_at(tmp_path: Path) -> None:
    with in_this_process(f"chroma:{tmp_path / 'store'}#n") as store, raises("E-STORE-DATABASE") as caught:
        store.create(4)
    assert "name" in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "given", "metric"),
    [
        ({"hnsw:space": "cosine"}, None, "cosine"),
        ({"hnsw:space": "ip"}, None, "dot"),
        (None, None, "euclidean"),
        (None, "cosine", "cosine"),
        ({"hnsw:space": "cosine"}, "ip", "dot"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_the_metric_of_a_collection(tmp_path: Path, metadata: Any, given: str | None, metric: str, old: bool) -> None:
    """Chroma before 1.0 wrote the metric to the metadata alone."""
    with chromadb.PersistentClient(tmp_path) as client:
        made = client.create_collection(
            "notes",
            embedding_function=None,
            metadata=metadata,
            configuration=None if given is None else {"hnsw": {"space": given}},
        )
        made.add(ids=["a"], embeddings=[[1, 2]])
    if old and given is None:
        with contextlib.closing(sqlite3.connect(tmp_path / "chroma.sqlite3")) as file, file:
            file.execute("UPDATE collections SET config_json_str = '{}', schema_str = NULL")
    with in_this_process(f"chroma:{tmp_path}#notes") as store:
        assert store.info().metric == metric


@pytest.mark.slow
def test_tenants_and_databases_are_named(tmp_path: Path) -> None:
    with chromadb.PersistentClient(tmp_path) as client:
        client._admin_client.create_tenant("acme")
        client._admin_client.create_database("one", "acme")
        with chromadb.PersistentClient(tmp_path, tenant="acme", database="one") as other:
            other.create_collection("notes", embedding_function=None).add(ids=["a"], embeddings=[[1, 2]])
    others = ("notes?tenant=acme", "notes?database=one", "notes?tenant=acme&database=two")
    for open_, more in ((open_store, ()), (in_this_process, others)):
        with open_(f"chroma:{tmp_path}#notes?tenant=acme&database=one") as store:
            assert store.read(["a"]).vectors.tolist() == [[1, 2]]
        for wrong in ("notes", *more):
            with open_(f"chroma:{tmp_path}#{wrong}") as store, raises("E-STORE-NOT-FOUND") as caught:
                store.info()
    assert "'one'" in str(caught.value)


def test_places_that_are_no_database(tmp_path: Path) -> None:
    nothing = in_this_process(f"chroma:{tmp_path / 'nothing'}#a")
    with raises("E-STORE-NOT-FOUND", "location"):
        nothing.info()
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "chroma.sqlite3").write_bytes(b"not a database at all, " * 100)
    with in_this_process(f"chroma:{tmp_path}#abc") as store, pytest.raises(StoreError):
        store.info()


def test_nobody_answers() -> None:
    with in_this_process("chroma:http://127.0.0.1:9#notes") as store:
        for call in (store.info, store.exists, lambda: store.create(3), lambda: store.read(["a"])):
            with raises("E-STORE-DATABASE") as caught:
                call()
            assert caught.value.__cause__ is None


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    rows = batch(60)
    with chroma_server(tmp_path / "db") as (process, url), in_this_process(f"chroma:{url}#notes") as store:
        assert not store.exists()
        store.create(4, metric="euclidean")
        store.write(rows)
        assert store.read(rows.ids).vectors.tobytes() == rows.vectors.tobytes()
        going = store.batches(25)
        first = next(going)
        process.kill()
        process.wait()
        with raises("E-STORE-DATABASE", "reading rows"):
            next(going)
        with raises("E-STORE-DATABASE", "writing rows") as caught:
            store.write(batch(3, start=90))
        assert caught.value.__cause__ is None
    with in_this_process(f"chroma:{tmp_path / 'db'}#notes") as store:
        rest = [one for part in store.batches(25, after=first.cursor) for one in part.ids]
        assert first.ids + tuple(rest) == rows.ids
    gc.collect()  # a socket that is left open would warn
