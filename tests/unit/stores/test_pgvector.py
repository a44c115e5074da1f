"""Tables of a real PostgreSQL as stores: types, keys, names, passwords, and a server that goes away."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import decimal
import itertools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from harness.errors import raises
from harness.faults import clean_rows_in
from harness.postgres import fresh_database, server, start_again, stop_at_once
from vecveil import Protector
from vecveil.errors import StoreError
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.stores.migrating import MigrationOptions, migrate
from vecveil.stores.pgvector import PgvectorStore, TableRow
from vecveil.stores.scanning import scan, survey_beside

VECTORS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
SOURCE = """
CREATE TYPE mood AS ENUM ('calm', 'cross');
CREATE TABLE source (
    embedding int, note_id serial PRIMARY KEY, vec vector(4), title varchar(20), pages smallint, price numeric(9, 3),
    seen timestamptz, more jsonb, tags text[], mark uuid, is_new boolean, mood mood,
    length int GENERATED ALWAYS AS (pages * 2) STORED);
CREATE INDEX ON source USING hnsw (vec vector_ip_ops);
"""
UTC = datetime.UTC
VALUES = (
    7,
    "a title",
    300,
    decimal.Decimal("12.340"),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 6, UTC),
    {"a": [1, None]},
    ["x", "y"],
    uuid.UUID(int=5),
    True,
    "calm",
)


@pytest.fixture(scope="module")
def url() -> str:
    return fresh_database()


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


def rows(count: int, start: int = 1) -> Batch:
    ids = tuple(str(one) for one in range(start, start + count))
    X = np.random.default_rng(start).standard_normal((count, 4)).astype(np.float32)
    return Batch(ids, X, ({},) * count)


def types(connection: Any, table: str) -> dict[str, str]:
    found = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        [table],
    )
    return dict(found.fetchall())


def text(vector: np.ndarray) -> str:
    return json.dumps(vector.tolist())


def test_types_names_and_ids_are_carried(url: str, connection: Any) -> None:
    connection.execute(SOURCE)
    insert = (
        "INSERT INTO source (vec, embedding, title, pages, price, seen, more, tags, mark, is_new, mood)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    )
    wrapped = [psycopg.types.json.Jsonb(v) if isinstance(v, dict) else v for v in VALUES]
    connection.execute(insert, [text(VECTORS[0]), *wrapped])
    connection.execute("INSERT INTO source (vec) VALUES (%s)", [text(VECTORS[1])])
    with open_store(f"pgvector:{url}#source") as source, open_store(f"pgvector:{url}#copy") as dest:
        assert source.info().metric == "dot"
        dest.create(4, metric=source.info().metric)
        (batch,) = source.batches()
        assert batch.ids == ("1", "2")
        dest.write(batch)
        (copied,) = dest.batches()
        assert dest.info() == type(dest.info())("pgvector", "copy", 2, 4, "dot")
    assert copied.ids == batch.ids
    assert copied.vectors.tobytes() == batch.vectors.tobytes() == VECTORS[:2].tobytes()
    assert dict(copied.fields[0]) == dict(batch.fields[0])
    assert tuple(batch.fields[0].values()) == (*VALUES, 600)
    assert dict(copied.fields[1]) == {}
    expected = types(connection, "source") | {"title": "character varying", "price": "numeric"}
    expected["vec"] = "vector(4)"
    assert types(connection, "copy") == expected | {"note_id": "integer", "mood": "mood", "length": "integer"}


def test_a_migrated_table_keeps_the_types_of_what_is_carried(url: str, connection: Any, tmp_path: Any) -> None:
    connection.execute("CREATE TABLE before (id int PRIMARY KEY, v vector(4), pages smallint, price numeric(9, 3))")
    connection.execute(
        "INSERT INTO before SELECT i, array[1, i, 2, 3]::vector, i, i / 8.0 FROM generate_series(1, 5) i"
    )
    policy = ReleasePolicy(Protector("laplace", Laplace(4, 10.0)))
    with open_store(f"pgvector:{url}#before") as source, open_store(f"pgvector:{url}#after") as dest:
        done = migrate(source, dest, policy, tmp_path / "state.json", names=("before", "after"))
    assert done.verification.ok
    assert types(connection, "after") == types(connection, "before") | {"price": "numeric", "vecveil_protector": "text"}
    kept = connection.execute("SELECT pages, price FROM after ORDER BY id").fetchall()
    assert kept == connection.execute("SELECT pages, price FROM before ORDER BY id").fetchall()


@pytest.mark.parametrize(("kind", "key"), [("char(6)", "'ab' || i"), ("bit(6)", "i::bit(6)")])
def test_keys_of_a_fixed_length_are_not_cut(url: str, connection: Any, tmp_path: Any, kind: str, key: str) -> None:
    """A cast to ``character`` or ``bit`` keeps one character: the same rows would come for ever."""
    connection.execute("DROP TABLE IF EXISTS fixed, fixed_copy")
    connection.execute(f"CREATE TABLE fixed (k {kind} PRIMARY KEY, v vector(4), tag {kind})")
    connection.execute(f"INSERT INTO fixed SELECT {key}, array[1, i, 2, 3]::vector, {key} FROM generate_series(1, 5) i")
    protector = Protector(method="laplace", mechanism=Laplace(4, 9.0, 1))
    names = (f"pgvector:{url}#fixed", f"pgvector:{url}#fixed_copy")
    with open_store(names[0]) as source, open_store(names[1]) as dest:
        ids = [one for batch in itertools.islice(source.batches(2), 9) for one in batch.ids]
        assert len(ids) == len(set(ids)) == 5
        assert source.read(ids).ids == tuple(ids)
        found = migrate(
            source,
            dest,
            ReleasePolicy(protector),
            tmp_path / "s.json",
            names=("a", "b"),
            batch=2,
            options=MigrationOptions(keep=("tag",)),
        )
        assert found.verification.ok
        assert [row["tag"] for row in dest.read(ids).fields] == [row["tag"] for row in source.read(ids).fields]


def test_types_of_another_database_are_no_statements(url: str, connection: Any) -> None:
    connection.execute("CREATE TABLE keep (id int)")
    with open_store(f"pgvector:{url}#careful") as store:
        store.create(4)
        (batch,) = [rows(1)]
        layout = store.layout()  # type: ignore[attr-defined]
        evil = type(layout)("id", "text", "embedding", 4, None, {"a": "text; DROP TABLE keep"}, {})
        store.write(Batch(batch.ids, batch.vectors, (TableRow.of({"a": "x"}, evil),)))
    assert types(connection, "careful")["a"] == "text"
    assert types(connection, "keep")


@pytest.mark.parametrize(
    ("table", "field"),
    [('t"; DROP TABLE keep2; --', 'f"; DROP TABLE keep2; --'), ("50% {0}", "%s {1} 100%"), ("select", "or")],
)
def test_names_are_names(url: str, connection: Any, table: str, field: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS keep2 (id int)")
    one = rows(2)
    with PgvectorStore(url, table) as store:
        store.create(4, metric="cosine")
        store.write(Batch(one.ids, one.vectors, ({field: 1}, {field: 2})))
        assert [dict(row) for row in store.read(["2", "1"]).fields] == [{field: 2}, {field: 1}]
        assert store.info().count == 2
        assert "VACUUM" in store.compact()
    assert types(connection, "keep2")


@pytest.mark.parametrize("table", ["x" * 64, "a.b.c" + "x" * 63, "nul\0"])
def test_names_that_would_be_cut_are_refused(url: str, table: str) -> None:
    with PgvectorStore(url, table) as store, raises("E-INPUT", "table"):
        store.create(4)


@pytest.mark.parametrize("columns", ["vec vector(4)", "a int, b int, vec vector(4), PRIMARY KEY (a, b)"])
def test_a_table_without_a_key_of_one_column_is_refused(url: str, connection: Any, columns: str) -> None:
    connection.execute(f"DROP TABLE IF EXISTS keyless; CREATE TABLE keyless ({columns})")
    with PgvectorStore(url, "keyless") as store, raises("E-STORE", "table"):
        store.info()


def test_further_vectors_are_read_and_never_written(url: str, connection: Any) -> None:
    connection.execute(
        "CREATE TABLE two (id int PRIMARY KEY, a vector(4), h halfvec(2), s sparsevec(9), b bit(32), any_ vector);"
        "INSERT INTO two VALUES (1, '[1,2,3,4]', '[5,6]', '{3:0.5,9:2}/9', repeat('01', 16)::bit(32), '[7]')"
    )
    with open_store(f"pgvector:{url}#two?vector=a") as store:
        (batch,) = store.batches()
        read = {name: np.asarray(value).tolist() for name, value in batch.fields[0].items()}
        assert read == {"h": [5, 6], "s": [[3, 0.5], [9, 2]], "b": "01" * 16, "any_": [7]}
        assert {one.withheld for one in scan(store, show_progress=False).survey.fields} == {"vector", "numbers"}
        store.write(Batch(batch.ids, -batch.vectors, batch.fields))
        assert {name: np.asarray(value).tolist() for name, value in store.read(["1"]).fields[0].items()} == read


def test_vectors_of_two_dimensions_in_one_column(url: str, connection: Any) -> None:
    connection.execute("CREATE TABLE mixed (id int PRIMARY KEY, v vector)")
    values = "(1, '[1]'), (2, '[1,2]'), (3, NULL), (4, '[3,4]'), (5, '[5]'), (6, '[6,7]')"
    connection.execute(f"INSERT INTO mixed VALUES {values}")
    with open_store(f"pgvector:{url}#mixed") as store:
        seen = scan(store, show_progress=False).to_record()
        assert seen["bad_rows"] == {"without_vector": 1, "not_finite": 0, "other_dimension": 2}
        assert seen["bad_ids"] == ["1", "3", "5"]
        assert [one for batch in store.batches(2, after='"2"') for one in batch.ids] == ["3", "4", "5", "6"]
        assert np.isnan(store.read(["4", "5"]).vectors).tolist() == [[False] * 2, [True] * 2]


def test_tables_that_a_key_connects_are_beside(url: str, connection: Any) -> None:
    connection.execute(
        "CREATE TABLE documents (id int PRIMARY KEY, body text, created date);"
        "CREATE TABLE unrelated (body text);"
        "CREATE TABLE chunks (id int PRIMARY KEY, document int REFERENCES documents, v vector(2));"
        "INSERT INTO documents VALUES (1, 'she takes one of them every day', now());"
        "INSERT INTO unrelated VALUES ('she takes one of them every day');"
        "INSERT INTO chunks VALUES (1, 1, '[1,2]')"
    )
    with open_store(f"pgvector:{url}#chunks") as store:
        assert [one.name for one in survey_beside(store)] == ["documents.body"]


def test_an_id_of_a_parent_and_of_its_child_is_refused(url: str, connection: Any) -> None:
    connection.execute("DROP TABLE IF EXISTS child, parent")
    connection.execute("CREATE TABLE parent (id bigint PRIMARY KEY, embedding vector(2))")
    connection.execute("CREATE TABLE child () INHERITS (parent)")
    connection.execute("INSERT INTO parent VALUES (1, '[1,0]'), (2, '[0,1]')")
    connection.execute("INSERT INTO child VALUES (2, '[1,1]')")
    with open_store(f"pgvector:{url}#parent") as store, raises("E-STORE-IDS"):
        list(store.every_row())


def test_the_only_table_needs_no_name(connection: Any) -> None:
    alone = fresh_database(extension=False)
    with PgvectorStore(alone, "notes") as store:
        store.create(4)
        store.write(rows(3))
    with open_store(f"pgvector:{alone}") as store:
        assert store.exists()
        assert store.info().name == "notes"


def test_rows_that_come_and_go_move_no_other(url: str, connection: Any) -> None:
    with PgvectorStore(url, "moving") as store:
        store.create(4)
        store.write(rows(9))  # ids 1 to 9, as texts
        seen = []
        for batch in store.batches(3):
            connection.execute("DELETE FROM moving WHERE id <= %s", [batch.ids[-1]])
            seen += batch.ids
        assert seen == [str(one) for one in range(1, 10)]


@pytest.mark.slow
def test_a_dropped_table_leaves_no_clean_row_in_its_files(url: str, connection: Any) -> None:
    """The page on stores says so; the WAL keeps them, which is the operator's."""
    X = np.random.default_rng(41).standard_normal((50, 8)).astype(np.float32)
    files = Path(server().pgdata) / "base"
    with open_store(f"pgvector:{url}#dropped") as store:
        store.create(8)
        store.write(Batch(tuple(map(str, range(50))), X, ({},) * 50))
        with raises("E-STORE-FILES", "location"):
            store.files()
    connection.execute("CHECKPOINT")
    assert clean_rows_in(files, X)  # control
    connection.execute("DROP TABLE dropped")
    connection.execute("CHECKPOINT")
    assert clean_rows_in(files, X) == []


def test_numbers_keep_their_values(url: str) -> None:
    with PgvectorStore(url, "numbers") as store:
        store.create(4)
        two = rows(2)
        store.write(Batch(two.ids, two.vectors, ({"n": 1, "t": "one"}, {"n": 2})))
        store.write(Batch(two.ids[:1], two.vectors[:1], ({"n": 0.5},)))
        assert [dict(row) for row in store.read(["1", "2"]).fields] == [{"n": 0.5}, {"n": 2.0}]
        with raises("E-STORE", "fields"):
            store.write(Batch(two.ids, two.vectors, ({"n": 9}, {"t": 5})))
        with raises("E-STORE", "fields"):
            store.write(Batch(two.ids, two.vectors, ({"new": 9, "embedding": 5}, {})))
        with raises("E-STORE", "fields"):
            store.write(Batch(two.ids, two.vectors, ({"new": object()}, {})))
        assert "new" not in store.layout().columns, "what failed adds no column"
        assert [row["n"] for row in store.read(["1", "2"]).fields] == [0.5, 2.0]


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@127.0.0.1:1/db", "postgresql://me:hunter2@[bad/db", "hunter2 =="]
)
def test_no_error_holds_the_password(url: str) -> None:
    with PgvectorStore(url, "notes") as store, pytest.raises(StoreError) as caught:
        store.info()
    assert "hunter2" not in str(caught.value) + repr(store)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_connection_that_dies_in_a_batch_leaves_none_of_it(url: str, connection: Any) -> None:
    with PgvectorStore(url, "dying") as store:
        store.create(4)
        store.write(rows(5))
        connection.execute("""
            CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.id = '8' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;
            CREATE TRIGGER dies BEFORE INSERT ON dying FOR EACH ROW EXECUTE FUNCTION die()""")
        with raises("E-STORE-DATABASE", "writing rows; no row of the batch was written"):
            store.write(rows(5, start=6))
        assert connection.execute("SELECT count(*) FROM dying").fetchone() == (5,)
        connection.execute("DROP TRIGGER dies ON dying")
        store.write(rows(5, start=6))
        assert store.info().count == 10


@pytest.mark.slow
def test_a_server_that_stops_between_batches(url: str) -> None:
    with PgvectorStore(url, "stopping") as store:
        store.create(4)
        store.write(rows(9))
        reading = store.batches(4)
        first = next(reading)
        stop_at_once()
        try:
            with raises("E-STORE-DATABASE", "looking at the table"):
                next(reading)
            with raises("E-STORE-DATABASE", "looking at the table"):
                store.write(rows(3, start=20))
        finally:
            start_again()
        rest = [one for batch in store.batches(4, after=first.cursor) for one in batch.ids]
        assert [*first.ids, *rest] == [str(one) for one in range(1, 10)]
        store.write(rows(3, start=20))
        assert store.info().count == 12


def at_once(*calls: Callable[[], object]) -> None:
    """Run the calls in threads that start together; raise the first error."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        start.wait(20)
        call()

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(run, call) for call in calls]:
            done.result(60)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_writers_that_add_the_same_fields_at_once_lose_none(url: str, shared: bool) -> None:
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(PgvectorStore(url, f"fields_{shared}")) for _ in range(4)]
        stores[0].create(4)

        def write(number: int) -> None:
            store = stores[0 if shared else number]
            for at in range(12):
                batch = rows(1, start=100 * number + at)
                # Whole numbers of some and fractions of others in one column, and columns in another order.
                values = {f"field{at}": 1 if number % 2 else 0.5, f"other{at}": "a"}
                fields = dict(sorted(values.items(), reverse=number > 1))
                store.write(Batch(batch.ids, batch.vectors, (fields,)))
                assert store.read(batch.ids).fields == (values,)
                assert [match.id for match in store.search(batch.vectors[0], 1)] == list(batch.ids)

        at_once(*(partial(write, number) for number in range(4)))
        assert stores[0].count() == 48
        for number in range(4):
            fields = stores[1].read([str(100 * number + at) for at in range(12)]).fields
            assert [row[f"field{at}"] for at, row in enumerate(fields)] == [1 if number % 2 else 0.5] * 12


def test_a_field_that_another_process_adds_is_read_and_reset(url: str) -> None:
    with PgvectorStore(url, "grows") as store, PgvectorStore(url, "grows") as other:
        store.create(4)
        store.write(rows(2))
        assert other.read(["1"]).fields == ({},)
        two = rows(2)
        store.write(Batch(two.ids, two.vectors, ({"tenant": "a"}, {"tenant": "b"})))
        assert other.read(["1"]).fields == ({"tenant": "a"},)
        assert [match.id for match in other.search(two.vectors[0], 5, {"tenant": ["b"]})] == ["2"]
        other.write(rows(1))
        assert store.read(["1", "2"]).fields == ({}, {"tenant": "b"})


@pytest.mark.slow
def test_clients_that_make_a_table_at_once_make_one() -> None:
    for _ in range(5):
        url = fresh_database(extension=False)
        with contextlib.ExitStack() as stack:
            stores = [stack.enter_context(PgvectorStore(url, "made")) for _ in range(4)]
            at_once(*(partial(store.create, 4, metric="cosine") for store in stores))
            assert {store.info().metric for store in stores} == {"cosine"}


def test_what_is_written_while_others_are_listed_stays(url: str, connection: Any) -> None:
    connection.execute("CREATE TABLE parents (id int PRIMARY KEY)")
    connection.execute("INSERT INTO parents VALUES (1), (2)")
    with PgvectorStore(url, "listed") as store:
        store.create(4)
        connection.execute("ALTER TABLE listed ADD COLUMN parent int REFERENCES parents")
        store.write(rows(3))
        listing, tables = store.ids(), store.beside()
        assert sorted(next(listing)) == ["1", "2", "3"]
        name, rows_of_parents = next(tables)
        assert (name, next(iter(rows_of_parents))) == ("parents", {"id": 1})
        store.write(rows(1, start=4))
        assert connection.execute("SELECT count(*) FROM listed").fetchone() == (4,)
        del listing, rows_of_parents
        tables.close()
    assert connection.execute("SELECT count(*) FROM listed").fetchone() == (4,)
