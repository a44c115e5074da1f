"""Index files as stores: ids, lines beside them, crashes, kinds of indexes."""

from __future__ import annotations

import concurrent.futures
import datetime
import json
import os
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from harness.errors import raises
from vecveil.databases import Batch, open_store
from vecveil.databases.faiss import FaissStore
from vecveil.errors import StoreError

X = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.index"


def batch(*ids: str, fields: dict[str, Any] | None = None) -> Batch:
    return Batch(ids, X[: len(ids)], ({} if fields is None else fields,) * len(ids))


def test_an_index_of_somebody_elses_has_the_rows_numbers_for_ids(path: Path) -> None:
    index = faiss.IndexFlatL2(8)
    index.add(X)
    faiss.write_index(index, str(path))
    with open_store(f"faiss:{path}") as store:
        one = store.read(["59", "0"])
        assert np.array_equal(one.vectors, X[[59, 0]])
        assert store.info().metric == "euclidean"
        store.write(batch("3", fields={"year": 1}))
        assert dict(store.read(["3"]).fields[0]) == {"year": 1}
        assert np.array_equal(store.read(["3", "4"]).vectors, X[[0, 4]])
        store.write(batch("new"))
        assert store.info().count == 61


@pytest.mark.parametrize("kind", ["IDMap,Flat", "IDMap2,Flat", "IDMap,HNSW8"])
def test_ids_of_a_map_are_kept(path: Path, kind: str) -> None:
    index = faiss.index_factory(8, kind)
    ids = np.arange(60) * 7 + 2**40
    index.add_with_ids(X, ids)
    faiss.write_index(index, str(path))
    with FaissStore(str(path)) as store:
        found = [one for part in store.batches(25) for one in part.ids]
        assert found == [str(one) for one in ids]
        store.write(Batch((found[5], "9"), X[:2], ({"a": 1}, {})))
        assert np.array_equal(store.read([found[5], "9", found[6]]).vectors, X[[0, 1, 6]])
        with raises("E-INPUT", "ids"):
            store.write(batch("a text"))
        assert store.info().count == 61
    again = faiss.read_index(str(path))
    assert type(again) is type(index)
    assert again.search(X[1:2], 1)[1][0, 0] in (9, ids[1])


@pytest.mark.parametrize(
    ("kind", "lossy"), [("IVF4,Flat", False), ("HNSW8", False), ("SQ8", True), ("PQ4x4", True)]
)
def test_indexes_that_reconstruct_can_be_read_and_written(
    path: Path, kind: str, lossy: bool
) -> None:
    index = faiss.index_factory(8, kind)
    index.train(X)
    index.add(X)
    faiss.write_index(index, str(path))
    with FaissStore(str(path)) as store:
        (all_of_it,) = store.batches()
        assert all_of_it.vectors.shape == X.shape
        assert np.array_equal(all_of_it.vectors, X) != lossy
        store.write(batch("60", "7"))
        assert store.info().count == 61
        assert store.read(["7"]).vectors.shape == (1, 8)
    assert type(faiss.read_index(str(path))) is type(index)


def test_an_index_that_cannot_reconstruct_is_refused(path: Path) -> None:
    index = faiss.index_factory(8, "IVF4,Flat")
    index.train(X)
    index.add_with_ids(
        X, np.arange(60) * 1000
    )  # its direct map takes no other ids than the rows' numbers
    faiss.write_index(index, str(path))
    with FaissStore(str(path)) as store, raises("E-STORE-DATABASE", "reading vectors") as caught:
        list(store.batches())
    assert caught.value.__suppress_context__


def test_a_crash_between_the_two_files_is_repaired_by_writing_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaissStore(str(path)) as store:
        store.create(8, metric="cosine")
        store.write(batch("a", "b", fields={"n": 1}))
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(faiss, "write_index", _crash)
            with raises("E-STORE-DATABASE", "writing rows"):
                store.write(batch("c", "d", "e", fields={"n": 2}))
        assert path.read_bytes() == before
        assert sorted(one.name for one in path.parent.iterdir()) == [
            path.name,
            f"{path.name}.jsonl",
        ]
        assert store.info().count == 2
    with FaissStore(str(path)) as store:
        assert [dict(row) for part in store.batches() for row in part.fields] == [{"n": 1}] * 2
        store.write(batch("c", "d", "e", fields={"n": 2}))
        assert store.read(["e"]).fields == ({"n": 2},)
        assert store.info() == type(store.info())("faiss", "notes.index", 5, 8, "cosine")


@pytest.mark.parametrize("replaced", [".index", ".jsonl"])  # killed before this rename
def test_a_kill_between_the_renames_leaves_the_old_rows_or_the_new(
    path: Path, monkeypatch: pytest.MonkeyPatch, replaced: str
) -> None:
    replace = os.replace

    def killed(source: Any, target: Any) -> None:
        if str(target).endswith(replaced):
            raise KeyboardInterrupt
        replace(source, target)

    with FaissStore(str(path)) as store:
        store.create(8, metric="cosine")
        store.write(batch("a", "b", "c", fields={"n": 1}))
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                store.delete(["a"])
    rows = ("a", "b", "c") if replaced == ".index" else ("b", "c")
    for name in ("x", "y"):  # as found, and after another write
        with FaissStore(str(path)) as store:
            assert next(iter(store.batches())).ids == rows
            np.testing.assert_array_equal(store.read(["c"]).vectors[0], X[2])
            store.write(batch(name))
            rows = (*rows, name)


def _crash(index: Any, where: str) -> None:
    Path(where).write_bytes(b"half")
    raise RuntimeError("crash")


@pytest.mark.parametrize(
    "lines", ["", '{"id": "a"}\n', '{"id": "a"}\n{"id": "a"}\n', "no json\n", '["a"]\n["b"]\n']
)
def test_lines_that_do_not_fit_are_refused(path: Path, lines: str) -> None:
    index = faiss.IndexFlatL2(8)
    index.add(X[:2])
    faiss.write_index(index, str(path))
    Path(f"{path}.jsonl").write_text(lines)
    with FaissStore(str(path)) as store, pytest.raises(StoreError):
        store.info()


def test_lines_of_somebody_elses_are_read(path: Path) -> None:
    index = faiss.IndexFlatIP(8)
    index.add(X[:2])
    faiss.write_index(index, str(path))
    Path(f"{path}.jsonl").write_text('{"id": "a", "fields": {"t": "ä"}}\n{"id": 7}\n')
    with FaissStore(str(path)) as store:
        (one,) = store.batches()
        assert (one.ids, one.fields) == (("a", "7"), ({"t": "ä"}, {}))
        assert store.info().metric == "dot"


def test_a_file_that_another_wrote_is_read_again(path: Path) -> None:
    with FaissStore(str(path)) as store, FaissStore(str(path)) as other:
        store.create(8)
        store.write(batch("a"))
        other.write(batch("b", "c"))
        assert store.info().count == 3
        assert len(store.read(["c"])) == 1


def test_two_writers_lose_no_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(start: int) -> None:
        with FaissStore(str(path)) as store:
            for number in range(start, start + 15):
                store.write(batch(str(number)))

    with FaissStore(str(path)) as store:
        store.create(8)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            list(threads.map(fill, (0, 100)))
        assert store.count() == 30
        with FaissStore(str(path)) as other:  # which looked before the first one made the file
            monkeypatch.setattr(other, "exists", lambda: False)
            other.create(8)
        assert store.count() == 30


def test_fields_become_json(path: Path) -> None:
    with FaissStore(str(path)) as store:
        store.create(8)
        store.write(batch("a", fields={"when": datetime.date(2020, 1, 2), "more": [{"x": None}]}))
        assert store.read(["a"]).fields == ({"when": "2020-01-02", "more": [{"x": None}]},)
        with raises("E-STORE", "fields"):
            store.write(batch("b", fields={"x": object()}))
        assert store.info().count == 1
    lines = Path(f"{path}.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["id"] == "a"


def test_a_damaged_file_and_a_collection_are_refused(path: Path) -> None:
    path.write_bytes(b"IxF2 but no more")
    with FaissStore(str(path)) as store, pytest.raises(StoreError) as caught:
        store.info()
    assert caught.value.__suppress_context__
    with raises("E-INPUT", "location"):
        open_store(f"faiss:{path}#notes")


def test_a_copy_is_written_in_few_pieces(path: Path) -> None:
    with FaissStore(str(path)) as store:
        assert store.rows_at_once(100, 4001) == 201
        assert store.rows_at_once(1000, 4001) == 1000


def test_lines_that_a_writer_renames_while_they_are_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaissStore(str(path)) as store:
        store.create(8)
        store.write(batch("a"))
    with FaissStore(str(path)) as store:
        # The lines had arrived a moment ago; the writer has put them beside the index since.
        monkeypatch.setattr(store, "_arrived", lambda: True)
        assert store.read(["a"]).ids == ("a",)
