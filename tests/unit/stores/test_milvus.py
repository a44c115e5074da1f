"""Collections of Milvus Lite as stores: other people's collections, keys of numbers, order, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pymilvus import MilvusClient

from harness.errors import raises
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.protector import Protector
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.stores.migrating import migrate
from vecveil.stores.milvus import MilvusStore, _literal
from vecveil.stores.scanning import scan

X = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("milvus") / "rows.db"


@pytest.fixture
def client(path: Path) -> Iterator[MilvusClient]:
    opened = MilvusClient(str(path))
    yield opened
    opened.close()


def test_a_collection_of_somebody_elses(path: Path, client: MilvusClient) -> None:
    client.create_collection(
        "theirs", dimension=4, primary_field_name="note", vector_field_name="vec", metric_type="IP"
    )
    order = np.random.default_rng(1).permutation(40)
    client.insert("theirs", [{"note": int(i) - 5, "vec": X[i].tolist(), "year": int(i)} for i in order])
    with MilvusStore(str(path), "theirs") as store:
        assert store.info() == type(store.info())("milvus", "theirs", 40, 4, "dot")
        found = list(store.batches(7))
        assert [one for batch in found for one in batch.ids] == [str(i - 5) for i in range(40)]
        assert np.array_equal(np.concatenate([batch.vectors for batch in found]), X)
        assert found[1].fields[0] == {"year": 7}
        store.write(Batch(("-5", "99"), X[1:3], ({"year": 8}, {})))
        assert np.array_equal(store.read(["99", "-5"]).vectors, X[[2, 1]])
        assert store.info().count == 41
        with raises("E-INPUT", "ids"):
            store.write(Batch(("a",), X[:1], ({},)))
        with raises("E-INPUT", "ids"):
            store.read(["a"])
        with raises("E-STORE", "fields"):
            store.write(Batch(("1",), X[:1], ({"vec": [0.0] * 4},)))


def test_an_answer_in_another_order_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MilvusStore(str(path), "ordered") as store:
        store.create(4)
        store.write(Batch(("a", "b", "c"), X[:3], ({},) * 3))
        query = store._query

        def turned(*given: Any, **more: Any) -> list[dict[str, Any]]:
            return query(*given, **more)[::-1]

        monkeypatch.setattr(store, "_query", turned)
        with raises("E-STORE", "database"):
            list(store.batches())


@pytest.mark.parametrize("key", ['"] or id != "', "\\", '\\"', "a\nb\tc", "{x}", "%s", "'", 'x" or "1" == "1'])
def test_keys_are_texts_and_no_expressions(path: Path, key: str) -> None:
    with MilvusStore(str(path), "quoting") as store:
        store.create(4, metric="euclidean")
        store.write(Batch(("other", key), X[:2], ({}, {})))
        assert np.array_equal(store.read([key]).vectors, X[1:2])
        rest = [one for batch in store.batches(1) for one in batch.ids]
        assert {key, "other"} <= set(rest)
        assert len(rest) == len(set(rest))
    assert _literal(5) == "5"


def test_other_vectors_and_dead_servers_are_refused(path: Path, client: MilvusClient) -> None:
    from pymilvus import DataType

    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("a", DataType.FLOAT_VECTOR, dim=4)
    schema.add_field("b", DataType.FLOAT_VECTOR, dim=4)
    client.create_collection("two", schema=schema)
    with MilvusStore(str(path), "two") as store, raises("E-STORE", "collection"):
        store.info()
    with open_store(f"milvus:{path}") as store, raises("E-STORE", "location"):
        store.info()


@pytest.fixture
def server(path: Path) -> str:
    """Return the URL of the server that Milvus Lite runs for the file."""
    from milvus_lite.server_manager import server_manager_instance

    return server_manager_instance.start_and_get_uri(str(path))


def loaded(client: MilvusClient, name: str) -> bool:
    return client.get_load_state(name)["state"].name == "Loaded"


@pytest.mark.parametrize("remote", [True, False], ids=["server", "file"])
def test_a_released_collection_is_read_and_released_again(
    remote: bool, path: Path, server: str, client: MilvusClient, tmp_path: Path
) -> None:
    name = f"released_{remote}"
    where = server if remote else str(path)
    client.create_collection(name, dimension=4)
    client.insert(name, [{"id": i, "vector": X[i].tolist(), "text": "two words"} for i in range(40)])
    client.release_collection(name)
    source = f"milvus:{where}#{name}"
    with open_store(source) as store:
        assert scan(store).survey.rows == 40
    assert not loaded(client, name)
    policy, state = ReleasePolicy(Protector("laplace", Laplace(4, 9.0))), tmp_path / "state.json"
    dest = f"sqlite-vec:{tmp_path}/copy.db#notes"
    with open_store(source) as store, open_store(dest) as copy:
        migrate(store, copy, policy, state, names=(source, dest))
        assert copy.count() == 40
    assert not loaded(client, name)
    with raises("E-INPUT", "ids"), open_store(source) as store:
        assert store.count() == 40
        assert loaded(client, name)
        with open_store(source) as second:
            assert len(second.read(["3"])) == 1
        assert len(store.read(["3"])) == 1, "the other store has not released it"
        store.read(["a"])
    assert not loaded(client, name)
    client.load_collection(name)
    with open_store(source) as store:
        assert len(store.read(["3"])) == 1
    assert loaded(client, name)
