"""`ProtectedVectorStore` over real LangChain stores: LangChain's own tests, and what the inner store holds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langchain_core")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

import vecveil
from harness.errors import raises
from harness.postgres import fresh_database
from harness.store_factories import release
from vecveil.gateway.langchain import ProtectedEmbeddings, ProtectedVectorStore
from vecveil.privacy.protector.policy import ReleasePolicy
from vecveil.privacy.utility.tasks import unit_rows
from vecveil.stores import Batch, open_store
from vecveil.stores.migrating import MigrationOptions, migrate

pytestmark = [
    pytest.mark.filterwarnings("ignore:PGVector is being deprecated:PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The test .* is marked with:pytest.PytestWarning"),
]

DIMENSION = 6
_names = itertools.count()
TOPICS = ["lantern-rent", "lantern-loan", "lantern-visa"]
TEXTS = [f"{TOPICS[i % 3]} number {i}" for i in range(30)]
METADATA = [{"tenant": "ab"[i % 2], "page": i} for i in range(30)]


def in_memory(folder: Path, embeddings: Embeddings) -> Iterator[VectorStore]:
    yield InMemoryVectorStore(embeddings)


def chroma(folder: Path, embeddings: Embeddings) -> Iterator[VectorStore]:
    from chromadb import PersistentClient
    from langchain_chroma import Chroma

    with PersistentClient(folder / "chroma") as client:
        yield Chroma(f"notes{next(_names)}", embeddings, client=client)


def qdrant(folder: Path, embeddings: Embeddings) -> Iterator[VectorStore]:
    from langchain_qdrant import QdrantVectorStore

    options = {"path": str(folder / f"qdrant{next(_names)}")}
    store = QdrantVectorStore.construct_instance(embeddings, client_options=options, collection_name="notes")
    yield store
    store.client.close()


def pgvector(folder: Path, embeddings: Embeddings) -> Iterator[VectorStore]:
    from langchain_postgres import PGVector

    url = _database().replace("postgresql://", "postgresql+psycopg://")
    store = PGVector(embeddings, connection=url, collection_name=f"notes{next(_names)}")
    yield store
    store.delete_collection()  # its ids are unique in the database, not in the collection
    store._engine.dispose()


_urls: list[str] = []


def _database() -> str:
    """Return one database for all stores of this module."""
    if not _urls:
        _urls.append(fresh_database())
    return _urls[0]


def sealed_index(folder: Path, embeddings: Embeddings) -> Iterator[vecveil.SealedIndex]:
    place = folder / f"index{next(_names)}"
    vecveil.KeyFile.create(place.with_suffix(".keys"), "one")
    with vecveil.SealedIndex(place, place.with_suffix(".keys"), encoder=embeddings.embeddings) as opened:
        yield opened


STORES: dict[str, Callable[[Path, Embeddings], Iterator[Any]]] = {
    "in memory": in_memory,
    "chroma": chroma,
    "qdrant": qdrant,
    "pgvector": pgvector,
}
EITHER = {**STORES, "sealed index": sealed_index}


def over(inner: Any, keys: Path) -> ProtectedVectorStore:
    if isinstance(inner, vecveil.SealedIndex):
        return ProtectedVectorStore(inner, embeddings=Topical())
    return ProtectedVectorStore(inner, keys, name="notes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def small() -> vecveil.Protector:
    rng = np.random.default_rng(0)
    positive, negative = rng.standard_normal((2, 200, DIMENSION)).astype(np.float32)
    return vecveil.fit_pairs(positive, negative, method="laplace", noise_to_signal=0.5)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    vecveil.KeyFile.create(tmp_path / "search.keys", "one")
    return tmp_path / "search.keys"


@pytest.fixture(params=sorted(EITHER))
def inner(request: pytest.FixtureRequest, folder: Path, small: vecveil.Protector) -> Iterator[VectorStore]:
    """Return a real store made with `ProtectedEmbeddings`."""
    embeddings = ProtectedEmbeddings(small, DeterministicFakeEmbedding(size=DIMENSION), text_stored=False)
    yield from EITHER[request.param](folder, embeddings)


@pytest.mark.asyncio
class TestStandard(VectorStoreIntegrationTests):
    """LangChain's tests of vector stores."""

    @pytest.fixture
    def vectorstore(self, inner: VectorStore, keys: Path) -> VectorStore:
        return over(inner, keys)


class Topical(Embeddings):
    """Embeddings without a model: a text is near to others of its first word; queries get another prompt."""

    def __init__(self) -> None:
        self._drawn = DeterministicFakeEmbedding(size=DIMENSION)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        draw = self._drawn.embed_query
        rows = [np.add(draw(text), 3 * np.array(draw(text.split()[0]))) for text in texts]
        return [(2 * row / np.linalg.norm(row)).tolist() for row in rows]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0][::-1]


def exact(query: str) -> np.ndarray:
    X, q = np.array(Topical().embed_documents(TEXTS)), np.array(Topical().embed_query(query))
    return X @ q / np.linalg.norm(X, axis=1) / np.linalg.norm(q)


_inner: list[VectorStore] = []


def inner_of(filled: ProtectedVectorStore) -> VectorStore:
    """Return the LangChain store of the last `filled`."""
    return _inner[-1]


@pytest.fixture(params=sorted(EITHER))
def filled(
    request: pytest.FixtureRequest, folder: Path, small: vecveil.Protector, keys: Path
) -> Iterator[ProtectedVectorStore]:
    embeddings = ProtectedEmbeddings(small, Topical(), text_stored=False)
    for inner in EITHER[request.param](folder, embeddings):
        _inner.append(inner)
        ids, over = [f"note-{i}" for i in range(30)], {"store": inner}
        if request.param == "sealed index":
            embeddings = Topical()
        else:
            over |= {"sealer": keys, "name": "notes", "filter_fields": ("tenant",)}
        yield ProtectedVectorStore.from_texts(TEXTS, embeddings, METADATA, ids=ids, **over)


def test_scores_are_exact_and_texts_come_back(filled: ProtectedVectorStore) -> None:
    cosines = exact("lantern-loan question")
    order = np.argsort(-cosines, kind="stable")[:5]
    hits = filled.similarity_search_with_score("lantern-loan question", k=5)
    assert [document.id for document, _ in hits] == [f"note-{i}" for i in order]
    np.testing.assert_allclose([score for _, score in hits], cosines[order], atol=1e-3)
    assert [(d.page_content, d.metadata) for d, _ in hits] == [(TEXTS[i], METADATA[i]) for i in order]
    vector = filled.embeddings.embed_query("lantern-loan question")
    assert filled.similarity_search_by_vector(vector, k=5) == [document for document, _ in hits]
    assert asyncio.run(filled.asimilarity_search("lantern-loan question", k=5)) == [d for d, _ in hits]


def test_retrievers_rank_filter_and_diversify(filled: ProtectedVectorStore) -> None:
    cosines = exact("lantern-visa question")
    everything = filled.similarity_search_with_score("lantern-visa question", k=15, filter={"tenant": "b"})
    assert [d.id for d, _ in everything] == [f"note-{i}" for i in np.argsort(-cosines) if i % 2]
    threshold = float(np.sort(cosines)[-4:-2].mean())
    retriever = filled.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"k": 10, "score_threshold": threshold}
    )
    assert [d.id for d in retriever.invoke("lantern-visa question")] == [f"note-{i}" for i in np.argsort(-cosines)[:3]]
    # The same embeddings in LangChain's own store, in clear.
    clear = InMemoryVectorStore(Topical())
    clear.add_texts(TEXTS, METADATA, ids=[f"note-{i}" for i in range(30)])
    options = {"search_type": "mmr", "search_kwargs": {"k": 6, "fetch_k": 20, "lambda_mult": 0.4}}
    expected = clear.as_retriever(**options).invoke("lantern-visa question")
    assert filled.as_retriever(**options).invoke("lantern-visa question") == expected
    vector = Topical().embed_query("lantern-visa question")
    assert filled.max_marginal_relevance_search_by_vector(vector, **options["search_kwargs"]) == expected
    unusual = {"$or": [{"page": {"$lt": 3}}, {"tenant": "b", "page": {"$gte": 28}}]}
    if isinstance(filled.collection, vecveil.SealedIndex):
        hits = filled.similarity_search("lantern-visa question", k=9, filter=unusual, mode="hybrid")
        assert {d.id for d in hits} == {"note-0", "note-1", "note-2", "note-29"}
        return
    for where in ({"page": 3}, unusual):
        with raises("E-INPUT", "filter"):
            filled.similarity_search("lantern-visa question", filter=where)


def stored_rows(inner: VectorStore) -> list[tuple[list[float], str]]:
    """Return vector and everything else of each row, as the database has them."""
    match type(inner).__name__:
        case "InMemoryVectorStore":
            return [(row["vector"], str(row)) for row in inner.store.values()]
        case "Chroma":
            got = inner.get(include=["embeddings", "documents", "metadatas"])
            rest = zip(got["ids"], got["documents"], got["metadatas"], strict=True)
            return list(zip(got["embeddings"], map(str, rest), strict=True))
        case "QdrantVectorStore":
            points, _ = inner.client.scroll("notes", limit=100, with_vectors=True, with_payload=True)
            return [(point.vector, str(point)) for point in points]
    with inner._engine.connect() as connection:
        columns = "embedding::text, id, document, cmetadata::text"
        rows = connection.exec_driver_sql(f"SELECT {columns} FROM langchain_pg_embedding").all()
    return [(json.loads(row[0]), str(row[1:])) for row in rows]


@pytest.mark.parametrize("filled", sorted(STORES), indirect=True)
def test_the_database_holds_neither_text_nor_clean_vector(filled: ProtectedVectorStore, folder: Path) -> None:
    rows = stored_rows(inner_of(filled))
    assert len(rows) == 30
    assert not [rest for _, rest in rows if "lantern" in rest]
    stored, clean = unit_rows(np.array([vector for vector, _ in rows])), unit_rows(Topical().embed_documents(TEXTS))
    # Noise turns a row by about .5; that one of 900 pairs comes within .0045 by chance has probability 1e-8.
    assert (stored @ clean.T).max() < 0.99999
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"lantern-" not in content


class Recording(Topical):
    """`Topical` that notes the texts of queries."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[str] = []

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return super().embed_query(text)


@pytest.mark.parametrize("kind", ["in memory", "chroma"])
def test_a_text_stage_rewrites_the_candidates_alone(kind: str, folder: Path, keys: Path) -> None:
    concept = vecveil.Concept.from_terms("topics", TOPICS)
    stage = vecveil.fit(
        TEXTS, concept, Topical(), method="laplace", noise_to_signal=1e-4, rewrite="delete", show_progress=False
    )
    recording = Recording()
    embeddings = ProtectedEmbeddings(stage, recording, text_stored=False)
    for inner in STORES[kind](folder, embeddings):
        store = ProtectedVectorStore(inner, keys, name="notes", candidates=30)
        ids = store.add_texts(TEXTS, METADATA)
        # The database has the rewritten texts' vectors; the blobs have the originals.
        rewritten = unit_rows(np.array(Topical().embed_documents([f"number {i}" for i in range(30)])))
        stored = unit_rows(np.array([vector for vector, _ in stored_rows(inner)], np.float64))
        assert (stored @ rewritten.T).max(axis=1).min() > 0.99999
        assert len(set((stored @ rewritten.T).argmax(axis=1))) == 30
        assert [d.page_content for d in store.get_by_ids(ids[:3])] == TEXTS[:3]
        recording.queries.clear()
        hits = store.similarity_search_with_score("lantern-loan question", k=5)
        # Exact for the ranking, rewritten for the candidates.
        assert set(recording.queries) == {"lantern-loan question", "question"}
        cosines = exact("lantern-loan question")
        assert [d.page_content for d, _ in hits] == [TEXTS[i] for i in np.argsort(-cosines, kind="stable")[:5]]
        np.testing.assert_allclose([score for _, score in hits], np.sort(cosines)[:-6:-1], atol=1e-3)
        assert store.max_marginal_relevance_search("lantern-loan question", k=3)[0] == hits[0][0]
        assert len(store.similarity_search("lantern-loan", k=5)) == 5  # nothing is left of the query
        with raises("E-INPUT-TYPE", "query"):  # a vector cannot be rewritten
            store.similarity_search_by_vector(Topical().embed_query("lantern-loan question"))


@pytest.mark.parametrize("filled", sorted(STORES), indirect=True)
def test_texts_past_the_store_are_refused(filled: ProtectedVectorStore) -> None:
    inner = inner_of(filled)
    with raises("E-STORE-UNSEALED", "texts"):
        inner.add_texts(["a plain text"])
    with raises("E-STORE-UNSEALED", "texts"):
        asyncio.run(inner.embeddings.aembed_documents(["a plain text"]))
    assert len(filled.similarity_search("lantern-rent", k=300)) == 30  # more than the candidates of a search


@pytest.mark.parametrize("kind", ["in memory", "sealed index"])
def test_langchains_indexing_updates_what_changed(
    small: vecveil.Protector, keys: Path, folder: Path, kind: str
) -> None:
    embeddings = ProtectedEmbeddings(small, Topical(), text_stored=False)
    opened = EITHER[kind](folder, embeddings)  # which closes it at its end
    inner = next(opened)
    store = over(inner, keys)
    records = InMemoryRecordManager("notes")
    records.create_schema()
    documents = [Document(text, metadata={"source": f"{i}.md"}) for i, text in enumerate(TEXTS)]
    options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(documents, records, store, **options)["num_added"] == 30
    documents[3] = Document("lantern-rent changed", metadata={"source": "3.md"})
    outcome = index(documents[:20], records, store, **options)
    assert (outcome["num_added"], outcome["num_skipped"], outcome["num_deleted"]) == (1, 19, 11)
    assert len(inner.ids() if kind == "sealed index" else inner.store) == 20


def test_a_sealed_index_is_one_line_to_open(keys: Path, tmp_path: Path) -> None:
    options = {"encoder": "minilm", "max_staleness": 0}
    store = ProtectedVectorStore.from_sealed(f"sealed:{tmp_path}/notes", keys, **options)
    texts = ["She felt sick after dinner.", "The invoice is overdue.", "The train leaves at noon."]
    assert store.similarity_search("nausea") == []
    assert store.get_by_ids(["a"]) == []
    store.delete(["a"])
    assert store.add_texts(texts, ids=["a", "b", "c"]) == ["a", "b", "c"]
    again = ProtectedVectorStore.from_sealed(tmp_path / "notes", keys, **options)
    ((hit, score),) = again.similarity_search_with_score("nausea", k=1)
    assert (hit.id, hit.page_content) == ("a", texts[0])
    encoder = vecveil.load_encoder("minilm")
    np.testing.assert_allclose(score, float(encoder.encode(["nausea"])[0] @ encoder.encode(texts[:1])[0]), atol=2e-2)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"dinner" in path.read_bytes()]
    with raises("E-INPUT", "store"):
        ProtectedVectorStore(again.collection, keys)


class Named(Topical):
    """`Topical` with a fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__()
        self.fingerprint = fingerprint


def test_embeddings_of_another_fingerprint_than_the_indexs_are_refused(keys: Path, tmp_path: Path) -> None:
    def opened(encoder: Any = None) -> vecveil.SealedIndex:
        return vecveil.SealedIndex(tmp_path / "notes", keys, encoder=encoder, max_staleness=0)

    # Of an index that its encoder alone names, and of one that notes it, whatever encoder it is opened with.
    with raises("E-INCOMPATIBLE-ENCODER", "embeddings"):
        ProtectedVectorStore(opened(Named("one")), embeddings=Named("two"))
    store = ProtectedVectorStore(opened(Named("one")), embeddings=Named("one"))
    store.add_texts(TEXTS[:3], ids=["a", "b", "c"])
    for encoder in (Named("one"), Topical(), None):
        with raises("E-INCOMPATIBLE-ENCODER", "embeddings"):
            ProtectedVectorStore(opened(encoder), embeddings=Named("two"))
        for embeddings in (Named("one"), Topical(), None):  # without a fingerprint nothing can be compared
            assert len(ProtectedVectorStore(opened(encoder), embeddings=embeddings).get_by_ids(["a"])) == 1
    with raises("E-INCOMPATIBLE-ENCODER", "embeddings"):
        ProtectedVectorStore.from_texts(["more"], Named("two"), store=opened(Named("one")))
    with raises("E-INCOMPATIBLE-ENCODER", "embeddings"):
        ProtectedVectorStore.from_sealed(tmp_path / "notes", keys, embedding=Named("two"), encoder=Named("one"))
    assert opened().count() == 3


def test_embeddings_of_another_fingerprint_than_a_collections_are_refused(keys: Path, tmp_path: Path) -> None:
    concept = vecveil.Concept.from_terms("topics", TOPICS)
    options = {"method": "laplace", "noise_to_signal": 0.5, "show_progress": False}
    fitted = vecveil.fit(TEXTS, concept, Named("one"), **options)
    collection = vecveil.ProtectedCollection(f"sqlite-vec:{tmp_path}/rows.db#notes", fitted, keys)
    ProtectedVectorStore(collection, embeddings=Named("one"))
    with raises("E-INCOMPATIBLE-ENCODER"):
        ProtectedVectorStore(collection, embeddings=Named("two"))


def test_numbers_of_results_below_one_are_refused(filled: ProtectedVectorStore) -> None:
    vector = Topical().embed_query("lantern-visa question")
    for k in (0, -1):
        for search in (filled.similarity_search, filled.max_marginal_relevance_search):
            with raises("E-INPUT-RANGE", "k"):
                search("lantern-visa question", k=k)
            with raises("E-INPUT-RANGE", "k"):
                asyncio.run(getattr(filled, f"a{search.__name__}")("lantern-visa question", k=k))
        for search in (filled.similarity_search_by_vector, filled.max_marginal_relevance_search_by_vector):
            with raises("E-INPUT-RANGE", "k"):
                search(vector, k=k)
    assert len(filled.max_marginal_relevance_search("lantern-visa question", k=1)) == 1


def test_a_bare_string_is_no_list(filled: ProtectedVectorStore) -> None:
    filled.add_texts(["lantern-rent"], [{"tenant": "a", "page": 0}], ids=["n"])
    for call in (filled.delete, filled.get_by_ids):
        with raises("E-INPUT-TYPE", "ids"):
            call("note-1")
    with raises("E-INPUT-TYPE", "texts"):
        filled.add_texts("rent")
    with raises("E-INPUT-TYPE", "ids"):
        filled.add_texts(["lantern-rent"], ids="n")
    assert filled.delete([]) is True
    assert len(filled.get_by_ids(["n"])) == 1


def test_wrong_arguments_are_refused(small: vecveil.Protector, keys: Path) -> None:
    with raises("E-INPUT-TYPE", "store"):
        ProtectedVectorStore(InMemoryVectorStore(Topical()), keys, name="notes")
    embeddings = ProtectedEmbeddings(small, Topical(), text_stored=False)
    with raises("E-INPUT", "embeddings"):
        ProtectedVectorStore(
            InMemoryVectorStore(embeddings), keys, name="notes", embeddings=ProtectedEmbeddings(small, Topical())
        )
    inner = InMemoryVectorStore(embeddings)
    store = ProtectedVectorStore(inner, keys, name="notes")
    with raises("E-INPUT", "ids"):
        store.delete()
    ids = store.add_texts(["lantern-rent"])
    assert store.get_by_ids(ids)[0].id == ids[0] == next(iter(inner.store))
    for renew in (store.collection.reseal, partial(store.collection.reprotect, small)):
        with raises("E-STORE", "store"):
            renew()  # LangChain cannot list rows
    assert len(store.collection.sealer.keys.read("notes").keys) == 1
    other = ProtectedVectorStore(inner, keys, name="mistyped")
    with raises("E-SEAL-COLLECTION"):
        other.similarity_search("lantern-rent")


@pytest.mark.parametrize("kind", ["chroma", "qdrant", "sqlite-vec"])
def test_rows_of_migrate_langchain_llama_index_haystack_and_search_are_of_one_format(
    kind: str, small: vecveil.Protector, keys: Path, tmp_path: Path
) -> None:
    """Each program reads, finds, filters, replaces and deletes what the others wrote."""
    location, source = f"{kind}:{tmp_path}/{kind}.db#notes", f"sqlite-vec:{tmp_path}/clean.db#notes"
    X = unit_rows(np.array(Topical().embed_documents(TEXTS), np.float32))
    with open_store(source) as clean, open_store(location) as copy:
        clean.create(DIMENSION, metric="cosine")
        rows = tuple(
            {
                "document": f"{text} as it was written",
                "_node_content": '{"text": "five words and one more"}',
                "tenant": "ab"[i % 2],
            }
            for i, text in enumerate(TEXTS)
        )
        clean.write(Batch(tuple(f"note-{i}" for i in range(30)), X, rows))
        migrate(
            clean,
            copy,
            ReleasePolicy(small),
            tmp_path / "state.json",
            names=("clean", "notes"),
            options=MigrationOptions(seal=True, filter_fields=("tenant",), drop=("_node_content",)),
            sealer=vecveil.Sealer(keys),
        )
    small.save(tmp_path / "p.vecveil")
    embeddings = ProtectedEmbeddings(small, Topical(), text_stored=False)
    with langchain_over(kind, tmp_path, embeddings) as inner:
        store = ProtectedVectorStore(inner, keys, name="notes", embeddings=embeddings)
        (hit, score), *_ = store.similarity_search_with_score(Topical().embed_documents([TEXTS[3]])[0], k=1)
        assert (hit.id, hit.page_content) == ("note-3", f"{TEXTS[3]} as it was written")
        assert hit.metadata == {"tenant": "b"}
        assert score > 0.999
        filtered = store.similarity_search("lantern-loan", k=15, filter={"tenant": "a"})
        assert {document.metadata["tenant"] for document in filtered} == {"a"}
        store.add_texts(["lantern-loan later", "lantern-rent new"], [{"tenant": "a"}] * 2, ids=["later", "note-5"])
        store.delete(["note-7"])
        release(store.collection.database)

    from haystack import Document as HaystackDocument
    from llama_index.core.schema import TextNode

    from vecveil.gateway.haystack import SealedDocumentStore
    from vecveil.gateway.llama_index import SealedVectorStore

    vector = Topical().embed_documents(["lantern-visa from an index"])[0]
    with open_store(location) as opened:
        collection = vecveil.ProtectedCollection(opened, small, keys, name="notes", filter_fields=())
        assert opened.count() == 30
        got = collection.get(["later", "note-5", "note-6"])
        assert got.texts == ["lantern-loan later", "lantern-rent new", f"{TEXTS[6]} as it was written"]
        assert "later" in collection.search(X[1], top=30, where={"tenant": "a"}).ids
    haystack = SealedDocumentStore(location, small, str(keys), name="notes")
    assert {d.content for d in haystack.filter_documents()} >= {"lantern-loan later", f"{TEXTS[6]} as it was written"}
    haystack.write_documents([HaystackDocument(id="hay", content="lantern-visa hay", embedding=vector)])
    haystack.collection.database.close()
    if kind != "sqlite-vec":  # which cannot get a further column to filter by
        llama = SealedVectorStore(
            vecveil.ProtectedCollection(location, small, keys, name="notes", filter_fields=("ref_doc_id",))
        )
        assert [n.get_content() for n in llama.get_nodes(["later", "hay"])] == [
            "lantern-loan later",
            "lantern-visa hay",
        ]
        llama.add([TextNode(id_="node", text="lantern-visa node", metadata={"tenant": "b"}, embedding=vector)])
        llama.client.database.close()
        with langchain_over(kind, tmp_path, embeddings) as inner:
            store = ProtectedVectorStore(inner, keys, name="notes", embeddings=embeddings)
            (document,) = store.get_by_ids(["node"])
            assert (document.page_content, document.metadata["tenant"]) == ("lantern-visa node", "b")


@contextlib.contextmanager
def langchain_over(kind: str, folder: Path, embeddings: ProtectedEmbeddings) -> Iterator[Any]:
    """Open the collection as a program of LangChain does; sqlite-vec by its location."""
    if kind == "chroma":
        from chromadb import PersistentClient
        from langchain_chroma import Chroma

        with PersistentClient(folder / "chroma.db") as client:
            yield Chroma("notes", embeddings, client=client)
    elif kind == "qdrant":
        from langchain_qdrant import QdrantVectorStore
        from qdrant_client import QdrantClient

        client = QdrantClient(path=str(folder / "qdrant.db"))
        yield QdrantVectorStore(client, "notes", embeddings, validate_collection_config=False)
        client.close()
    else:
        yield f"{kind}:{folder}/{kind}.db#notes"
