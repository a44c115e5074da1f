"""A database is replaced by its sealed copy: files that held clean rows are gone, whenever the work was interrupted."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.faults import clean_rows_in
from vecveil.databases import Batch, open_store, replacing
from vecveil.databases.collection import ProtectedCollection
from vecveil.databases.locations import in_this_process, public_name
from vecveil.databases.migrating import Migration, MigrationOptions, migrate, verify_migration
from vecveil.databases.replacing import seal_in_place
from vecveil.databases.state import read_state
from vecveil.databases.verifying import files_with, traces_of
from vecveil.protector.policy import ReleasePolicy
from vecveil.sealing import Sealer
from vecveil.sealing.blob import SEALED_FIELD, decoded

N, ROWS = 16, 40
IDS = tuple(f"r{row}" for row in range(ROWS))
X = np.random.default_rng(31).standard_normal((ROWS, N)).astype(np.float32)
TEXTS = [
    f'Patient {row} sleeps "badly" in the für Elise ward and takes tablets twice'
    for row in range(ROWS)
]
CLEAN = Batch(IDS, X, tuple({"note": text, "page": row} for row, text in enumerate(TEXTS)))
STORES = {
    "chroma": ("chromadb", "chroma:{}/notes#notes"),
    "lancedb": ("lancedb", "lancedb:{}/lance#notes"),
    "qdrant": ("qdrant_client", "qdrant:{}/notes#notes"),
    "faiss": ("faiss", "faiss:{}/notes.index"),
    "sqlite-vec": ("sqlite_vec", "sqlite-vec:{}/rows.db#notes"),
    "milvus": ("milvus_lite", "milvus:{}/rows.db#notes"),
}
LOCAL = [kind for kind, (module, _) in STORES.items() if importlib.util.find_spec(module)]
FAISS = pytest.mark.skipif("faiss" not in LOCAL, reason="faiss is not installed")


@pytest.fixture(scope="module")
def policy() -> ReleasePolicy:
    rng = np.random.default_rng(5)
    negative = rng.standard_normal((200, N))
    positive = negative + rng.standard_normal((1, N))
    return ReleasePolicy(
        vecveil.fit_pairs(positive, negative, method="laplace", noise_to_signal=0.5)
    )


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    vecveil.NoiseKeys.create(tmp_path / "search.keys", "one")
    return Sealer(tmp_path / "search.keys", precision="float32")


Seal = Callable[[str], Migration]


@pytest.fixture
def seal(policy: ReleasePolicy, sealer: Sealer, tmp_path: Path) -> Seal:
    options = MigrationOptions(seal=True, in_place=True, filter_fields=("page",))
    return lambda where: seal_in_place(where, policy, tmp_path / "state.json", sealer=sealer, options=options,
                                       batch=15, show_progress=False)  # fmt: skip


def place(tmp_path: Path, kind: str = "faiss") -> str:
    folder = tmp_path / "place"
    folder.mkdir(exist_ok=True)
    where = STORES[kind][1].format(folder)
    with in_this_process(where) as store:
        store.create(N, metric="euclidean")
        store.write(CLEAN)
        store.release()
    return where


def holding(folder: Path, needles: list[bytes]) -> bool:
    return any(
        one in path.read_bytes() for path in folder.rglob("*") if path.is_file() for one in needles
    )


def assert_sealed(where: str, policy: ReleasePolicy, sealer: Sealer) -> None:
    with in_this_process(where) as store:
        rows = store.read(IDS)
        assert store.count() == ROWS
        found = ProtectedCollection(store, policy, sealer, name=public_name(where)).search(X[7], where={"page": 7})
        assert found.ids == ["r7"]
        store.release()
    assert {name for fields in rows.fields for name in fields} == {SEALED_FIELD, "vecveil_filter_page"}
    blobs = [decoded(fields[SEALED_FIELD]) for fields in rows.fields]
    opened = sealer.unseal(blobs, ids=IDS, collection=public_name(where))
    assert opened.vectors.tobytes() == X.tobytes()
    assert opened.texts == TEXTS
    assert opened.metadata == [{"page": row} for row in range(ROWS)]


@pytest.mark.parametrize("kind", LOCAL)
def test_no_file_of_a_sealed_database_holds_a_clean_vector_or_text(
    kind: str, seal: Seal, policy: ReleasePolicy, sealer: Sealer, tmp_path: Path
) -> None:
    where, folder = place(tmp_path, kind), tmp_path / "place"
    # A known vector as float32, and as Qdrant pickles it; a known text, plain and in JSON.
    vector = [X[7, :4].tobytes(), b"G".join(struct.pack(">d", float(value)) for value in X[7, :2])]
    text = [b"in the f\xc3\xbcr Elise ward", b"in the f\\u00fcr Elise ward"]
    both = (traces_of(Batch(IDS, X, ({},) * ROWS), -X, {"note"}),
            traces_of(Batch(IDS, 0 * X, CLEAN.fields), -X, {"note"}))  # fmt: skip
    with in_this_process(where) as store:
        files = store.files()
        store.release()
    # Control: both scans find what they look for, vectors and texts, before.
    assert holding(folder, vector)
    assert holding(folder, text)
    assert all(files_with(files, traces) for traces in both)
    done = seal(where)
    assert done.verification.ok
    assert done.verification.traces == 0
    assert not holding(folder, vector + text)
    assert not any(files_with([str(folder)], traces) for traces in both)
    assert clean_rows_in(folder, X) == []
    assert not [path for path in folder.iterdir() if path.name.endswith(".replacing")]
    assert_sealed(where, policy, sealer)
    if kind != "chroma":  # done: once more only verifies. Chroma starts processes for it
        assert seal(where).state == read_state(tmp_path / "state.json")
        assert_sealed(where, policy, sealer)


@FAISS
def test_interrupted_before_each_step(
    seal: Seal, policy: ReleasePolicy, sealer: Sealer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename, removal and record of the state is interrupted once; the same call then ends the work."""
    interrupted = 0
    while True:
        calls = iter(range(1000))
        where = place(tmp_path)

        def dies(function: Any, calls: Any = calls, last: int = interrupted) -> Any:
            def call(*given: Any) -> Any:
                if next(calls) == last:
                    raise KeyboardInterrupt
                return function(*given)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(replacing.os, "rename", dies(replacing.os.rename))
            patched.setattr(replacing.shutil, "rmtree", dies(replacing.shutil.rmtree))
            patched.setattr(replacing, "write_state", dies(replacing.write_state))
            try:
                seal(where)
            except KeyboardInterrupt:
                interrupted += 1
            else:
                break
        # Between the renames the old files or the new ones are at the place, or both beside it.
        assert len([*(tmp_path / "place").rglob("notes.index")]) >= 1
        assert seal(where).verification.ok
        assert_sealed(where, policy, sealer)
        assert clean_rows_in(tmp_path / "place", X) == []
        (tmp_path / "state.json").unlink()
        for path in (tmp_path / "place").iterdir():
            path.unlink()
    # Four records, the renames of two files away and of two to their place, and one removal.
    assert interrupted == 9


@FAISS
def test_a_file_that_appears_meanwhile_is_not_overwritten(
    seal: Seal, policy: ReleasePolicy, sealer: Sealer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, file = place(tmp_path), tmp_path / "place" / "notes.index"
    with monkeypatch.context() as patched:
        patched.setattr(replacing, "sync_folder", lambda folder: file.write_bytes(b"new"))
        with raises("E-STORE", "source"):
            seal(where)
    with raises("E-STORE", "source"):
        seal(where)
    assert file.read_bytes() == b"new"
    file.unlink()
    seal(where)
    assert_sealed(where, policy, sealer)


def test_a_server_and_shared_files_are_refused(seal: Seal, tmp_path: Path) -> None:
    if importlib.util.find_spec("psycopg"):
        with raises("E-STORE-FILES", "location"):
            seal("pgvector:host=localhost dbname=app#notes")
    for kind in {"sqlite-vec", "qdrant"} & {*LOCAL}:
        where = place(tmp_path, kind)
        if kind == "qdrant":
            with open_store(where.replace("#notes", "#others")) as store:
                store.create(N)
        else:
            with in_this_process(where) as opened, opened.cursor("a table") as cursor:  # type: ignore[attr-defined]
                cursor.execute("CREATE TABLE notes_of_mine (text)")
        with raises("E-STORE-FILES", "location"):
            seal(where)
        with open_store(where) as store:
            assert store.read(IDS).fields == CLEAN.fields
    assert not (tmp_path / "state.json").exists()


@FAISS
def test_nothing_may_be_left_out_or_sealed_twice(
    seal: Seal, policy: ReleasePolicy, sealer: Sealer, tmp_path: Path
) -> None:
    where = place(tmp_path)
    for options in (
        MigrationOptions(in_place=True),
        MigrationOptions(seal=True, in_place=True, skip_bad=True),
    ):
        given = {"sealer": sealer} if options.seal else {}
        with open_store(where) as store, raises("E-INPUT", "in_place"):
            migrate(
                store,
                store,
                policy,
                tmp_path / "s.json",
                names=("a", "a"),
                options=options,
                **given,
            )
    seal(where)
    (tmp_path / "state.json").unlink()
    with raises("E-STORE-SEALED", "source"):
        seal(where)
    # Without a seal key, too: it would put noise on noise, and leave the blobs behind.
    with open_store(where) as store, open_store(f"faiss:{tmp_path}/copy.index") as copy:
        with raises("E-STORE-SEALED", "source"):
            migrate(store, copy, policy, tmp_path / "t.json", names=("a", "b"))
        assert not copy.exists()
    assert_sealed(where, policy, sealer)


@FAISS
def test_a_copy_whose_files_hold_a_clean_text_fails_the_verification(
    policy: ReleasePolicy, tmp_path: Path
) -> None:
    where, names, state = place(tmp_path), ("source", "dest"), tmp_path / "s.json"
    with open_store(where) as source, open_store(f"faiss:{tmp_path}/copy.index") as dest:
        done = migrate(source, dest, policy, state, names=names, show_progress=False)
        assert done.verification.traces == 0
        beside = tmp_path / "copy.index.jsonl"
        written = beside.read_bytes()
        # A further line is no row: only the search through the files sees it.
        beside.write_bytes(written + json.dumps({"id": "gone", "left": TEXTS[3]}).encode() + b"\n")
        again = verify_migration(dest, source, state, names=names, show_progress=False).verification
        assert (again.traces, again.ok) == (1, False)
        beside.write_bytes(written + X[5].tobytes())
        assert [path.name for path in files_with(dest.files(), traces_of(CLEAN, -X, {"note"}))] == [
            beside.name
        ]
