"""Collections with several vectors, rows without one, metrics: what each database keeps is read, named or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from harness.postgres import fresh_database
from vecveil import Protector
from vecveil.privacy.mechanisms import Laplace
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.stores.locations import in_this_process
from vecveil.stores.migrating import Migration, MigrationOptions, SourceCheck, migrate
from vecveil.stores.scanning import scan
from vecveil.stores.store import sparse_rows

pytestmark = pytest.mark.slow

N = 4
X = np.random.default_rng(0).standard_normal((3, N)).astype(np.float32).tolist()
WORDS = {3: 0.5, 9: 2.0}


def qdrant(folder: Path) -> str:
    from qdrant_client import QdrantClient, models

    sizes = {
        "body": models.VectorParams(size=N, distance=models.Distance.MANHATTAN),
        "title": models.VectorParams(size=2, distance=models.Distance.COSINE),
    }
    words = models.SparseVector(indices=list(WORDS), values=list(WORDS.values()))
    client = QdrantClient(path=str(folder))
    client.create_collection("notes", sizes, sparse_vectors_config={"words": models.SparseVectorParams()})
    vectors: list[Any] = [{"body": row, "title": [3, 4], "words": words} for row in X]
    del vectors[1]["body"]
    client.upsert("notes", [models.PointStruct(id=i, vector=v, payload={}) for i, v in enumerate(vectors, 1)])
    client.close()
    return f"qdrant:{folder}#notes"


def lancedb(folder: Path) -> str:
    import lancedb
    import pyarrow as pa

    def column(rows: list[Any], size: int) -> Any:
        return pa.array(rows, pa.list_(pa.float32(), size))

    rows = {
        "id": ["1", "2", "3"],
        "title": column([[3, 4]] * 3, 2),
        "body": column([X[0], None, X[2]], N),
        "tokens": pa.array([[[1, 2]], [], None], pa.list_(pa.list_(pa.float32(), 2))),
    }
    lancedb.connect(folder).create_table("notes", pa.table(rows))
    return f"lancedb:{folder}#notes"


def pgvector(folder: Path) -> str:
    import psycopg

    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (id int PRIMARY KEY, body vector, title halfvec(2), words sparsevec(9))")
        for i, row in enumerate(X, 1):
            connection.execute(
                "INSERT INTO notes VALUES (%s, %s, '[3,4]', '{3:0.5,9:2}/9')", [i, None if i == 2 else str(row)]
            )
    return f"pgvector:{url}#notes"


def milvus(folder: Path) -> str:
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(str(folder / "rows.db"))
    schema, indexes = client.create_schema(), client.prepare_index_params()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("body", DataType.FLOAT_VECTOR, dim=N, nullable=True)
    schema.add_field("title", DataType.FLOAT_VECTOR, dim=2)
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    for name, metric in (("body", "L2"), ("title", "IP"), ("words", "IP")):
        indexes.add_index(name, index_type="SPARSE_INVERTED_INDEX" if name == "words" else "FLAT", metric_type=metric)
    client.create_collection("notes", schema=schema, index_params=indexes)
    rows = [{"id": i, "body": row, "title": [3, 4], "words": WORDS} for i, row in enumerate(X, 1)]
    client.insert("notes", [row | ({"body": None} if row["id"] == 2 else {}) for row in rows])
    client.close()
    return f"milvus:{folder}/rows.db#notes"


MAKERS: tuple[Callable[[Path], str], ...] = (qdrant, lancedb, pgvector, milvus)


@pytest.fixture(params=MAKERS, ids=[make.__name__ for make in MAKERS])
def notes(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a collection of the vectors body (without one in row 2) and title, and others of the database's kinds."""
    (tmp_path / "source").mkdir()
    return str(request.param(tmp_path / "source"))


def copied(source: str, folder: Path, **options: Any) -> tuple[Migration, SourceCheck, Batch]:
    """Migrate to a table of sqlite-vec; return the result, what was said before, and the rows written."""
    policy, checks = ReleasePolicy(Protector("laplace", Laplace(N, 10.0))), []
    dest = f"sqlite-vec:{folder}/dest.db#notes"
    with open_store(source) as opened, open_store(dest) as made:
        done = migrate(
            opened,
            made,
            policy,
            folder / "state.json",
            names=(source, dest),
            show_progress=False,
            options=MigrationOptions(**options),
            on_checked=checks.append,
        )
        return done, checks[0], Batch.joined(list(made.batches()))


def test_every_vector_is_named_read_reported_and_left_out(notes: str, tmp_path: Path) -> None:
    with open_store(notes) as store, raises("E-STORE-NOT-FOUND") as caught:
        store.info()
    assert "'body', 'title'" in str(caught.value)
    with open_store(f"{notes}?vector=nothing") as store, raises("E-STORE-NOT-FOUND"):
        store.info()
    with open_store(f"{notes}?vector=body") as store:
        batch = Batch.joined(list(store.batches(2)))
        seen = scan(store, show_progress=False)
    np.testing.assert_array_equal(batch.vectors, np.float32([X[0], [np.nan] * N, X[2]]))
    fields = {name.removeprefix("vector:"): value.tolist() for name, value in batch.fields[0].items()}
    others = {"tokens": [[1, 2]]} if "lancedb" in notes else {"words": sparse_rows(WORDS).tolist()}
    assert fields == {"title": [3, 4]} | others
    assert {one.kinds["vector"] for one in seen.survey.fields} <= {2, 3}
    assert [one.code for one in seen.findings].count("further-vectors") == 2
    # A row without a vector: named and counted.
    assert (seen.survey.bad.without_vector, seen.survey.bad.ids) == (1, ("2",))
    with raises("E-STORE", "source") as caught:
        copied(f"{notes}?vector=body", tmp_path)
    assert "1 without a vector" in str(caught.value)
    assert "'2'" in str(caught.value)
    if "qdrant" not in notes:
        done, check, rows = copied(f"{notes}?vector=body", tmp_path, skip_bad=True)
        assert (done.state.rows, done.state.skipped, done.verification.ok) == (2, 1, True)
        assert set(check.withheld.values()) == {"vector"}
        assert len(check.withheld) == 2
        assert all(check.withheld.keys().isdisjoint(row) for row in rows.fields)


def test_a_row_written_again_keeps_its_further_vectors(notes: str) -> None:
    if "lancedb" in notes:
        return  # a table made elsewhere is not written
    with in_this_process(f"{notes}?vector=body") as store:
        before = store.read(["1"])
        store.write(Batch(before.ids, -before.vectors, before.fields))
        after = store.read(["1"])
    assert np.array_equal(after.vectors, -before.vectors)
    for name, value in before.fields[0].items():
        np.testing.assert_allclose(after.fields[0][name], value, rtol=1e-6)


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "pgvector", "milvus", "sqlite-vec"])
def test_a_new_collection_gets_the_name_of_its_vectors(kind: str, tmp_path: Path) -> None:
    file = {"milvus": "/rows.db", "sqlite-vec": "/rows.db"}.get(kind, "/db")
    where = f"{kind}:{fresh_database() if kind == 'pgvector' else str(tmp_path) + file}#new"
    with in_this_process(f"{where}?vector=title") as store:
        store.create(N, metric="cosine")
        store.write(Batch(("1",), np.float32(X[:1]), ({"page": 1},)))
    with in_this_process(f"{where}?vector=title") as store:
        assert store.read(["1"]).fields[0] == {"page": 1}
    with in_this_process(f"{where}?vector=embedding") as store, raises("E-STORE-NOT-FOUND"):
        store.info()


# Metrics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qdrant", "pgvector", "sqlite-vec"])
def test_manhattan_stays_manhattan(kind: str, tmp_path: Path) -> None:
    where = {"qdrant": f"{tmp_path}/db", "sqlite-vec": f"{tmp_path}/rows.db"}.get(kind) or fresh_database()
    with in_this_process(f"{kind}:{where}#notes") as store:
        store.create(2, metric="manhattan")
        store.write(Batch(("far", "near"), np.float32([[3, 3], [0, 5]]), ({}, {})))
        assert store.info().metric == "manhattan"
        assert [hit.id for hit in store.search(np.zeros(2), 2)] == ["near", "far"]


@pytest.mark.parametrize("kind", ["chroma", "lancedb", "milvus"])
def test_a_metric_that_the_destination_lacks_is_refused(kind: str, tmp_path: Path) -> None:
    with in_this_process(f"{kind}:{tmp_path}/{'rows.db' if kind == 'milvus' else 'db'}#notes") as store:
        with raises("E-INPUT-NAME", "metric"):
            store.create(2, metric="manhattan")
        assert not store.exists()


def test_the_metric_of_an_index_is_that_of_the_table(tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa

    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 8)
    table = lancedb.connect(tmp_path).create_table("notes", pa.table({"v": column}))
    with open_store(f"lancedb:{tmp_path}#notes") as store:
        assert store.info().metric is None
        table.create_index("v", config=lancedb.index.IvfPq(distance_type="dot", num_partitions=1, num_sub_vectors=2))
        assert store.info().metric == "dot"


@pytest.mark.parametrize(
    ("statements", "metric"),
    [
        (["CREATE INDEX ON notes USING hnsw (v vector_l1_ops)"], "manhattan"),
        (["CREATE INDEX ON notes USING hnsw (v vector_ip_ops)", "CREATE INDEX ON notes (id, t)"], "dot"),
        (
            [
                "CREATE INDEX ON notes USING hnsw (v vector_l1_ops)",
                "CREATE INDEX ON notes USING hnsw (v vector_ip_ops)",
            ],
            None,
        ),
        (["COMMENT ON COLUMN notes.v IS 'metric: anything'"], None),
    ],
)
def test_metrics_of_the_indexes_of_a_table(statements: list[str], metric: str | None) -> None:
    import psycopg

    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (id int PRIMARY KEY, t text, v vector(2))")
        for one in statements:
            connection.execute(one)
    with open_store(f"pgvector:{url}") as store:
        assert store.info().metric == metric
