"""A protected table of sqlite-vec."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.documents import ROOT, blocks, section
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.databases.sqlite_vec import SqliteVecStore, _loadable
from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    LedgerCapError,
    MissingDependencyError,
    StoreError,
)
from vecveil.integrations.opening import PlaintextWarning
from vecveil.integrations.sqlite_vec import ProtectedTable

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
IDS = ["a", "b", "c"]
sqlite = _loadable()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@pytest.fixture
def table(path: Path, protector: vecveil.Protector) -> Iterator[ProtectedTable]:
    with ProtectedTable(path, "notes", protector) as made:
        made.create({"year": "integer", "tag": "text"})
        yield made


@pytest.fixture(scope="module")
def clean(protector: vecveil.Protector) -> np.ndarray:
    return np.asarray(protector.loaded_encoder().encode(TEXTS))


def rows_of(count: int = 3) -> list[dict[str, Any]]:
    return [{"year": 2020 + i, "tag": f"t{i}"} for i in range(count)]


def stored(path: Path, table: str = '"notes"') -> dict[str, np.ndarray]:
    import sqlite_vec

    connection = sqlite.connect(str(path))
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()
    return {row[0]: np.frombuffer(row[1], dtype=np.float32) for row in rows}


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("sqlite_vec", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_rows_are_protected_and_found(table: ProtectedTable, path: Path, clean: np.ndarray) -> None:
    table.add(IDS, TEXTS, rows_of())
    kept = stored(path)
    assert all(same_direction(clean, np.stack([kept[one] for one in IDS])) < 0.999)
    assert table.count() == 3
    best, *_ = table.search(TEXTS[1], k=2)
    assert (best.id, best.fields) == ("b", {"year": 2021, "tag": "t1"})
    assert [match.id for match in table.search(clean[1], where={"year": 2022})] == ["c"]
    table.add(["b"], TEXTS[:1], rows_of(1))
    assert table.count() == 3
    assert not np.array_equal(stored(path)["b"], kept["b"])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_distances_are_those_of_the_map(
    path: Path, protector: vecveil.Protector, clean: np.ndarray, metric: Any
) -> None:
    given: dict[str, Any] = {"query_protection": "map-only", "metric": metric}
    with ProtectedTable(path, "notes", protector, **given) as table:
        table.create(id_type="integer")
        table.add([7, 8, 2**40], clean)
        found = table.search(clean[0].tolist())
    query = protector.protect(clean[:1], noise=False).astype(np.float64)
    expected = {}
    for one, vector in stored(path).items():
        y = vector[None].astype(np.float64)
        expected[one] = float(
            1 - same_direction(y, query)[0] if metric == "cosine" else np.linalg.norm(y - query)
        )
    assert [match.id for match in found] == sorted(expected, key=expected.__getitem__)
    assert [m.distance for m in found] == pytest.approx(sorted(expected.values()), abs=1e-5)


def test_the_file_holds_neither_key_nor_text(
    path: Path, protector: vecveil.Protector, key_file: Path
) -> None:
    releases = []
    for name in ("one", "two"):
        with ProtectedTable(path, name, protector, key=key_file) as table:
            table.create()
            table.add(IDS, TEXTS)
        releases.append(stored(path, name))
    assert all(np.array_equal(releases[0][one], releases[1][one]) for one in IDS)
    assert_no_secret(path.parent, key_file, *(text.encode() for text in TEXTS))


def test_texts_are_kept_on_request_with_one_warning(path: Path, protector: vecveil.Protector) -> None:  # fmt: skip
    with ProtectedTable(path, "notes", protector, keep_text=True, text_column="body") as table:
        table.create()
        with pytest.warns(PlaintextWarning, match="SQLite table 'notes'") as caught:
            table.add(IDS, TEXTS)
        assert [Path(one.filename) for one in caught] == [Path(__file__)]
        table.add(IDS, TEXTS)  # a second warning would be an error
        assert {match.fields["body"] for match in table.search(TEXTS[0])} == set(TEXTS)
    assert TEXTS[0].encode() in path.read_bytes(), "control of the test above"


@pytest.mark.parametrize("name", ['x"; DROP TABLE keep; --', "50% ?", "select"])
def test_table_names_are_names(path: Path, protector: vecveil.Protector, name: str) -> None:
    with ProtectedTable(path, "keep", protector) as keep:
        keep.create()
    with ProtectedTable(path, name, protector) as table:
        table.create({"tag": "text"})
        table.add(IDS, TEXTS, [{"tag": "'; DROP keep; --"}, {"tag": "b"}, {"tag": "?"}])
        (found,) = table.search(TEXTS[1], where={"tag": "'; DROP keep; --"})
        assert found.id == "a"
    with ProtectedTable(path, "keep", protector) as keep:
        assert keep.count() == 0


@pytest.mark.parametrize("name", ['x"y', "a b", "x text, y", "", "rowid", "größe", None])
def test_column_names_that_cannot_be_quoted_are_refused(
    path: Path, protector: vecveil.Protector, name: Any
) -> None:
    with raises("E-INPUT", "id_column"):
        ProtectedTable(path, "notes", protector, id_column=name)
    with ProtectedTable(path, "notes", protector) as table:
        with raises("E-INPUT", "fields"):
            table.create({name: "text"})
        table.create()
        with raises("E-INPUT", "fields"):
            table.add(IDS, TEXTS, [{name: "x"}] * 3)
        with raises("E-INPUT", "where"):
            table.search(TEXTS[0], where={name: "x"})
        with raises("E-INPUT", "fields"):
            table.create({"y": "text, z text"})  # type: ignore[dict-item]


def test_a_refused_row_takes_the_batch_with_it(table: ProtectedTable, path: Path) -> None:
    table.add(IDS[:1], TEXTS[:1], rows_of(1))
    before = stored(path)
    secret = "not-a-year-amoxicillin"
    bad = rows_of()
    bad[2]["year"] = secret
    with raises("E-STORE-DATABASE", "writing rows; no row of the batch was written") as caught:
        table.add(IDS, TEXTS, bad)
    assert secret not in str(caught.value)
    assert caught.value.__suppress_context__
    assert {one: vector.tobytes() for one, vector in stored(path).items()} == {
        one: vector.tobytes() for one, vector in before.items()
    }
    table.add(IDS, TEXTS, rows_of())
    assert table.count() == 3


def test_a_file_that_another_holds_is_an_error_and_going_on_works(
    table: ProtectedTable, path: Path
) -> None:
    table.store._opened.execute("PRAGMA busy_timeout = 1")
    other = sqlite.connect(str(path), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError):
        table.add(IDS, TEXTS, rows_of())
    other.execute("ROLLBACK")
    other.close()
    table.add(IDS, TEXTS, rows_of())
    assert table.count() == 3


def test_a_connection_of_the_callers_keeps_its_transaction(
    path: Path, protector: vecveil.Protector
) -> None:
    given = sqlite.connect(str(path))
    table = ProtectedTable(given, "theirs", protector)
    table.create()
    given.execute("CREATE TABLE plain (x)")
    given.execute("INSERT INTO plain VALUES (1)")
    table.add(IDS, TEXTS)
    given.rollback()
    assert table.count() == 0
    table.add(IDS, TEXTS)
    table.close()
    assert given.execute("SELECT count(*) FROM theirs").fetchone() == (3,)
    given.close()


def test_what_does_not_fit_is_refused(
    path: Path, protector: vecveil.Protector, clean: np.ndarray, tmp_path: Path
) -> None:
    bad = clean.copy()
    bad[1, 3] = np.nan
    with ProtectedTable(path, "notes", protector) as table:
        with pytest.raises(StoreError):
            table.add(IDS, TEXTS)  # no table yet
        table.create()
        for call in (
            (IDS, bad),
            (IDS, clean[:, :8].copy()),
            (IDS[:2], TEXTS),
            (["a", "a", "b"], TEXTS),
            (IDS, TEXTS, [{"year": 1}]),
            (IDS, TEXTS, [{"embedding": 1}] * 3),
            (IDS, ["x", None, "y"]),
        ):
            with pytest.raises((InvalidInputError, IncompatibleError)):
                table.add(*call)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            table.search(bad[1])
        assert table.count() == 0
    with raises("E-INPUT-NAME", "metric"):
        ProtectedTable(path, "notes", protector, metric="dot")  # type: ignore[arg-type]
    with SqliteVecStore(path, "narrow") as eight:
        eight.create(8)
    with ProtectedTable(path, "narrow", protector) as narrow:
        for create in (narrow.create, lambda: narrow.search("x")):
            with raises("E-INCOMPATIBLE-DIMENSION", "table"):
                create()
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    with ProtectedTable(path, "capped", protector, ledger=ledger) as capped:
        capped.create()
        capped.add(IDS, TEXTS)
        with pytest.raises(LedgerCapError):
            capped.add(IDS[:1], TEXTS[:1])


def test_a_python_that_cannot_load_extensions_is_told_of(
    path: Path, protector: vecveil.Protector, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    class Bare:  # as builds without extensions have it
        pass

    monkeypatch.setattr(sqlite3, "Connection", Bare)
    monkeypatch.setitem(sys.modules, "pysqlite3", None)
    with pytest.raises(MissingDependencyError, match="pysqlite3-binary"):
        ProtectedTable(path, "notes", protector)
    with pytest.raises(MissingDependencyError, match="cannot load extensions"):
        ProtectedTable(Bare(), "notes", protector).create()
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    with pytest.raises(MissingDependencyError, match="'sqlite-vec'"):
        ProtectedTable(path, "notes", protector)


def test_the_code_of_the_page_runs(
    protector_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "health.vecveil").write_bytes(protector_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "integrations" / "databases.md").read_text(encoding="utf-8")
    (block,) = blocks(section(page, "sqlite-vec"), "text")
    namespace: dict[str, Any] = {"texts": TEXTS[:2], "question": TEXTS[1]}
    exec(compile(block.code, "sqlite_vec.md", "exec"), namespace)
    assert namespace["found"][0].id == "b"
