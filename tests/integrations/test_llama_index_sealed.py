"""LlamaIndex over sealed rows and a sealed index: its in-memory store over clean vectors says what queries give."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.http_encoder import hashed_vectors
from vecveil.keys import KeyFile
from vecveil.stores import Batch

DIMENSION, ROWS = 24, 60
WORDS = ["amoxicillin", "train", "roof", "harbour", "violin"]
TEXTS = [f"canary {WORDS[i % 5]} sentence number {i}" for i in range(ROWS)]
QUESTION = hashed_vectors(["canary roof question"], DIMENSION)[0].tolist()


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import LlamaIndex only in the process that runs this file; every process collects it."""
    pytest.importorskip("llama_index.core")
    global Document, Inner, MetadataFilter, MetadataFilters, MockLLM, SealedVectorStore, SimpleVectorStore
    global StorageContext, TextNode, VectorStoreIndex, VectorStoreQuery, related
    from llama_index.core import Document, StorageContext, VectorStoreIndex
    from llama_index.core.llms import MockLLM
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore, VectorStoreQuery

    from harness.llama_embedding import Inner
    from vecveil.gateway.llama_index import SealedVectorStore

    def related(document: str) -> dict[Any, Any]:
        return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}


def vectors_of(texts: list[str]) -> np.ndarray:
    return np.array(hashed_vectors(texts, DIMENSION), np.float32)


def collection_in(folder: Path, protector: Any, **options: Any) -> vecveil.ProtectedCollection:
    if not (folder / "search.keys").exists():
        KeyFile.create(folder / "search.keys", "one")
    options = {"filter_fields": ("ref_doc_id", "page", "word"), "candidates": ROWS, **options}
    where = f"sqlite-vec:{folder}/rows.db#notes"
    return vecveil.ProtectedCollection(where, protector, folder / "search.keys", **options)


def index_in(folder: Path, protector: Any, **options: Any) -> vecveil.SealedIndex:
    if not (folder / "search.keys").exists():
        KeyFile.create(folder / "search.keys", "one")
    return vecveil.SealedIndex(folder / "notes", folder / "search.keys", max_staleness=0)


KINDS = {"collection": collection_in, "index": index_in}


def nodes() -> list[Any]:
    return [
        TextNode(
            id_=f"node-{i}",
            text=text,
            embedding=row.tolist(),
            relationships=related(f"doc-{i // 4}"),
            metadata={"page": i % 3, "word": text.split()[1], "secret": f"canary-{i}"},
            excluded_embed_metadata_keys=["page", "word", "secret"],
        )
        for i, (text, row) in enumerate(zip(TEXTS, vectors_of(TEXTS), strict=True))
    ]


@pytest.fixture(params=sorted(KINDS))
def store(request: pytest.FixtureRequest, tmp_path: Path, hashed_protector: Any) -> Any:
    made = SealedVectorStore(KINDS[request.param](tmp_path, hashed_protector))
    assert made.add(nodes()) == [f"node-{i}" for i in range(ROWS)]
    return made


@pytest.fixture(scope="module", params=sorted(KINDS))
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, hashed_protector: Any) -> Any:
    """Return a store that no test changes."""
    made = SealedVectorStore(KINDS[request.param](tmp_path_factory.mktemp("asked"), hashed_protector))
    made.add(nodes())
    return made


def embedding() -> Any:
    inner = Inner()
    inner._vectors = vectors_of
    return inner


def equal(key: str, value: Any, operator: str = "==") -> Any:
    return MetadataFilter(key=key, value=value, operator=operator)


def both(*filters: Any, condition: str = "and") -> Any:
    return MetadataFilters(filters=list(filters), condition=condition)


def cases() -> Iterator[dict[str, Any]]:
    yield {}
    yield {"similarity_top_k": 4 * ROWS}
    yield {"filters": both(equal("page", 1))}
    yield {"filters": both(equal("page", 1.0), equal("word", "train"))}
    yield {"filters": both(equal("word", ["train", "roof"], "in"))}
    yield {"filters": both(equal("word", ["train", "roof"], "in"), equal("word", "roof"))}
    yield {"filters": both(equal("page", 1), equal("page", 2))}
    yield {"filters": both(equal("word", "nothing"))}
    yield {"node_ids": ["node-3", "node-8", "node-59", "none"]}
    yield {"node_ids": ["node-3", "node-8", "node-59"], "filters": both(equal("page", 2))}
    yield {"mode": "mmr", "similarity_top_k": 8}
    yield {"mode": "mmr", "mmr_threshold": 0.2, "filters": both(equal("page", 0))}
    yield {"mode": "mmr", "node_ids": ["node-3", "node-8", "node-59"]}
    yield from ({"filters": both(equal("word", ["train", "roof"], operator))} for operator in ("all", "any"))
    # Of an index alone.
    for operator in ("!=", ">", ">=", "<", "<="):
        yield {"filters": both(equal("page", 1, operator))}
    yield {"filters": both(equal("word", ["train", "roof"], "nin"))}
    yield {"filters": both(equal("none", None, "is_empty"), equal("word", "HARB", "text_match_insensitive"))}
    yield {"filters": both(equal("word", "rbou", "text_match"), equal("page", 0), condition="or")}
    yield {"filters": both(equal("word", "roof"), equal("page", 0), condition="not")}
    yield {"node_ids": ["node-3", "node-8"], "filters": both(equal("page", 0, ">"))}


@pytest.mark.parametrize("case", range(25))
def test_queries_give_what_clean_vectors_give(asked: Any, case: int) -> None:
    options = {"similarity_top_k": 5, **list(cases())[case]}
    if case >= 15 and not isinstance(asked.client, vecveil.SealedIndex):
        with raises("E-INPUT-NAME", "filters"):
            asked.query(VectorStoreQuery(query_embedding=QUESTION, **options))
        return
    clean = SimpleVectorStore()
    clean.add(nodes())
    query = VectorStoreQuery(query_embedding=QUESTION, **options)
    threshold = {"mmr_threshold": options["mmr_threshold"]} if "mmr_threshold" in options else {}
    expected, result = clean.query(query, **threshold), asked.query(query)
    assert result.ids == expected.ids
    np.testing.assert_allclose(result.similarities, expected.similarities, atol=1e-3)
    assert [node.get_content() for node in result.nodes] == [TEXTS[int(name[5:])] for name in result.ids]


def test_an_index_retrieves_answers_and_gives_whole_nodes_back(asked: Any) -> None:
    index = VectorStoreIndex.from_vector_store(asked, embed_model=embedding())
    question = "canary violin question"
    hits = index.as_retriever(similarity_top_k=3).retrieve(question)
    cosines = vectors_of(TEXTS) @ vectors_of([question])[0]
    best = np.argsort(-cosines, kind="stable")[:3]
    assert [hit.node.node_id for hit in hits] == [f"node-{i}" for i in best]
    np.testing.assert_allclose([hit.score for hit in hits], cosines[best], atol=1e-3)
    given = nodes()[best[0]].model_copy(update={"embedding": None})
    assert hits[0].node == given
    assert asyncio.run(index.as_retriever(similarity_top_k=3).aretrieve(question)) == hits
    answer = index.as_query_engine(llm=MockLLM(), similarity_top_k=3).query(question)
    assert all(hit.node.get_content() in str(answer) for hit in hits)
    of_document = index.as_retriever(similarity_top_k=9, doc_ids=["doc-2"]).retrieve(question)
    assert {hit.node.ref_doc_id for hit in of_document} == {"doc-2"}
    assert len(of_document) == 4


def test_nodes_are_got_and_deleted(store: Any) -> None:
    assert [node.node_id for node in store.get_nodes(["node-5", "none", "node-2"])] == ["node-5", "node-2"]
    assert len(store.get_nodes(filters=both(equal("page", 1), equal("word", "roof")))) == 4
    assert len(store.get_nodes()) == ROWS
    if isinstance(store.client, vecveil.ProtectedCollection):
        database = store.client.database
        rows = database.read([f"node-{i}" for i in range(ROWS)])
        # A hostile database gives every row the token of one document: its deletion takes no other.
        copied = {**rows.fields[0], "vecveil_filter_ref_doc_id": rows.fields[4]["vecveil_filter_ref_doc_id"]}
        tokens = {name: value for name, value in copied.items() if name.startswith("vecveil_filter_")}
        database.write(Batch(rows.ids, rows.vectors, tuple({**row, **tokens} for row in rows.fields)))
        store.delete("doc-1")
        assert {node.node_id for node in store.get_nodes()} == {f"node-{i}" for i in range(ROWS) if i // 4 != 1}
        database.write(rows.rows([i for i in range(ROWS) if i // 4 != 1]))
    store.delete("doc-1")
    assert {node.node_id for node in store.get_nodes()} == {f"node-{i}" for i in range(ROWS) if i // 4 != 1}
    store.delete_nodes(["node-0", "none"])
    store.delete_nodes(filters=both(equal("word", "violin")))
    store.delete_nodes(["node-1", "node-2"], filters=both(equal("page", 1)))
    left = {i for i in range(1, ROWS) if i // 4 != 1 and i % 5 != 4} - {1}
    assert {node.node_id for node in store.get_nodes()} == {f"node-{i}" for i in left}
    with raises("E-INPUT", "node_ids"):
        store.delete_nodes()
    store.clear()
    assert store.get_nodes() == []
    assert store.query(VectorStoreQuery(query_embedding=QUESTION)).ids == []
    asyncio.run(store.async_add(nodes()[:3]))
    asyncio.run(store.adelete("doc-0"))
    assert store.get_nodes() == []


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_index_writes_replaces_and_forgets_documents(kind: str, tmp_path: Path, hashed_protector: Any) -> None:
    store = SealedVectorStore(KINDS[kind](tmp_path, hashed_protector))
    store.delete("nothing yet")
    assert store.get_nodes() == []
    index = VectorStoreIndex.from_vector_store(store, embed_model=embedding())
    given = [node.model_copy(update={"embedding": None}) for node in nodes()[:8]]
    index.insert_nodes(given)
    index.delete_ref_doc("doc-0")
    assert [node.node_id for node in store.get_nodes()] == [f"node-{i}" for i in range(4, 8)]
    index.insert_nodes([given[4].model_copy(update={"text": "canary train changed"})])
    (changed,) = store.get_nodes(["node-4"])
    assert changed.get_content() == "canary train changed"
    assert index.as_retriever(similarity_top_k=1).retrieve("canary train changed")[0].score > 0.999
    reopened = SealedVectorStore(KINDS[kind](tmp_path, hashed_protector))
    assert [node.get_content() for node in reopened.get_nodes(["node-4"])] == ["canary train changed"]
    if kind == "index":
        again = SealedVectorStore.from_sealed(f"sealed:{tmp_path}/notes", tmp_path / "search.keys")
        assert again.get_nodes() == reopened.get_nodes()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_documents_are_added_found_deleted_and_kept(kind: str, tmp_path: Path, hashed_protector: Any) -> None:
    store = SealedVectorStore(KINDS[kind](tmp_path, hashed_protector))
    context = StorageContext.from_defaults(vector_store=store)
    given = [Document(text=text, doc_id=f"doc-{i}", metadata={"page": i}) for i, text in enumerate(TEXTS[:6])]
    index = VectorStoreIndex.from_documents(given, storage_context=context, embed_model=embedding())
    assert "number 2" in str(index.as_query_engine(llm=MockLLM(), similarity_top_k=6).query("canary"))
    index.delete_ref_doc("doc-2")
    context.persist(str(tmp_path / "persisted"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    index = VectorStoreIndex.from_vector_store(
        SealedVectorStore(KINDS[kind](tmp_path, hashed_protector)), embed_model=embedding()
    )
    retriever = index.as_retriever(similarity_top_k=6, filters=both(equal("page", [1, 2, 3], "in")))
    assert {hit.node.ref_doc_id for hit in retriever.retrieve("canary")} == {"doc-1", "doc-3"}


def test_hybrid_search_of_an_index_adds_words(asked: Any) -> None:
    query = VectorStoreQuery(query_embedding=QUESTION, query_str="17", mode="hybrid", similarity_top_k=2)
    if isinstance(asked.client, vecveil.SealedIndex):
        nearest = asked.query(VectorStoreQuery(query_embedding=QUESTION, similarity_top_k=1)).ids
        assert asked.query(query).ids == ["node-17", *nearest]
        assert nearest != ["node-17"]
    else:
        with raises("E-INPUT-NAME", "mode"):
            asked.query(query)


@pytest.mark.parametrize("asked", ["index"], indirect=True)
def test_alpha_weighs_the_vectors_of_a_hybrid_search_against_the_words(asked: Any) -> None:
    options = {"vector_store_query_mode": "hybrid", "similarity_top_k": 3}
    index = VectorStoreIndex.from_vector_store(asked, embed_model=embedding())

    def ranked(alpha: float | None, **more: Any) -> list[str]:
        hits = index.as_retriever(alpha=alpha, **options, **more).retrieve("17")
        return [hit.node.node_id for hit in hits]

    nearest = index.as_retriever(similarity_top_k=3).retrieve("17")
    vectors = [hit.node.node_id for hit in nearest]
    assert ranked(1) == vectors
    assert "node-17" not in vectors
    assert ranked(0)[0] == ranked(0.3)[0] == "node-17"
    assert ranked(None) == ranked(0.5)
    assert ranked(0.9)[0] == vectors[0]
    # The only row with the word: no other matches by words alone.
    only = VectorStoreQuery(query_embedding=QUESTION, query_str="17", mode="hybrid", alpha=0, similarity_top_k=5)
    assert asked.query(only).ids == ["node-17"]
    for alpha in (-0.1, 1.1, float("nan")):
        with raises("E-INPUT", "alpha"):
            ranked(alpha)
    with raises("E-INPUT", "node_ids"):
        asked.query(VectorStoreQuery(QUESTION, query_str="17", mode="hybrid", node_ids=["node-1"]))
    assert len(ranked(0.5, hybrid_top_k=2)) == 2
    with raises("E-INPUT-RANGE", "hybrid_top_k"):
        ranked(0.5, hybrid_top_k=0)
    with raises("E-INPUT", "query_str"):
        asked.query(VectorStoreQuery(query_embedding=QUESTION, mode="hybrid", similarity_top_k=2))


def test_what_would_be_ignored_is_refused(asked: Any) -> None:
    for options in ({}, {"mode": "mmr"}, {"node_ids": ["node-3", "node-8"]}):
        for top in (0, -1):  # LlamaIndex's functions take 0 for all nodes
            with raises("E-INPUT-RANGE", "similarity_top_k"):
                asked.query(VectorStoreQuery(query_embedding=QUESTION, similarity_top_k=top, **options))
    with raises("E-INPUT-NAME", "vector_store_kwargs"):
        asked.query(VectorStoreQuery(query_embedding=QUESTION), qdrant_filters={"tenant": "a"})


@pytest.mark.parametrize("key", ["ref_doc_id", "doc_id", "document_id"])
def test_filters_compare_the_document_of_a_node(asked: Any, key: str) -> None:
    clean = SimpleVectorStore()
    clean.add(nodes())
    filters = both(equal(key, ["doc-2", "doc-7"], "in"), equal("word", ["train", "roof"], "in"))
    query = VectorStoreQuery(query_embedding=QUESTION, similarity_top_k=9, filters=filters)
    assert asked.query(query).ids == clean.query(query).ids
    of_document = both(equal(key, "doc-2"))
    assert len(asked.get_nodes(filters=of_document)) == 4
    query = VectorStoreQuery(query_embedding=QUESTION, similarity_top_k=9, doc_ids=["doc-1"], filters=of_document)
    assert asked.query(query).ids == []
    query = VectorStoreQuery(query_embedding=QUESTION, node_ids=["node-8", "node-3"], doc_ids=["doc-2"])
    assert asked.query(query).ids == ["node-8"]


def test_no_empty_list_deletes_every_node(store: Any) -> None:
    store.add([TextNode(id_="alone", text="of no document", embedding=QUESTION)])
    either = both(both(), equal("page", 1), condition="or")
    empty = [both(), both(both()), either, both(equal("page", [], "all"))]
    if isinstance(store.client, vecveil.SealedIndex):
        empty += [both(equal("page", [], "nin")), both(both(), condition="not")]
    for filters in empty:
        with raises("E-INPUT", "filters"):
            store.delete_nodes(filters=filters)
        with raises("E-INPUT", "filters"):
            asyncio.run(store.adelete_nodes(filters=filters))
    with raises("E-INPUT-TYPE", "ref_doc_id"):
        store.delete(None)
    store.delete_nodes([])
    store.delete_nodes([], filters=both())
    store.delete_nodes([], filters=both(equal("page", 1)))
    store.delete_nodes(filters=both(equal("page", [], "in")))
    store.delete("")
    assert len(asyncio.run(store.aget_nodes())) == ROWS + 1
    asyncio.run(store.adelete_nodes(["node-0"], filters=both()))
    asyncio.run(store.adelete_nodes(filters=both(equal("page", 1))))
    assert {node.node_id for node in store.get_nodes()} == {
        "alone",
        *(f"node-{i}" for i in range(1, ROWS) if i % 3 != 1),
    }
    asyncio.run(store.aclear())
    assert store.get_nodes() == []


@pytest.mark.parametrize("store", ["collection"], indirect=True)
def test_the_database_holds_no_text_and_no_clean_vector(store: Any, tmp_path: Path) -> None:
    """The control: the protected vectors are found in the same files in the same way."""
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("rows.db"))
    assert b"canary" not in content
    assert b"doc-" not in content
    for row in vectors_of(TEXTS):
        assert row.tobytes()[:32] not in content
    stored = next(store.client.database.batches())
    assert stored.vectors[0].tobytes() in content


@pytest.mark.parametrize("asked", ["collection"], indirect=True)
def test_what_the_database_cannot_do_is_refused(asked: Any, tmp_path: Path, hashed_protector: Any) -> None:
    with raises("E-INPUT", "collection"):
        SealedVectorStore(collection_in(tmp_path, hashed_protector, filter_fields=("page",)))
    with raises("E-INPUT-TYPE", "collection"):
        SealedVectorStore("sqlite-vec:rows.db#notes")
    with raises("E-INPUT-NAME", "mode"):
        asked.query(VectorStoreQuery(query_embedding=QUESTION, mode="sparse"))
    with raises("E-INPUT-NAME", "filters"):
        asked.get_nodes(filters=both(both(equal("page", 1), equal("page", 2), condition="or")))
    with raises("E-INPUT"):
        asked.query(VectorStoreQuery(query_embedding=QUESTION, filters=both(equal("secret", "x"))))
