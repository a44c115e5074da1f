"""A store in a process of its own answers as the store itself does, and nothing of this process gets into its files."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("chromadb")

import vecveil
from harness.command_line import CANARY
from harness.errors import raises
from vecveil.errors import MissingDependencyError, StoreError
from vecveil.privacy.protector import EncoderInfo, open_policy
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.stores.apart import StoreApart, _error
from vecveil.stores.chroma import ChromaStore
from vecveil.stores.locations import in_this_process
from vecveil.stores.migrating import migrate

ROWS, N = 120, 16
X = np.random.default_rng(0).standard_normal((ROWS, N)).astype(np.float32)
IDS = tuple(f"n{i}" for i in range(ROWS))


def rows(**fields: Any) -> Batch:
    return Batch(IDS, X, tuple({"page": i, "é": "ü", **fields} for i in range(ROWS)))


@pytest.fixture
def apart(tmp_path: Path) -> Any:
    with StoreApart("chroma", str(tmp_path / "apart"), "notes") as store:
        yield store


@pytest.mark.slow
def test_it_answers_as_the_store_does(apart: StoreApart, tmp_path: Path) -> None:
    with in_this_process(f"chroma:{tmp_path}/here#notes") as here:
        for store in (here, apart):
            assert not store.exists()
            store.create(N, metric="cosine")
            assert store.exists()
            store.write(rows())
        assert apart.info() == here.info()
        assert apart.normalises is here.normalises is True
        for ours, theirs in zip(apart.batches(50), here.batches(50), strict=True):
            assert (ours.ids, ours.fields, ours.cursor) == (theirs.ids, theirs.fields, theirs.cursor)
            np.testing.assert_array_equal(ours.vectors, theirs.vectors)
        assert [one.ids for one in apart.batches(50, after="100")] == [IDS[100:]]
        found = apart.read(["n5", "n3"])
        assert found.ids == ("n5", "n3")
        np.testing.assert_array_equal(found.vectors, here.read(["n5", "n3"]).vectors)


@pytest.mark.slow
def test_errors_come_back_as_what_they_are_and_it_goes_on(apart: StoreApart) -> None:
    with ThreadPoolExecutor(1) as thread, raises("E-STORE-NOT-FOUND", "location"):
        thread.submit(apart.info).result()
    begun = apart._process
    assert not apart.exists()
    assert apart._process is begun, "the process outlives the thread that began it"
    with raises("E-INPUT-NAME", "metric"):
        apart.create(N, metric="none")
    with raises("E-STORE-NOT-FOUND", "location"):
        list(apart.batches(50))
    apart.create(N, metric="euclidean")
    with raises("E-STORE", "dimension"):
        apart.create(N + 1)
    with raises("E-INPUT", "fields"):
        apart.write(rows(when=datetime.datetime(2026, 1, 1)))
    apart.write(rows(size=np.float32(0.5)))
    assert apart.read(["n3"]).fields[0]["size"] == 0.5
    assert sum(len(one) for one in apart.batches(50)) == ROWS, "reading began anew after its error"

    def ask(i: int) -> bool:
        return apart.read([IDS[i]]).vectors.tobytes() == X[i : i + 1].tobytes()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(ROWS))), "each thread gets the answer to its own request"


@pytest.mark.slow
def test_the_current_folder_may_have_any_name_and_nothing_is_imported_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a#b"
    folder.mkdir()
    (folder / "numpy.py").write_text("open('imported', 'w').close()\nraise SystemExit\n")
    monkeypatch.chdir(folder)
    with open_store("chroma:db#notes") as store:
        assert not store.exists()
        store.create(N)
        assert store.info().name == "notes"
    assert not (folder / "imported").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a#b"]
    assert (tmp_path / "a#b" / "db" / "chroma.sqlite3").is_file()


@pytest.mark.slow
def test_ctrl_c_reaches_the_parent_alone(apart: StoreApart) -> None:
    """A terminal signals a process group; a child that still imports would print a traceback."""
    apart.exists()
    assert apart._process is not None
    assert os.getpgid(apart._process.pid) != os.getpgid(0)


def test_errors_of_any_kind_come_back() -> None:
    error = _error("MissingDependencyError", "what is missing")
    assert type(error) is MissingDependencyError
    assert str(error) == "what is missing"
    assert type(_error("os", "text")) is StoreError


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
def test_no_key_is_where_chroma_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    protector = vecveil.fit_pairs(
        X + rng.standard_normal((1, N)).astype(np.float32), X, method="laplace", noise_to_signal=0.3
    )
    protector = replace(protector, encoder_info=EncoderInfo("minilm", "abc", "fp32"))
    protector.save(tmp_path / "p.vecveil")
    keys = vecveil.KeyFile.create(tmp_path / "noise.key", "k")
    monkeypatch.setenv("SOME_TOKEN", CANARY)
    with open_store(f"chroma:{tmp_path}/db#notes") as store:
        assert isinstance(store, StoreApart)
        policy = open_policy(tmp_path / "p.vecveil", key=tmp_path / "noise.key")
        vecveil.ProtectedCollection(store, policy).add(ids=rows().ids, vectors=X)
        assert store._process is not None
        held = memory_of(store._process.pid)
    assert b"vecveil_protector" in held  # what is written is
    assert keys.key().secret_for_noise() not in held
    assert CANARY.encode() not in held


def memory_of(process: int) -> bytes:
    """Return what a process may write, as it is in memory."""
    parts = []
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(one, 16) for one in place.split("-"))
            if rights.startswith("rw") and end - start < 1 << 28:
                memory.seek(start)
                with contextlib.suppress(OSError):
                    parts.append(memory.read(end - start))
    return b"".join(parts)


@pytest.mark.slow
def test_a_process_that_dies_is_told_and_replaced(apart: StoreApart) -> None:
    apart.create(N)
    assert apart._process is not None
    os.kill(apart._process.pid, signal.SIGKILL)
    with raises("E-STORE", "process"):
        apart.write(rows())
    apart.write(rows())
    assert apart.info().count == ROWS


@pytest.mark.slow
def test_a_copy_to_chroma_is_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the clean rows is in the files of the copy: not in what Chroma saves of memory that it never set."""
    rng = np.random.default_rng(1)
    protector = vecveil.fit_pairs(
        X + rng.standard_normal((1, N)).astype(np.float32), X, method="laplace", noise_to_signal=0.3
    )
    clean = f"chroma:{tmp_path}/clean#notes"
    with in_this_process(clean) as store:
        store.create(N, metric="euclidean")
        store.write(rows(**{"chroma:document": f"what {CANARY} was told " * 5}))

    connected = ChromaStore._client

    def only_the_source(store: ChromaStore) -> Any:
        assert store._where == f"{tmp_path}/clean", "opened in this process"
        return connected(store)

    monkeypatch.setattr(ChromaStore, "_client", only_the_source)
    for i in range(3):
        names = ("clean", f"copy{i}")
        folder = tmp_path / names[1]
        opened = (open_store, in_this_process)[i % 2](f"chroma:{folder}#notes")
        with in_this_process(clean) as source, opened as dest:
            done = migrate(
                source, dest, ReleasePolicy(protector), tmp_path / f"{i}.json", names=names, show_progress=False
            )
            assert done.verification.ok
            assert done.state.rows == ROWS
        content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert CANARY.encode() not in content
        assert not [1 for x in X if x.tobytes() in content]


def test_only_folders_of_chroma_are_written_elsewhere(tmp_path: Path) -> None:
    with open_store(f"sqlite-vec:{tmp_path}/x.db#notes") as store:
        assert store.apart() is store
    assert open_store(f"chroma:{tmp_path}").kind == "apart"
    assert open_store("chroma:http://127.0.0.1:9").kind == "chroma"
    assert ChromaStore("http://127.0.0.1:9", "notes").apart().kind == "chroma"
    assert ChromaStore(str(tmp_path), "notes").apart().kind == "apart"
