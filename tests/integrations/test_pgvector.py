"""A protected table in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import vecveil
from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from harness.postgres import fresh_database, server, start_again, stop_at_once
from vecveil.errors import IncompatibleError, InvalidInputError, LedgerCapError, StoreError
from vecveil.integrations.opening import PlaintextWarning, open_policy
from vecveil.integrations.pgvector import ProtectedTable

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
IDS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def url() -> str:
    return fresh_database(extension=False)


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def table(
    url: str, protector: vecveil.Protector, request: pytest.FixtureRequest
) -> Iterator[ProtectedTable]:
    with ProtectedTable(url, request.node.name[:60], protector) as made:
        made.create({"year": "integer", "more": "jsonb"})
        yield made


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


def stored(connection: Any, name: str) -> dict[str, np.ndarray]:
    rows = connection.execute(
        psycopg.sql.SQL("SELECT id, embedding::text FROM {}").format(psycopg.sql.Identifier(name))
    )
    return {one: np.array(vector[1:-1].split(","), dtype=np.float32) for one, vector in rows}


def everything(connection: Any, name: str) -> str:
    select = psycopg.sql.SQL("SELECT t::text FROM {} t").format(psycopg.sql.Identifier(name))
    return str(connection.execute(select).fetchall())


def test_the_example_runs(
    collection_folder: Path, protector_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", fresh_database())
    clean, protected = run_example("pgvector", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_rows_are_protected_and_found(
    table: ProtectedTable, connection: Any, clean: np.ndarray
) -> None:
    fields = [{"year": 2020 + i, "more": {"n": [i]}} for i in range(3)]
    table.add(IDS, TEXTS, fields)
    kept = stored(connection, table.table)
    assert table.count() == 3
    assert all(same_direction(clean, np.stack([kept[one] for one in IDS])) < 0.999)
    assert TEXTS[0][4:] not in everything(connection, table.table)
    best, *_ = table.search(TEXTS[1], k=2)
    assert (best.id, best.fields) == ("b", {"year": 2021, "more": {"n": [1]}})
    assert [match.id for match in table.search(clean[1], where={"year": 2022})] == ["c"]
    assert len(table.search(clean[1].tolist(), k=2)) == 2


def test_distances_are_those_of_the_map(
    url: str, protector: vecveil.Protector, connection: Any, clean: np.ndarray
) -> None:
    kept: dict[str, np.ndarray] = {}
    query = protector.protect(clean[:1], noise=False)[0].astype(np.float64)
    distances = {
        "cosine": lambda y: 1 - y @ query / np.linalg.norm(y) / np.linalg.norm(query),
        "dot": lambda y: -(y @ query),
        "euclidean": lambda y: np.linalg.norm(y - query),
    }
    for metric, distance in distances.items():
        with ProtectedTable(
            url, "distances", protector, query_protection="map-only", metric=metric  # type: ignore[arg-type]
        ) as table:  # fmt: skip
            table.create()
            if not kept:
                table.add(IDS, clean)
                kept = stored(connection, "distances")
            found = table.search(clean[0])
            expected = {one: distance(y.astype(np.float64)) for one, y in kept.items()}
            assert [match.id for match in found] == sorted(expected, key=expected.__getitem__)
            measured = [match.distance for match in found]
            assert measured == pytest.approx(sorted(expected.values()), abs=1e-5)


def test_a_key_repeats_and_is_nowhere(
    url: str, protector: vecveil.Protector, key_file: Path, connection: Any
) -> None:
    releases = []
    for _ in range(2):
        with ProtectedTable(url, "keyed", protector, key=key_file) as table:
            table.create()
            table.add(IDS, TEXTS)
            releases.append(stored(connection, "keyed"))
    assert all(np.array_equal(releases[0][one], releases[1][one]) for one in IDS)
    connection.execute("CHECKPOINT")
    select = "SELECT oid FROM pg_database WHERE datname = current_database()"
    (oid,) = connection.execute(select).fetchone()
    folder = Path(server().pgdata) / "base" / str(oid)
    assert any(folder.iterdir())
    assert_no_secret(folder, key_file)
    with ProtectedTable(url, "keyed", protector) as table:
        table.add(IDS, TEXTS)
    assert not np.array_equal(stored(connection, "keyed")["a"], releases[0]["a"]), "control"


def test_texts_are_kept_on_request_with_one_warning(
    url: str, protector: vecveil.Protector, connection: Any
) -> None:
    with ProtectedTable(url, "kept", protector, keep_text=True, text_column="body") as table:
        table.create()
        with pytest.warns(PlaintextWarning, match="PostgreSQL table 'kept'") as caught:
            table.add(IDS, TEXTS)
        assert [Path(one.filename) for one in caught] == [Path(__file__)]
        table.add(IDS, TEXTS)  # a second warning would be an error
        assert {match.fields["body"] for match in table.search(TEXTS[0])} == set(TEXTS)


def test_a_text_in_a_field_is_warned_of(url: str, protector: vecveil.Protector, clean: np.ndarray) -> None:  # fmt: skip
    with ProtectedTable(url, "fields", protector) as table:
        table.create({"body": "text"})
        table.add(IDS, TEXTS, [{"body": word} for word in ("x.pdf", "page 7", "Ward B")])
        with pytest.warns(PlaintextWarning):
            table.add(IDS, clean, [{"body": text} for text in TEXTS])
    with ProtectedTable(url, "fields", protector) as table, pytest.warns(PlaintextWarning):
        table.add(["c"], TEXTS[2:], [{"body": TEXTS[2]}])


@pytest.mark.parametrize("name", ['x"; DROP TABLE keep; --', "50% %s {0}", "select"])
def test_names_are_names(
    url: str, protector: vecveil.Protector, connection: Any, name: str
) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS keep (id int)")
    columns = {f"{part}_column": f"{part} {name}" for part in ("id", "vector", "text")}
    with ProtectedTable(url, name, protector, keep_text=True, **columns) as table:
        table.create({name: "text"})
        with pytest.warns(PlaintextWarning):
            table.add(IDS, TEXTS, [{name: "1"}, {name: "'; DROP TABLE keep; --"}, {name: "%s"}])
        (found,) = table.search(TEXTS[1], where={name: "'; DROP TABLE keep; --"})
        assert (found.id, found.fields[name]) == ("b", "'; DROP TABLE keep; --")
        assert table.count() == 3
        with raises("E-INPUT", "fields"):
            table.create({"y": "text); DROP TABLE keep; --"})  # type: ignore[dict-item]
    assert connection.execute("SELECT to_regclass('keep') IS NOT NULL").fetchone() == (True,)


def test_bad_rows_are_refused_before_the_database(table: ProtectedTable, clean: np.ndarray) -> None:
    bad = clean.copy()
    bad[1, 3] = np.nan
    refused: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (InvalidInputError, (IDS, bad)),
        (IncompatibleError, (IDS, clean[:, :8].copy())),
        (InvalidInputError, (IDS[:2], TEXTS)),
        (InvalidInputError, (["a", "a", "b"], TEXTS)),
        (InvalidInputError, (IDS, TEXTS, [{"year": 1}])),
        (InvalidInputError, (IDS, TEXTS, [{"year": 1}, {}, {"year": 2}])),
        (InvalidInputError, (IDS, TEXTS, [{"embedding": 1}] * 3)),
        (InvalidInputError, (IDS, ["x", None, "y"])),
    ]
    for error, call in refused:
        with pytest.raises(error):
            table.add(*call)
    with pytest.raises(InvalidInputError):
        table.search(bad[1])
    with raises("E-INPUT", "query"):
        table.search(clean)
    assert table.count() == 0
    table.add([], [])


def test_another_encoder_dimension_or_metric_is_refused(
    url: str, protector: vecveil.Protector, connection: Any
) -> None:
    class Other:
        fingerprint = "of-another"

        def encode(self, texts: list[str]) -> np.ndarray:
            return np.zeros((len(texts), 384), dtype=np.float32)

    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        ProtectedTable(url, "other", protector, encoder=Other())
    with raises("E-INPUT-NAME", "metric"):
        ProtectedTable(url, "other", protector, metric="hamming")  # type: ignore[arg-type]
    with raises("E-INPUT", "table"):
        ProtectedTable(url, "x" * 64, protector)
    connection.execute("CREATE TABLE narrow (id text PRIMARY KEY, embedding vector(8))")
    with ProtectedTable(url, "narrow", protector) as table:
        for call in (table.create, lambda: table.add(IDS, TEXTS), lambda: table.search("x")):
            with raises("E-INCOMPATIBLE-DIMENSION", "table"):
                call()


def test_methods_that_rewrite_texts_take_texts(url: str, connection: Any) -> None:
    concept = vecveil.Concept.from_terms("drug", ["amoxicillin"])
    redact = vecveil.fit(TEXTS * 10, concept, "minilm", method="redact", min_texts=1)
    with ProtectedTable(url, "redacted", redact) as table:
        table.create()
        with raises("E-INPUT", "items"):
            table.add(IDS, np.zeros((3, 384), dtype=np.float32))
        table.add(IDS, TEXTS)
        kept = stored(connection, "redacted")
    expected = redact.loaded_encoder().encode(redact.rewrite(TEXTS))
    np.testing.assert_allclose(np.stack([kept[one] for one in IDS]), expected, atol=1e-6)


def test_a_ledger_caps_releases(url: str, protector: vecveil.Protector, tmp_path: Path) -> None:
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    with ProtectedTable(url, "capped", protector, ledger=ledger) as table:
        table.create()
        table.add(IDS, TEXTS)
        with pytest.raises(LedgerCapError):
            table.add(IDS[:1], TEXTS[:1])
        assert table.count() == 3


def test_a_refused_row_takes_the_batch_with_it(table: ProtectedTable, connection: Any) -> None:
    table.add(IDS[:1], TEXTS[:1], [{"year": 1}])
    secret = "not-a-year-amoxicillin"
    with raises("E-STORE-DATABASE", "writing rows; no row of the batch was written") as caught:
        table.add(["x", "y", "a"], TEXTS, [{"year": 7}, {"year": secret}, {"year": 8}])
    assert secret not in str(caught.value)
    assert caught.value.__suppress_context__
    assert everything(connection, table.table).count("(a,") == 1
    assert table.count() == 1
    assert table.search(TEXTS[0])[0].fields["year"] == 1


def test_a_connection_that_dies_in_a_batch(table: ProtectedTable, connection: Any) -> None:
    connection.execute(f"""
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 'c' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$;
        CREATE TRIGGER dies BEFORE INSERT ON {table.table} FOR EACH ROW EXECUTE FUNCTION die()""")
    with raises("E-STORE-DATABASE"):
        table.add(IDS, TEXTS)
    assert connection.execute(f"SELECT count(*) FROM {table.table}").fetchone() == (0,)
    connection.execute(f"DROP TRIGGER dies ON {table.table}")
    table.add(IDS, TEXTS)
    assert table.count() == 3


def test_a_server_that_stops(table: ProtectedTable) -> None:
    table.add(IDS[:1], TEXTS[:1])
    stop_at_once()
    try:
        for call in (lambda: table.add(IDS, TEXTS), lambda: table.search("x"), table.count):
            with raises("E-STORE-DATABASE"):
                call()
    finally:
        start_again()
    assert table.count() == 1
    table.add(IDS, TEXTS)
    assert table.count() == 3


def test_a_connection_of_the_callers_keeps_its_transaction(
    url: str, protector: vecveil.Protector
) -> None:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as given:
        table = ProtectedTable(given, "theirs", protector)
        table.create()
        with given.transaction() as transaction:
            table.add(IDS, TEXTS)
            assert table.count() == 3
            raise psycopg.Rollback(transaction)
        assert table.count() == 0
        table.add(IDS[:2], TEXTS[:2])
        assert table.search(TEXTS[0], k=1)[0].id in IDS
        table.close()
        assert not given.closed


def test_no_message_holds_the_password(protector: vecveil.Protector) -> None:
    secret = "hunter2"
    with ProtectedTable(f"postgresql://me:{secret}@127.0.0.1:1/db", "t", protector) as table:
        assert secret not in repr(table)
        with pytest.raises(StoreError) as caught:
            table.count()
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_code_of_the_page_runs(
    url: str, protector_file: Path, connection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health.vecveil").write_bytes(protector_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "databases.md").read_text(encoding="utf-8")
    namespace: dict[str, Any] = {
        "url": url,
        "texts": TEXTS[:2],
        "question": TEXTS[1],
        "model": vecveil.load_encoder("minilm"),
    }
    ran = 0
    for block in blocks(section(page, "pgvector"), "text"):
        if block.code.startswith("CREATE INDEX"):
            connection.execute(block.code)
        else:
            exec(compile(block.code, "pgvector.md", "exec"), namespace)
        ran += 1
    assert ran == 3
    assert namespace["found"][0].id == "b"
    assert namespace["vectors"].shape == (2, 384)
    assert namespace["vector"].shape == (384,)


def test_own_sqlalchemy_code_changes_in_one_line(
    url: str, protector: vecveil.Protector, clean: np.ndarray
) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from pgvector.sqlalchemy import Vector

    policy = open_policy(protector)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    notes = sqlalchemy.Table(
        "orm", sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Text, primary_key=True), sqlalchemy.Column("embedding", Vector(384)),
    )  # fmt: skip
    with engine.begin() as session:
        notes.create(session)
        vectors = policy.documents(clean)
        rows = [{"id": one, "embedding": v} for one, v in zip(IDS, vectors, strict=True)]
        session.execute(notes.insert(), rows)
        query = policy.queries(clean[1:2])[0]
        nearest = sqlalchemy.select(notes.c.id).order_by(notes.c.embedding.cosine_distance(query))
        assert session.execute(nearest).scalars().first() == "b"
    engine.dispose()


@pytest.mark.filterwarnings("ignore:PGVector is being deprecated:PendingDeprecationWarning")
def test_langchains_store_takes_protected_embeddings(
    url: str, protector: vecveil.Protector, connection: Any, clean: np.ndarray
) -> None:
    langchain_postgres = pytest.importorskip("langchain_postgres")
    from vecveil.integrations.langchain import ProtectedEmbeddings

    store = langchain_postgres.PGVector(
        ProtectedEmbeddings(protector),
        connection=url.replace("postgresql://", "postgresql+psycopg://"),
        collection_name="notes",
    )
    with pytest.warns(PlaintextWarning, match="page_content"):
        store.add_texts(TEXTS, ids=IDS)
    assert store.similarity_search(TEXTS[1], k=1)[0].page_content == TEXTS[1]
    rows = connection.execute("SELECT embedding::text FROM langchain_pg_embedding ORDER BY id")
    kept = np.array([row[0][1:-1].split(",") for row in rows], dtype=np.float32)
    assert all(same_direction(kept, clean) < 0.999)
    store._engine.dispose()
