"""A store in a process of its own answers as the store itself does, and nothing of this process gets into its files."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.command_line import CANARY
from vecveil.errors import InvalidInputError, StoreError
from vecveil.release_policy import ReleasePolicy
from vecveil.stores import Batch, open_store
from vecveil.stores.apart import StoreApart
from vecveil.stores.chroma import ChromaStore
from vecveil.stores.locating import in_this_process
from vecveil.stores.migrating import migrate

pytest.importorskip("chromadb")

ROWS, N = 120, 16
X = np.random.default_rng(0).standard_normal((ROWS, N)).astype(np.float32)
IDS = tuple(f"n{i}" for i in range(ROWS))


def rows(**fields: Any) -> Batch:
    return Batch(IDS, X, tuple({"page": i, "é": "ü", **fields} for i in range(ROWS)))


@pytest.fixture
def apart(tmp_path: Path) -> Any:
    with StoreApart("chroma", str(tmp_path / "apart"), "notes") as store:
        yield store


def test_it_answers_as_the_store_does(apart: StoreApart, tmp_path: Path) -> None:
    with in_this_process(f"chroma:{tmp_path}/here#notes") as here:
        for store in (here, apart):
            assert not store.exists()
            store.create(N, metric="cosine")
            assert store.exists()
            store.write(rows())
        assert apart.info() == here.info()
        assert apart.normalises is here.normalises is True
        assert apart.rows_at_once(7, 70) == 7
        for ours, theirs in zip(apart.batches(50), here.batches(50), strict=True):
            assert (ours.ids, ours.fields, ours.cursor) == (
                theirs.ids,
                theirs.fields,
                theirs.cursor,
            )
            np.testing.assert_array_equal(ours.vectors, theirs.vectors)
        assert [one.ids for one in apart.batches(50, after="100")] == [IDS[100:]]
        found = apart.read(["n5", "n3"])
        assert found.ids == ("n5", "n3")
        np.testing.assert_array_equal(found.vectors, here.read(["n5", "n3"]).vectors)


def test_errors_come_back_as_what_they_are(apart: StoreApart) -> None:
    with pytest.raises(StoreError, match="a folder that Chroma wrote"):
        apart.info()
    with pytest.raises(InvalidInputError, match="metric"):
        apart.create(N, metric="none")
    apart.create(N)  # and it goes on
    with pytest.raises(StoreError, match="dimension"):
        apart.create(N + 1)


def test_a_field_that_cannot_be_sent_is_one_clear_error(apart: StoreApart) -> None:
    apart.create(N)
    with pytest.raises(InvalidInputError, match=r"fields.*got datetime.*Leave the field out"):
        apart.write(rows(when=datetime.datetime(2026, 1, 1)))
    apart.write(rows(size=np.float32(0.5)))  # and it goes on
    assert apart.read(["n3"]).fields[0]["size"] == 0.5


def test_a_process_that_dies_is_told_and_replaced(apart: StoreApart) -> None:
    apart.create(N)
    assert apart._process is not None
    os.kill(apart._process.pid, signal.SIGKILL)
    with pytest.raises(StoreError, match="Run again"):
        apart.write(rows())
    apart.write(rows())
    assert apart.info().count == ROWS


def test_a_copy_to_chroma_is_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the clean rows is in the files of the copy: not in what Chroma saves of memory that it never set."""
    rng = np.random.default_rng(1)
    protector = vecveil.fit_pairs(X + rng.standard_normal((1, N)).astype(np.float32), X, method="laplace",
                                  noise_to_signal=0.3)  # fmt: skip
    clean = f"chroma:{tmp_path}/clean#notes"
    with in_this_process(clean) as store:
        store.create(N, metric="euclidean")
        store.write(rows(**{"chroma:document": f"what {CANARY} was told " * 5}))

    def refused(*_: Any) -> None:
        raise AssertionError("written in this process")

    monkeypatch.setattr(ChromaStore, "write", refused)
    for i in range(3):
        names = ("clean", f"copy{i}")
        folder = tmp_path / names[1]
        opened = (open_store, in_this_process)[i % 2](f"chroma:{folder}#notes")
        with in_this_process(clean) as source, opened as dest:
            done = migrate(source, dest, ReleasePolicy(protector), tmp_path / f"{i}.json", names=names,
                           show_progress=False)  # fmt: skip
            assert done.verification.ok
            assert done.state.rows == ROWS
        content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert CANARY.encode() not in content
        assert not [1 for x in X if x.tobytes() in content]


def test_only_folders_of_chroma_are_written_elsewhere(tmp_path: Path) -> None:
    with open_store(f"faiss:{tmp_path}/x.index") as store:
        assert store.apart() is store
    assert open_store(f"chroma:{tmp_path}").kind == "apart"
    assert open_store("chroma:http://127.0.0.1:9").kind == "chroma"
    assert ChromaStore("http://127.0.0.1:9", "notes").apart().kind == "chroma"
    assert ChromaStore(str(tmp_path), "notes").apart().kind == "apart"
