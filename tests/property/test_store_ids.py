"""Every row of every database is read once, whatever its key, in pages of any size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.postgres import fresh_database
from harness.store_factories import STORES
from vecveil.stores import Batch, VectorStore
from vecveil.stores.locations import in_this_process

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 1, 9, 10, 99, 100, 2**63 - 1, -(2**63)])
NUMBERS = WHOLE.map(str)
UUIDS = st.uuids().map(str)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)
MIXED = NUMBERS | UUIDS | TEXTS | st.sampled_from(["007", "7", "a", "A", "ab", "a b", "é", "e\u0301", "ß", "ss", "Z"])


def table(kind: str) -> Callable[[Path, str], VectorStore]:
    """Return a maker of PostgreSQL tables with a key of the type ``kind``."""

    def made(folder: Path, name: str) -> VectorStore:
        url = fresh_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {name} (id {kind} PRIMARY KEY, embedding vector(2))")
        return in_this_process(f"pgvector:{url}#{name}")

    return made


def vec0(kind: str) -> Callable[[Path, str], VectorStore]:
    """Return a maker of sqlite-vec tables with a key of the type ``kind``."""

    def made(folder: Path, name: str) -> VectorStore:
        store: Any = in_this_process(f"sqlite-vec:{folder / 'rows.db'}#{name}")
        with store.cursor("making the table") as cursor:
            cursor.execute(f'CREATE VIRTUAL TABLE "{name}" USING vec0(id {kind} primary key, embedding float[2])')
        return store  # type: ignore[no-any-return]

    return made


def made(kind: str) -> Callable[[Path, str], VectorStore]:
    """Return a maker of collections as `VectorStore.create` makes them."""

    def store_of(folder: Path, name: str) -> VectorStore:
        store = in_this_process(STORES[kind].locate(folder, name))
        store.create(2, metric="euclidean")
        return store

    return store_of


def milvus_numbers(folder: Path, name: str) -> VectorStore:
    store: Any = in_this_process(f"milvus:{folder / 'rows.db'}#{name}")
    store._client().create_collection(name, dimension=2, metric_type="L2", consistency_level="Strong")
    return store  # type: ignore[no-any-return]


CASES: dict[str, tuple[str, Callable[[Path, str], VectorStore], st.SearchStrategy[str]]] = {
    "pgvector bigint": ("psycopg", table("bigserial"), NUMBERS),
    "pgvector uuid": ("psycopg", table("uuid"), UUIDS),
    "pgvector numeric": ("psycopg", table("numeric"), NUMBERS),
    "pgvector text": ("psycopg", table("text"), MIXED),
    "sqlite-vec integer": ("sqlite_vec", vec0("integer"), NUMBERS),
    "sqlite-vec text": ("sqlite_vec", vec0("text"), MIXED),
    "qdrant": ("qdrant_client", made("qdrant"), MIXED),
    "chroma": ("chromadb", made("chroma"), MIXED),
    "lancedb": ("lancedb", made("lancedb"), MIXED),
    "milvus text": ("milvus_lite", made("milvus"), MIXED),
    "milvus integer": ("milvus_lite", milvus_numbers, NUMBERS),
}
_names = itertools.count()


@pytest.fixture(params=CASES, scope="module")
def keyed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VectorStore, st.SearchStrategy[str]]]:
    module, make, ids = CASES[request.param]
    pytest.importorskip(module)
    with make(tmp_path_factory.mktemp("keys"), f"rows_{next(_names)}") as store:
        yield store, ids


def rows(ids: Sequence[str]) -> Batch:
    return Batch(tuple(ids), np.ones((len(ids), 2), np.float32), ({},) * len(ids))


def ids_of(batches: Iterator[Batch]) -> list[str]:
    return sorted(name for part in batches for name in part.ids)


@settings(max_examples=12)
@given(st.data())
def test_every_row_is_read_once(keyed: Any, data: st.DataObject) -> None:
    """Whatever its key, in pages of any size, and while other rows are written and deleted between the pages."""
    store, ids = keyed
    store.delete(ids_of(store.batches(100)))
    names = data.draw(st.lists(ids, min_size=1, max_size=12, unique=True))
    store.write(rows(names))
    for size in (1, 3, 100):
        assert ids_of(store.batches(size)) == sorted(names)
    assert sorted(name for part in store.ids() for name in part) == sorted(names)
    assert store.read(names).ids == tuple(names)
    there, steady = set(names), set(names)
    changes = iter(data.draw(st.lists(st.tuples(st.lists(ids, max_size=2), st.integers(0, 9)), max_size=3)))
    read: list[str] = []
    for part in store.every_row(data.draw(st.sampled_from([1, 2, 5]))):
        read += part.ids
        added, at = next(changes, ([], 9))
        gone = set(sorted(there)[at : at + 2]) - set(added)
        store.write(rows(sorted(set(added))))
        store.delete(sorted(gone))
        there, steady = (there | set(added)) - gone, steady - gone - set(added)
    assert len(read) == len(set(read))
    assert there | steady <= set(read)
    assert ids_of(store.batches(3)) == sorted(there)
