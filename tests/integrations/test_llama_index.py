"""A LlamaIndex index over protected vectors, its events and what it writes down."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.privacy.protector.policy import ReleasePolicy

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import LlamaIndex only in the process that runs this file; every process collects it."""
    pytest.importorskip("llama_index.core")
    global BaseEventHandler, Inner, ProtectedEmbedding, SimpleKVStore, StorageContext, TextNode
    global ValidationError, VectorStoreIndex, get_dispatcher, load_index_from_storage, minilm
    from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
    from llama_index.core.bridge.pydantic import ValidationError
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.event_handlers import BaseEventHandler
    from llama_index.core.schema import TextNode
    from llama_index.core.storage.kvstore import SimpleKVStore

    from harness.llama_embedding import Inner, minilm
    from vecveil.gateway.llama_index import ProtectedEmbedding


def wrap(protector: Any, inner: Any = None, **options: Any) -> ProtectedEmbedding:
    return ProtectedEmbedding(protector, inner, **{"text_stored": False, **options})


def nodes(texts: list[str]) -> list[TextNode]:
    return [TextNode(text=text, id_=str(i)) for i, text in enumerate(texts)]


@pytest.mark.parametrize("wrapped", [False, True], ids=["own encoder", "wrapped"])
def test_an_index_holds_and_finds_protected_vectors(protector, notes, wrapped):
    texts, embedding = notes[:40], wrap(protector, Inner() if wrapped else None)
    index = VectorStoreIndex(nodes(texts), embed_model=embedding)
    held = index.vector_store.data.embedding_dict
    assert len(held) == 40
    mapped = protector.protect(minilm(texts), noise=False)
    cosines = same_direction([held[str(i)] for i in range(40)], mapped)
    assert cosines.max() < 0.9995  # noise is drawn anew: the nearest of 40 is a matter of chance
    retriever = index.as_retriever(similarity_top_k=3)
    found = [[hit.node.node_id for hit in retriever.retrieve(texts[i])] for i in range(0, 40, 4)]
    assert sum(str(4 * i) in ids for i, ids in enumerate(found)) >= 8
    later = asyncio.run(retriever.aretrieve(texts[0]))
    assert len(later) == 3


def test_no_event_shows_a_clean_vector(protector, key_file):
    """The control: the same listener does see what the wrapped embedding reports by itself."""

    class Listener(BaseEventHandler):
        def handle(self, event: Any, **_: Any) -> None:
            seen.extend(getattr(event, "embeddings", []))

    seen: list[list[float]] = []
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(Listener())
    try:
        embedding = wrap(protector, Inner(), key=key_file)
        released = [*embedding.get_text_embedding_batch(TEXTS), embedding.get_query_embedding(TEXTS[0])]
        assert seen == released
        Inner().get_query_embedding(TEXTS[0])
        assert same_direction(seen[-1:], minilm(TEXTS[:1]))[0] > 0.999
    finally:
        dispatcher.event_handlers.pop()


def test_no_key_in_what_is_written_down(protector_file, key_file, tmp_path: Path):
    embedding = wrap(protector_file, key=key_file, query_noise=2)
    (tmp_path / "json").write_text(embedding.to_json() + repr(embedding) + str(embedding.to_payload()))
    (tmp_path / "pickle").write_bytes(pickle.dumps(embedding))
    index = VectorStoreIndex(nodes(TEXTS), embed_model=embedding)
    index.storage_context.persist(tmp_path / "index")
    assert_no_secret(tmp_path, key_file)
    expected = embedding.get_query_embedding(TEXTS[0])
    for again in (
        ProtectedEmbedding.from_dict(embedding.to_dict()),
        ProtectedEmbedding.from_json(embedding.to_json()),
        pickle.loads((tmp_path / "pickle").read_bytes()),
    ):
        assert again.to_dict() == embedding.to_dict()
        assert again.get_query_embedding(TEXTS[0]) == expected
    storage = StorageContext.from_defaults(persist_dir=str(tmp_path / "index"))
    loaded = load_index_from_storage(storage, embed_model=again)
    assert len(loaded.as_retriever(similarity_top_k=2).retrieve(TEXTS[1])) == 2


def test_objects_are_given_again(protector, protector_file, key_file, redactor, tmp_path: Path):
    keys = vecveil.KeyFile.from_file(key_file)
    embedding = wrap(protector, Inner(), key=keys)
    (tmp_path / "json").write_text(embedding.to_json())
    assert_no_secret(tmp_path, key_file)
    for missing in ({}, {"protector": protector}, {"protector": protector, "key": keys}):
        with raises("E-INPUT-SAVED"):
            ProtectedEmbedding.from_dict(embedding.to_dict(), **missing)
    again = {"protector": protector_file, "key": key_file, "embed_model": Inner()}
    assert ProtectedEmbedding.from_dict(embedding.to_dict(), **again).get_query_embedding(
        TEXTS[0]
    ) == embedding.get_query_embedding(TEXTS[0])
    with raises("E-INCOMPATIBLE", "protector"):
        ProtectedEmbedding.from_dict(embedding.to_dict(), **{**again, "protector": redactor, "key": None})
    with raises("E-INPUT-TYPE", "protector"):
        pickle.dumps(embedding)


def test_a_policy_is_written_down_with_its_settings(protector):
    policy = ReleasePolicy(protector, query_noise=0)
    saved = wrap(policy).to_dict()
    for given in (protector, policy):
        opened = ProtectedEmbedding.from_dict(saved, protector=given)
        assert opened.policy.query_noise == 0
    with raises("E-INPUT", "protector"):
        ProtectedEmbedding.from_dict(saved, protector=ReleasePolicy(protector))


def test_what_cannot_be_is_refused(protector):
    with raises("E-INPUT", "embeddings_cache"):
        wrap(protector, query_noise=0, embeddings_cache=SimpleKVStore())
    with raises("E-INPUT", "embeddings_cache"):
        wrap(ReleasePolicy(protector, query_noise=0), embeddings_cache=SimpleKVStore())
    with pytest.raises(ValidationError, match="frozen"):
        wrap(protector).query_noise = 0
    cached = wrap(protector, embeddings_cache=SimpleKVStore())
    assert cached.get_text_embedding(TEXTS[0]) == cached.get_query_embedding(TEXTS[0])


def test_a_cache_gives_out_vectors_of_this_protector_alone(protector):
    """LlamaIndex's keys are the texts, whatever embedding put a vector there."""
    cache = SimpleKVStore()
    clean = Inner(embeddings_cache=cache).get_text_embedding_batch(TEXTS)
    for inner in (None, Inner()):
        made = wrap(protector, inner, embeddings_cache=cache)
        released = np.array(made.get_text_embedding_batch(TEXTS))
        assert np.abs(released - clean).max(axis=1).min() > 1e-3
    again = np.array(wrap(protector, embeddings_cache=cache).get_text_embedding_batch(TEXTS))
    assert np.array_equal(released, again), "the cache is used"
    stronger = wrap(protector.rescaled(9.0), embeddings_cache=cache)
    assert stronger.get_query_embedding(TEXTS[0]) != list(again[0])
    asyncio.run(stronger.aget_text_embedding_batch(TEXTS))


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("llama_index", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
