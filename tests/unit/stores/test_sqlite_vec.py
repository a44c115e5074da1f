"""Tables of sqlite-vec as stores: other people's tables, keys, a batch that fails, names."""

from __future__ import annotations

import contextlib
import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness.errors import raises
from vecveil.errors import StoreError
from vecveil.stores import Batch, open_store
from vecveil.stores.scanning import scan, survey_beside
from vecveil.stores.sqlite_vec import SqliteVecStore, _loadable

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


def run(path: Path, *statements: str) -> None:
    store = SqliteVecStore(str(path), "any")
    with store, store.cursor("preparing") as cursor:
        for one in statements:
            cursor.execute(one, [X[0].tobytes()] if "?" in one else [])


def test_a_table_of_somebody_elses(path: Path) -> None:
    made = "note_id integer primary key, vec float[4] distance_metric=cosine, year integer, +body text"
    insert = "INSERT INTO notes (note_id, vec, year, body) VALUES (9, ?, 2020, 'a text'), (4, ?, 7, NULL)"
    run(path, f"CREATE VIRTUAL TABLE notes USING vec0({made})", insert.replace("?", "?1"))
    with open_store(f"sqlite-vec:{path}") as store:
        assert store.info() == type(store.info())("sqlite-vec", "notes", 2, 4, "cosine")
        (all_of_it,) = store.batches()
        assert dict(zip(all_of_it.ids, all_of_it.fields, strict=True)) == {
            "9": {"year": 2020, "body": "a text"},
            "4": {"year": 7},
        }
        store.write(Batch(("4", "5"), X[:2], ({"year": 1, "body": "b"}, {"year": 2})))
        assert store.read(["5", "4"]).fields == ({"year": 2}, {"year": 1, "body": "b"})
        with raises("E-STORE", "fields"):
            store.write(Batch(("6", "7"), X[:2], ({"year": 1}, {"year": 1, "other": 2})))
        with raises("E-INPUT", "ids"):
            store.write(Batch(("6", "a"), X[:2], ({"year": 1},) * 2))
        with raises("E-STORE-DATABASE"):
            store.write(Batch(("6", "7"), X[:2], ({"year": 1}, {"year": "not a year"})))
        assert store.info().count == 3


def test_a_table_without_a_key_has_its_row_numbers(path: Path) -> None:
    run(
        path,
        "CREATE VIRTUAL TABLE notes USING vec0(embedding float[4])",
        "INSERT INTO notes (rowid, embedding) VALUES (70, ?)",
    )
    with SqliteVecStore(str(path), "notes") as store:
        store.write(Batch(("5", "70"), X[:2], ({}, {})))
        assert [one for batch in store.batches(1) for one in batch.ids] == ["5", "70"]
        assert np.array_equal(store.read(["70", "5"]).vectors, X[[1, 0]])
        assert store.info().metric == "euclidean"


@pytest.mark.parametrize("column", ["embedding int8[4]", "embedding bit[8]"])
def test_other_vectors_are_refused(path: Path, column: str) -> None:
    run(path, f"CREATE VIRTUAL TABLE notes USING vec0(id text primary key, {column})")
    with SqliteVecStore(str(path), "notes") as store, raises("E-STORE", "table"):
        store.info()


def test_further_vectors_and_other_tables_are_beside(path: Path) -> None:
    run(
        path,
        "CREATE VIRTUAL TABLE notes USING vec0(a float[2], b int8[2], c bit[8], +note text)",
        "CREATE VIRTUAL TABLE two USING vec0(a float[2], b f32[2], +note text)",
        "INSERT INTO notes (a, b, c, note) VALUES (vec_f32('[1,2]'), vec_int8('[3,4]'), vec_bit(x'ff'), 'short')",
        "INSERT INTO two (a, b, note) VALUES (vec_f32('[1,2]'), vec_f32('[3,4]'), 'she takes one of them every day')",
        "CREATE TABLE chunks (body TEXT, page INT)",
        "CREATE VIRTUAL TABLE index_of USING fts5(words)",
        "INSERT INTO chunks VALUES ('she takes one of them every day', 3)",
        "INSERT INTO index_of VALUES ('she takes one of them every day')",
    )
    with open_store(f"sqlite-vec:{path}#two") as store, raises("E-STORE", "table"):
        store.info()
    with open_store(f"sqlite-vec:{path}#two?vector=b") as store:
        assert store.read(["1"]).vectors.tolist() == [[3, 4]]
        with raises("E-STORE", "table"):
            store.write(store.read(["1"]))
    with open_store(f"sqlite-vec:{path}#notes") as store:
        (row,) = store.read(["1"]).fields
        assert {name: np.asarray(value).tolist() for name, value in row.items()} == {
            "b": [3, 4],
            "c": [255],
            "note": "short",
        }
        assert {one.name for one in survey_beside(store)} == {"chunks.body", "index_of.words", "two.note"}
        codes = [one.code for one in scan(store, show_progress=False).findings]
        assert (codes.count("further-vectors"), codes.count("plaintext-in-other-tables")) == (2, 3)


@pytest.mark.parametrize("name", ['x"; DROP TABLE keep; --', "50% ?", "select", "naïve 文"])
def test_table_names_are_names(path: Path, name: str) -> None:
    run(path, "CREATE TABLE keep (x)")
    with SqliteVecStore(str(path), name) as store:
        store.create(4, metric="cosine")
        store.write(Batch(("a", "b"), X[:2], ({'f"; --': datetime.date(2020, 1, 2)}, {})))
        assert store.read(["a"]).fields == ({'f"; --': "2020-01-02"},)
        assert store.info().count == 2
        with store.cursor("looking") as cursor:
            assert cursor.execute("SELECT count(*) FROM keep").fetchone() == (0,)


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"no database" * 100)
    with SqliteVecStore(str(path), "notes") as store, pytest.raises(StoreError) as caught:
        store.info()
    assert caught.value.__suppress_context__
    with SqliteVecStore(str(path.with_name("none.db")), "notes") as store:
        assert not store.exists()
        with raises("E-INPUT-NAME", "metric"):
            store.create(4, metric="dot")
    assert not path.with_name("none.db").exists()


def test_a_store_of_several_tables_needs_a_name(path: Path) -> None:
    for name in ("one", "two"):
        with SqliteVecStore(str(path), name) as store:
            store.create(4)
    with open_store(f"sqlite-vec:{path}") as store, raises("E-STORE", "location"):
        store.info()


def impatient(store: SqliteVecStore) -> None:
    """Let the store give up at once where another connection holds the file."""
    with store.cursor("preparing") as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")


@pytest.mark.parametrize("lock", ["BEGIN; SELECT count(*) FROM notes_rowids", "BEGIN IMMEDIATE"])
def test_a_write_that_another_connection_prevents_is_not_done_and_its_repetition_is(path: Path, lock: str) -> None:
    store = SqliteVecStore(str(path), "notes")
    store.create(4)
    store.write(Batch(("a",), X[:1], ({},)))
    impatient(store)
    with contextlib.closing(_loadable().connect(path, isolation_level=None)) as other:
        for statement in lock.split(";"):
            other.execute(statement).fetchall()
        for change in (
            partial(store.write, Batch(("b",), X[1:2], ({},))),
            partial(store.delete, ["a"]),
            partial(store.write, Batch(("b",), X[1:2], ({},))),
        ):
            with raises("E-STORE-DATABASE"):
                change()
    with SqliteVecStore(str(path), "notes") as reader:
        assert reader.read(["a", "b"], missing="skip").ids == ("a",)
    store.write(Batch(("b",), X[1:2], ({},)))
    store.delete(["a"])
    with SqliteVecStore(str(path), "notes") as reader:  # before the writer closes its connection
        assert reader.read(["a", "b"], missing="skip").ids == ("b",)
    store.close()


def test_what_is_written_while_others_are_listed_stays(path: Path) -> None:
    run(path, "CREATE TABLE texts (body)", "INSERT INTO texts VALUES ('a')", "INSERT INTO texts VALUES ('b')")
    store = SqliteVecStore(str(path), "notes")
    store.create(4)
    store.write(Batch(("a",), X[:1], ({},)))
    listing, tables = store.ids(), store.beside()
    assert next(listing) == ["a"]
    name, rows = next(tables)
    assert (name, next(rows)) == ("texts", {"body": "a"})
    store.write(Batch(("b",), X[1:2], ({},)))
    with SqliteVecStore(str(path), "notes") as reader:
        assert reader.read(["b"]).ids == ("b",)
    del listing, rows
    tables.close()
    store.close()
    with SqliteVecStore(str(path), "notes") as reader:
        assert reader.count() == 2
