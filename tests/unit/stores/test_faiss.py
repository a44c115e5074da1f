"""Index files and folders of LangChain as a source: ids, texts of the pickle, and nothing of it is run."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

import vecveil
from harness.command_line import run
from harness.errors import raises
from vecveil.stores import open_store
from vecveil.stores.faiss import FaissStore
from vecveil.stores.scanning import scan

X = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)


def written(path: Path, index: Any, ids: Any = None) -> Path:
    if not index.is_trained:
        index.train(X)
    index.add(X) if ids is None else index.add_with_ids(X, ids)
    faiss.write_index(index, str(path))
    return path


def langchain_folder(folder: Path, rows: int = 60) -> Path:
    """Return a folder that LangChain's FAISS saved."""
    pytest.importorskip("langchain_community")
    from langchain_community.docstore.in_memory import InMemoryDocstore
    from langchain_community.vectorstores import FAISS
    from langchain_core.documents import Document

    index = faiss.IndexFlatL2(8)
    index.add(X[:rows])
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    documents = {
        f"d{i}": Document(
            f"patient {i} sleeps badly and takes tablets",
            id=f"d{i}",
            metadata={"page": i, "tags": ["a", {"b": 1.5}], "when": when},
        )
        for i in range(rows)
    }
    places = {i: f"d{rows - 1 - i}" for i in range(rows)}
    FAISS(len, index, InMemoryDocstore(documents), places).save_local(str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*langchain-community.*:DeprecationWarning")
def test_a_folder_of_langchain_is_scanned_and_migrated_with_its_texts(tmp_path: Path) -> None:
    folder = langchain_folder(tmp_path / "saved")
    for where in (folder, folder / "index.faiss"):
        with open_store(f"faiss:{where}") as store:
            row = store.read(["d7"])
            assert np.array_equal(row.vectors, X[52:53])
            assert row.fields[0]["page"] == 7
            assert row.fields[0]["index.pkl:page_content"] == "patient 7 sleeps badly and takes tablets"
            finding = scan(store).findings[0]
            assert (finding.code, "index.pkl" in finding.message) == ("plaintext-beside-vectors", True)
    vecveil.fit_pairs(X, X[::-1], method="laplace", noise_to_signal=0.5).save(tmp_path / "p.vecveil")
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    dest = f"sqlite-vec:{tmp_path}/notes.db#notes"
    given = ("-p", tmp_path / "p.vecveil", "--seal-key", tmp_path / "search.keys")
    done = run("migrate", f"faiss:{folder}", dest, *given)
    assert done.code == 0, done.err
    assert "index.pkl:page_content (text)" in done.err
    copy = vecveil.ProtectedCollection(dest, tmp_path / "p.vecveil", tmp_path / "search.keys")
    hits = copy.search(X[52], top=1)
    assert (hits.ids, hits.texts) == (["d7"], ["patient 7 sleeps badly and takes tablets"])
    assert hits.metadata[0] is not None
    assert hits.metadata[0]["page"] == 7
    refused = run("migrate", dest, f"faiss:{tmp_path / 'new.faiss'}", "-p", tmp_path / "p.vecveil")
    assert refused.code == 1


class Runs:
    """What a hostile pickle calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def memo(content: bytes) -> bytes:
    return content[:-1] + b"r\xff\xff\xff\x7f."  # LONG_BINPUT 2**31 - 1


@pytest.mark.filterwarnings("ignore:.*langchain-community.*:DeprecationWarning")
@pytest.mark.parametrize("damage", ["runs", "inside", "cut", "memo", "laughs", "rows", "texts", "persistent"])
def test_a_pickle_of_another_shape_is_refused_and_nothing_of_it_runs(tmp_path: Path, damage: str) -> None:
    folder, ran = langchain_folder(tmp_path / "saved", 2), tmp_path / "ran"
    file = folder / "index.pkl"
    store, places = pickle.loads(file.read_bytes())
    laughs: list[Any] = ["ha"]
    for _ in range(40):
        laughs = [laughs, laughs]
    if damage in ("inside", "laughs", "texts"):
        value = {"inside": Runs(ran), "laughs": laughs, "texts": 7}[damage]
        (store._dict["d0"].__dict__ if damage == "texts" else store._dict["d0"].metadata)["page_content"] = value
    content = {
        "runs": pickle.dumps(Runs(ran)),
        "cut": file.read_bytes()[:-9],
        "memo": memo(file.read_bytes()),
        "rows": pickle.dumps((store, {0: "d0"})),
        "persistent": b"Pposix.system\n.",
    }.get(damage, pickle.dumps((store, places)))
    file.write_bytes(content)
    with open_store(f"faiss:{folder}") as opened:
        with raises("E-STORE-PICKLE", "location") as caught:
            list(opened.batches())
        assert "index.pkl" in str(caught.value)
        assert not ran.exists()
        file.rename(folder / "apart.pkl")
        assert opened.read(["1"]).vectors.tolist() == X[1:2].tolist()


@pytest.mark.parametrize("kind", ["Flat", "IVF4,Flat", "HNSW8", "SQ8", "PQ4x4"])
def test_indexes_that_reconstruct_are_read(tmp_path: Path, kind: str) -> None:
    with FaissStore(str(written(tmp_path / "x.index", faiss.index_factory(8, kind)))) as store:
        (rows,) = store.batches()
        assert rows.ids == tuple(map(str, range(60)))
        assert np.array_equal(rows.vectors, X) != (kind in ("SQ8", "PQ4x4"))
        assert store.read(["59", "0"]).ids == ("59", "0")
        assert store.info().metric == "euclidean"


@pytest.mark.parametrize("kind", ["IDMap,Flat", "IDMap2,Flat", "IDMap,HNSW8"])
def test_ids_of_a_map_are_kept(tmp_path: Path, kind: str) -> None:
    ids = np.arange(60) * 7 + 2**40
    with FaissStore(str(written(tmp_path / "x.index", faiss.index_factory(8, kind), ids))) as store:
        assert [one for part in store.batches(25) for one in part.ids] == [str(one) for one in ids]


def test_what_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    # A direct map takes no other ids than the rows' numbers.
    path = written(tmp_path / "x.index", faiss.index_factory(8, "IVF4,Flat"), np.arange(60) * 1000)
    with FaissStore(str(path)) as store:
        with raises("E-STORE-DATABASE", "reading vectors"):
            list(store.batches())
        for call in (lambda: store.create(8), lambda: store.search(X[0]), lambda: store.delete(["1"])):
            with raises("E-STORE-SOURCE", "location"):
                call()
    (tmp_path / "y.index").write_bytes(b"IxF2 and no more")
    with raises("E-STORE-DATABASE"), open_store(f"faiss:{tmp_path}/y.index") as store:
        store.info()
    with raises("E-STORE-NOT-FOUND"), open_store(f"faiss:{tmp_path}/none") as store:
        store.info()
    with raises("E-INPUT", "location"):
        open_store(f"faiss:{path}#notes")
