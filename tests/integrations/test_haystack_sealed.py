"""Haystack over sealed documents and over a sealed index: Haystack's own tests of stores, and saved pipelines."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.http_encoder import hashed_vectors
from harness.integration_checks import assert_no_secret
from vecveil.keys import KeyFile
from vecveil.privacy.protector import PlaintextWarning
from vecveil.stores import Batch

DIMENSION = 24
THEIR_TESTS = [
    "test_count_empty",
    "test_count_not_empty",
    "test_delete_documents",
    "test_delete_documents_empty_document_store",
    "test_delete_documents_non_existing_document",
    "test_write_documents_duplicate_fail",
    "test_write_documents_duplicate_overwrite",
    "test_write_documents_duplicate_skip",
    "test_write_documents_invalid_input",
]


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import Haystack only in the process that runs this file; every process collects it."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when it is imported
    pytest.importorskip("haystack")
    global Document, DocumentWriter, DuplicateDocumentError, DuplicatePolicy, MockDocumentEmbedder
    global MockTextEmbedder, Pipeline, SealedDocumentStore, SealedEmbeddingRetriever, Secret, Theirs
    from haystack import Document, Pipeline
    from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
    from haystack.components.writers import DocumentWriter
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.testing import document_store as theirs
    from haystack.utils import Secret

    from vecveil.gateway.haystack import SealedDocumentStore, SealedEmbeddingRetriever

    class Theirs(theirs.CountDocumentsTest, theirs.DeleteDocumentsTest, theirs.WriteDocumentsTest):
        pass

    global FilterTests

    class FilterTests(theirs.FilterDocumentsTest):
        @staticmethod
        def assert_documents_are_equal(received: list[Any], expected: list[Any]) -> None:
            # The order is not promised, and documents come back without embeddings.
            clear = [sorted(str(replace(one, embedding=None)) for one in some) for some in (received, expected)]
            assert clear[0] == clear[1]


def clean(index: int) -> list[float]:
    vector = np.random.default_rng(index).standard_normal(DIMENSION)
    return (vector / np.linalg.norm(vector)).tolist()


def documents(count: int = 30, **fields: Any) -> list[Any]:
    return [
        Document(
            id=f"d{i}",
            content=f"canary text {i}",
            embedding=clean(i),
            meta={"page": i % 3, "even": i % 2 == 0},
            **fields,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def vectors_file(hashed_protector: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protector") / "vectors.vecveil"
    hashed_protector.save(path)
    return path


@pytest.fixture
def seal_key(tmp_path: Path) -> Path:
    KeyFile.create(tmp_path / "search.keys", "one")
    return tmp_path / "search.keys"


@pytest.fixture(params=["database", "index"])
def store(request: pytest.FixtureRequest, tmp_path: Path, vectors_file: Path, seal_key: Path) -> Any:
    if request.param == "index":
        return SealedDocumentStore.from_sealed(f"sealed:{tmp_path}/notes", seal_key, max_staleness=0)
    where = f"sqlite-vec:{tmp_path}/rows.db#notes"
    return SealedDocumentStore(where, vectors_file, seal_key, filter_fields=("page", "even"))


@pytest.mark.filterwarnings("ignore::vecveil.privacy.protector.PlaintextWarning")
@pytest.mark.parametrize("kind", ["database", "index"])
@pytest.mark.parametrize("name", THEIR_TESTS)
def test_the_tests_of_haystack_itself(
    name: str, kind: str, hashed_protector: Any, seal_key: Path, tmp_path: Path
) -> None:
    if kind == "index":
        store = SealedDocumentStore.from_sealed(f"{tmp_path}/notes", seal_key, encoder=Hashed())
    else:
        store = SealedDocumentStore(f"sqlite-vec:{tmp_path}/rows.db#notes", hashed_protector, seal_key)
    getattr(Theirs(), name)(store)


@pytest.mark.filterwarnings("ignore::vecveil.privacy.protector.PlaintextWarning")
def test_a_sealed_index_passes_the_filter_tests_of_haystack(seal_key: Path, tmp_path: Path) -> None:
    from haystack.testing.document_store import create_filterable_docs

    rows = [replace(one, embedding=None) for one in create_filterable_docs()]
    names = [name for name in dir(FilterTests) if name.startswith("test_")]
    assert len(names) > 30
    for name in names:
        store = SealedDocumentStore.from_sealed(tmp_path / name, seal_key, encoder=Hashed(), max_staleness=0)
        test = getattr(FilterTests(), name)
        test(store, rows) if "filterable_docs" in test.__code__.co_varnames else test(store)


class Hashed:
    def encode(self, texts: list[str]) -> Any:
        return np.array(hashed_vectors(texts, DIMENSION), np.float32)


def test_no_test_of_haystack_is_left_out() -> None:
    # `test_write_documents` is each store's own: the default policy; it is in `test_a_policy_says...` here.
    theirs = {name for name in dir(Theirs) if name.startswith("test_")}
    assert theirs == {*THEIR_TESTS, "test_write_documents"}


def test_a_policy_says_what_becomes_of_duplicates(store: Any) -> None:
    given = documents(3)
    assert store.write_documents(given[:2]) == 2
    with pytest.raises(DuplicateDocumentError, match="d1"):
        store.write_documents(given[1:])
    assert store.count_documents() == 2  # nothing was written
    with pytest.raises(DuplicateDocumentError):
        store.write_documents([given[2], given[2]])
    assert store.write_documents([*given, given[2]], DuplicatePolicy.SKIP) == 1
    if isinstance(store.collection, vecveil.ProtectedCollection):
        # A row that the database made up under the id is no document to skip.
        row = store.collection.database.read(["d1"])
        store.collection.database.write(Batch(("d9",), row.vectors, row.fields))
        with raises("E-SEAL-OPEN"):
            store.write_documents([Document(id="d9", content="canary new", embedding=clean(9))], DuplicatePolicy.SKIP)
        store.delete_documents(["d9"])
    changed = Document(id="d2", content="canary changed", embedding=clean(99))
    assert store.write_documents([given[2], changed], DuplicatePolicy.OVERWRITE) == 2
    assert store.count_documents() == 3
    (found,) = SealedEmbeddingRetriever(store, top_k=1).run(clean(99))["documents"]
    assert (found.id, found.content, found.meta) == ("d2", "canary changed", {})
    assert found.score > 0.999


@pytest.mark.parametrize("kind", ["database", "index"])
def test_pipelines_are_saved_and_loaded_without_secrets(
    kind: str, vectors_file: Path, seal_key: Path, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the loaded pipelines read and write the same rows, which they cannot without the keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISE", key_file.read_text())
    options = {"filter_fields": ("page",), "key": "env:NOISE"}
    if kind == "index":
        store = SealedDocumentStore.from_sealed("notes", "search.keys", max_staleness=0.0)
    else:
        store = SealedDocumentStore("sqlite-vec:rows.db#notes", vectors_file, "search.keys", **options)
    variable = SealedDocumentStore("sqlite-vec:rows.db#notes", vectors_file, "env:NOISE:data.keys").to_dict()
    assert variable["init_parameters"]["sealer"] == f"env:NOISE:{tmp_path}/data.keys"
    even = {"field": "meta.page", "operator": "in", "value": [0, 2]}
    ingest, ask = Pipeline(), Pipeline()
    ingest.add_component("embedder", MockDocumentEmbedder(dimension=DIMENSION))
    ingest.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    ingest.connect("embedder.documents", "writer.documents")
    ask.add_component("embedder", MockTextEmbedder(dimension=DIMENSION))
    ask.add_component("retriever", SealedEmbeddingRetriever(store, top_k=4, filters=even))
    ask.connect("embedder.embedding", "retriever.query_embedding")
    saved = [pipeline.dumps() for pipeline in (ingest, ask)]
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "pipelines.yaml").write_text("".join(saved))
    for path in (key_file, seal_key):
        assert_no_secret(folder, path)
    monkeypatch.chdir(tmp_path.parent)  # a saved pipeline holds absolute paths
    trusted = ["vecveil.gateway.haystack"]
    ingest, ask = (Pipeline.loads(text, allowed_modules=trusted) for text in saved)
    assert [pipeline.dumps() for pipeline in (ingest, ask)] == saved
    given = [Document(id=f"d{i}", content=f"canary text {i}", meta={"page": i % 3}) for i in range(30)]
    assert ingest.run({"embedder": {"documents": given}})["writer"] == {"documents_written": 30}
    found = ask.run({"embedder": {"text": "canary text 12"}})["retriever"]["documents"]
    assert (found[0].content, found[0].meta, found[0].embedding) == ("canary text 12", {"page": 0}, None)
    vectors = [one.embedding for one in MockDocumentEmbedder(dimension=DIMENSION).run(given)["documents"]]
    X = np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = X @ X[12]
    best = [i for i in np.argsort(-cosines, kind="stable") if i % 3 != 1][:4]
    assert [one.id for one in found] == [f"d{i}" for i in best]
    np.testing.assert_allclose([one.score for one in found], cosines[best], atol=1e-3)


def test_filters_compare_with_equality(store: Any) -> None:
    store.write_documents(documents())

    def pages(filters: dict[str, Any]) -> set[tuple[int, bool]]:
        found = store.filter_documents(filters)
        ranked = SealedEmbeddingRetriever(store, top_k=30).run(clean(1), filters=filters)["documents"]
        assert {one.id for one in ranked} == {one.id for one in found}
        return {(one.meta["page"], one.meta["even"]) for one in found}

    one = {"field": "meta.page", "operator": "==", "value": 1}
    even = {"field": "even", "operator": "in", "value": [True]}
    assert pages({}) == {(page, flag) for page in range(3) for flag in (True, False)}
    assert pages(one) == {(1, True), (1, False)}
    assert pages({"operator": "AND", "conditions": [one, {"operator": "AND", "conditions": [even]}]}) == {(1, True)}
    assert pages({"operator": "AND", "conditions": [one, {**one, "value": 2}]}) == set()
    assert pages({"field": "page", "operator": "in", "value": []}) == set()
    retriever = SealedEmbeddingRetriever(store, filters=one, top_k=30)
    assert {found.meta["page"] for found in retriever.run(clean(0))["documents"]} == {1}
    assert {found.meta["even"] for found in retriever.run(clean(0), filters=even)["documents"]} == {True}
    for filters in ({"field": "page"}, {**even, "value": True}, {**one, "field": "content"}, {"operator": "AND"}):
        with raises("E-INPUT", "filters"):
            store.filter_documents(filters)
    if isinstance(store.collection, vecveil.SealedIndex):
        either = {"operator": "OR", "conditions": [{**one, "operator": ">"}, {"operator": "NOT", "conditions": [even]}]}
        assert pages(either) == {(0, False), (1, False), (2, True), (2, False)}
        return
    for filters in (
        {**one, "operator": ">"},
        {"operator": "OR", "conditions": [one]},
        {"operator": "AND", "conditions": [{**one, "operator": "not in", "value": [1]}]},
        {**one, "field": "meta.name"},
    ):
        with raises("E-INPUT-NAME", "filters"):
            store.filter_documents(filters)


def test_whole_documents_come_back(store: Any) -> None:
    from haystack.dataclasses import ByteStream, SparseEmbedding

    image = Document(
        id="image",
        blob=ByteStream(b"canary", mime_type="image/png"),
        embedding=clean(0),
        meta={"nested": {"list": [1, None]}},
    )
    sparse = Document(id="sparse", content="", embedding=clean(1), sparse_embedding=SparseEmbedding([1], [0.5]))
    store.write_documents([image, sparse])
    found = {one.id: one for one in store.filter_documents()}
    for given in (image, sparse):
        assert found[given.id] == replace(given, embedding=None)
    with raises("E-INPUT", "documents"):
        store.write_documents([Document(id="nothing")])


@pytest.mark.parametrize("store", ["database"], indirect=True)
def test_the_database_holds_no_text_and_no_clean_vector(store: Any, tmp_path: Path) -> None:
    """The control: the protected vectors are found in the same files in the same way."""
    store.write_documents(documents())
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("rows.db"))
    assert b"canary" not in content
    for i in range(30):
        assert np.array(clean(i), np.float32).tobytes()[:32] not in content
    assert next(store.collection.database.batches()).vectors[0].tobytes() in content


def test_ids_that_are_hashes_of_texts_give_one_warning(store: Any) -> None:
    hashed = [replace(Document(content=f"text {i}"), embedding=clean(0)) for i in range(2)]
    with pytest.warns(PlaintextWarning, match="hash"):
        store.write_documents(hashed[:1])
    store.write_documents(hashed[1:])  # a second one would be an error here


def test_without_waiting_the_same(vectors_file: Path, seal_key: Path, tmp_path: Path) -> None:
    store = SealedDocumentStore(f"sqlite-vec:{tmp_path}/rows.db#rows", vectors_file, seal_key)

    async def all_of_them() -> Any:
        written = await DocumentWriter(store).run_async(documents(5))
        await store.delete_documents_async(["d1"])
        found = await SealedEmbeddingRetriever(store, top_k=2).run_async(query_embedding=clean(3))
        return written, await store.count_documents_async(), found, await store.filter_documents_async()

    written, count, found, everything = asyncio.run(all_of_them())
    assert (written, count, len(everything)) == ({"documents_written": 5}, 4, 4)
    assert found["documents"][0].id == "d3"


def test_numbers_of_results_below_one_are_refused(store: Any) -> None:
    store.write_documents(documents(3))
    for top in (0, -1):
        with raises("E-INPUT-RANGE", "top_k"):
            SealedEmbeddingRetriever(store, top_k=top).run(query_embedding=clean(0))
        with raises("E-INPUT-RANGE", "top_k"):
            asyncio.run(SealedEmbeddingRetriever(store).run_async(query_embedding=clean(0), top_k=top))
    for wrong in (None, "d1"):
        with raises("E-INPUT-TYPE", "document_ids"):
            store.delete_documents(wrong)
    assert store.count_documents() == 3


def test_arguments_of_another_kind_of_database_are_refused(store: Any, vectors_file: Path, seal_key: Path) -> None:
    given = {"protector": vectors_file, "sealer": seal_key, "key": seal_key, "index": {"candidates": 3}, "name": "a"}
    for name, value in {**given, "candidates": 50, "filter_fields": ("page",)}.items():
        with raises("E-INPUT", name):
            SealedDocumentStore(store.collection, **{name: value})
        if name not in ("sealer", "index"):
            with raises("E-INPUT", name):
                SealedDocumentStore("sealed:notes", sealer=seal_key, **{name: value})
    with raises("E-INPUT", "index"):
        SealedDocumentStore("sqlite-vec:rows.db#notes", vectors_file, seal_key, index={"candidates": 3})
    assert SealedDocumentStore(store.collection).count_documents() == 0


def test_secrets_and_objects_are_not_saved(
    vectors_file: Path, seal_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", f"sqlite-vec:{tmp_path}/rows.db#notes")
    named = SealedDocumentStore(Secret.from_env_var("DATABASE"), vectors_file, seal_key)
    again = SealedDocumentStore.from_dict(named.to_dict())
    assert str(tmp_path / "rows.db") not in str(named.to_dict())
    assert again.to_dict() == named.to_dict()
    assert again.collection.name == named.collection.name
    where = f"sqlite-vec:{tmp_path}/rows.db#notes"
    password = SealedDocumentStore("qdrant:http://localhost:1?api_key=canary#rows", vectors_file, seal_key)
    opened = SealedDocumentStore(again.collection.database, vectors_file, seal_key, name="rows")
    loaded = SealedDocumentStore(where, vecveil.load(vectors_file), seal_key)
    sealer = SealedDocumentStore(where, vectors_file, vecveil.Sealer(seal_key))
    cases = ((password, "database"), (opened, "database"), (loaded, "protector"), (sealer, "sealer"))
    for store, param in cases:
        with raises("E-INPUT", param):
            SealedEmbeddingRetriever(store).to_dict()
    for options in ({"encoder": Hashed()}, {"storage_options": {"key": "canary"}}):
        with raises("E-INPUT-TYPE", next(iter(options))):
            SealedDocumentStore.from_sealed(tmp_path / "notes", seal_key, **options).to_dict()
    with raises("E-INPUT-TYPE", "document_store"):
        SealedEmbeddingRetriever("rows")
    with raises("E-INPUT", "query"):
        SealedEmbeddingRetriever(named).run()
