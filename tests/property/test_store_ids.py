"""Every row of every database is read once, whatever its key, in pages of any size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.postgres import fresh_database
from vecveil.databases import Batch, VectorStore
from vecveil.databases.locations import in_this_process

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, -1, 1, 9, 10, 99, 100, 2**63 - 1, -(2**63)]
)
NUMBERS = WHOLE.map(str)
UUIDS = st.uuids().map(str)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)
MIXED = (
    NUMBERS
    | UUIDS
    | TEXTS
    | st.sampled_from(["007", "7", "a", "A", "ab", "a b", "é", "e\u0301", "ß", "ss", "Z"])
)


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
        store.make_table([f"id {kind} primary key", "embedding float[2]"])
        return store  # type: ignore[no-any-return]

    return made


CASES: dict[str, tuple[str, Callable[[Path, str], VectorStore], st.SearchStrategy[str]]] = {
    "pgvector bigint": ("psycopg", table("bigserial"), NUMBERS),
    "pgvector uuid": ("psycopg", table("uuid"), UUIDS),
    "pgvector numeric": ("psycopg", table("numeric"), NUMBERS),
    "pgvector text": ("psycopg", table("text"), MIXED),
    "sqlite-vec integer": ("sqlite_vec", vec0("integer"), NUMBERS),
    "sqlite-vec text": ("sqlite_vec", vec0("text"), MIXED),
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


def rows(ids: list[str]) -> Batch:
    return Batch(tuple(ids), np.ones((len(ids), 2), np.float32), ({},) * len(ids))


def listed(store: VectorStore, size: int) -> list[str]:
    return [name for part in store.batches(size) for name in part.ids]


@settings(max_examples=15)
@given(st.data())
def test_pages_of_any_size_hold_every_row_once(keyed: Any, data: st.DataObject) -> None:
    store, ids = keyed
    store.delete(listed(store, 100))
    names = data.draw(st.lists(ids, min_size=1, max_size=12, unique=True))
    store.write(rows(names))
    for size in (1, 3, 100):
        assert sorted(listed(store, size)) == sorted(names)
    assert store.read(names).ids == tuple(names)
