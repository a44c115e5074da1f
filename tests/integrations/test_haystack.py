"""Haystack pipelines with a protector behind each embedder, written down and loaded again."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import IncompatibleError, InvalidInputError, KeyFileError, LedgerCapError
from vecveil.privacy.protector import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
_encoder: list[Any] = []


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import Haystack only in the process that runs this file; every process collects it."""
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when it is imported
    pytest.importorskip("haystack")
    global DeserializationError, Document, DocumentProtector, DocumentWriter, InMemoryDocumentStore
    global InMemoryEmbeddingRetriever, MockDocumentEmbedder, MockTextEmbedder
    global Pipeline, PipelineRuntimeError, QueryProtector, QueryRewriter, SparseEmbedding
    from haystack import Document, Pipeline
    from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.components.writers import DocumentWriter
    from haystack.core.errors import DeserializationError, PipelineRuntimeError
    from haystack.dataclasses import SparseEmbedding
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from vecveil.gateway.haystack import DocumentProtector, QueryProtector, QueryRewriter


def minilm(texts: list[str]) -> np.ndarray:
    if not _encoder:
        _encoder.append(vecveil.load_encoder("minilm", precision="fp32"))
    return _encoder[0].encode(texts, show_progress=False)


def embed(text: str) -> list[float]:
    return minilm([text])[0].tolist()


def documents(texts: list[str] = TEXTS, **fields: Any) -> list[Document]:
    return [
        Document(id=f"d{i}", content=text, embedding=row.tolist(), **fields)
        for i, (text, row) in enumerate(zip(texts, minilm(texts), strict=True))
    ]


def embeddings(found: list[Document]) -> np.ndarray:
    return np.array([one.embedding for one in found])


def chain(*components: Any) -> Pipeline:
    pipeline, names = Pipeline(), [f"c{i}" for i in range(len(components))]
    for name, one in zip(names, components, strict=True):
        pipeline.add_component(name, one)
    for before, after in pairwise(names):
        pipeline.connect(before, after)
    return pipeline


def load(text: str) -> Pipeline:
    return Pipeline.loads(text, allowed_modules=["vecveil.gateway.haystack"])


def test_pipelines_store_and_find_protected_vectors(protector, notes):
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    ingest = chain(
        MockDocumentEmbedder(embedding_fn=embed),
        DocumentProtector(protector, keep_content=False),
        DocumentWriter(store),
    )
    plain = [Document(id=str(i), content=text) for i, text in enumerate(notes[:30])]
    assert ingest.run({"c0": {"documents": plain}})["c2"] == {"documents_written": 30}
    held = sorted(store.filter_documents(), key=lambda one: int(one.id))
    mapped = protector.protect(minilm(notes[:30]), noise=False)
    assert same_direction(embeddings(held), mapped).max() < 0.998
    assert all(one.content is None for one in held)
    ask = chain(
        MockTextEmbedder(embedding_fn=embed),
        QueryProtector(protector, query_noise=0),
        InMemoryEmbeddingRetriever(store, top_k=3),
    )
    found = [ask.run({"c0": {"text": notes[i]}})["c2"]["documents"] for i in range(0, 30, 3)]
    assert sum(str(3 * i) in [one.id for one in ids] for i, ids in enumerate(found)) >= 8


def test_documents_that_came_in_stay_as_they_are(protector):
    given = documents(meta={"page": 1})
    before = [one.to_dict(flatten=False) for one in given]
    with pytest.warns(PlaintextWarning):
        released = DocumentProtector(protector).run(given)["documents"]
    assert [one.to_dict(flatten=False) for one in given] == before
    for old, new in zip(given, released, strict=True):
        assert (new.id, new.content, new.meta) == (old.id, old.content, old.meta)
        assert new.embedding != old.embedding
    assert DocumentProtector(protector).run([]) == {"documents": []}


def test_queries_are_protected_as_they_are_told(protector):
    clean = minilm(TEXTS[:1])
    mapped = protector.protect(clean, noise=False)
    noise = {}
    for side in (1, 4, 0):
        query = QueryProtector(protector, query_noise=side)
        drawn = np.array([query.run(clean[0].tolist())["embedding"] for _ in range(20)])
        noise[side] = np.linalg.norm(drawn - mapped[0], axis=1).mean()
    # 4 to 1; one of 20 means varies by a few percent
    assert noise[4] > 2 * noise[1] > 20 * noise[0]


def test_pipelines_are_written_down_without_secrets(protector_file, key_file, tmp_path: Path):
    """The control: the loaded pipelines release exactly what these do, which they cannot without the key."""
    made = [
        chain(DocumentProtector(protector_file, key=key_file, keep_content=False)),
        chain(QueryProtector(protector_file, key=key_file, query_noise=2)),
    ]
    for i, pipeline in enumerate(made):
        (tmp_path / f"{i}.yaml").write_text(pipeline.dumps())
    assert_no_secret(tmp_path, key_file)
    loaded = [load((tmp_path / f"{i}.yaml").read_text()) for i in range(2)]
    query = {"c0": {"embedding": embed(TEXTS[0])}}
    assert loaded[1].run(query) == made[1].run(query)
    assert loaded[0].run({"c0": {"documents": documents()}}) == made[0].run({"c0": {"documents": documents()}})
    assert [pipeline.dumps() for pipeline in loaded] == [pipeline.dumps() for pipeline in made]


def test_what_is_only_in_memory_is_not_written_down(protector, protector_file, key_file):
    keys = vecveil.KeyFile.from_file(key_file)
    for made in (
        DocumentProtector(protector),
        QueryProtector(protector_file, key=keys),
        DocumentProtector(protector_file, key=keys),
    ):
        with raises("E-INPUT-TYPE"):
            made.to_dict()


def test_a_pipeline_whose_key_is_gone_does_not_load(protector_file, monkeypatch, key_file):
    monkeypatch.setenv("HERE", key_file.read_text())
    text = chain(DocumentProtector(protector_file, key="env:HERE")).dumps()
    monkeypatch.delenv("HERE")
    with pytest.raises((DeserializationError, KeyFileError), match="HERE is not set"):
        load(text)


@pytest.mark.parametrize("kind", ["DocumentProtector", "QueryProtector"])
def test_a_pipeline_does_not_open_another_protector(kind, protector, tmp_path: Path):
    protector.save(tmp_path / "p.vecveil")
    text = chain(globals()[kind](tmp_path / "p.vecveil")).dumps()
    protector.rescaled(2.0).save(tmp_path / "p.vecveil")
    with pytest.raises((DeserializationError, IncompatibleError), match="has changed since"):
        load(text)
    older = "".join(line for line in text.splitlines(True) if "vecveil_protector:" not in line)
    assert older != text
    load(older)  # written by hand, a pipeline names no fingerprint


def test_a_program_says_that_it_trusts_the_module(protector_file):
    """Haystack imports classes of allowed modules alone."""
    with pytest.raises(DeserializationError, match="allowlist"):
        Pipeline.loads(chain(QueryProtector(protector_file)).dumps())


def test_one_warning_about_content_that_is_kept(protector):
    keeping = DocumentProtector(protector)
    with pytest.warns(PlaintextWarning, match="keep_content=False"):
        keeping.run(documents())
    keeping.run(documents())  # a second one would be an error here
    DocumentProtector(protector, keep_content=False).run(documents())


def test_ids_that_are_hashes_of_dropped_texts_give_a_warning(protector):
    plain = [Document(content=text) for text in TEXTS]
    hashed = [Document(id=one.id, content=one.content, embedding=embed(one.content)) for one in plain]
    with pytest.warns(PlaintextWarning, match="hash"):
        DocumentProtector(protector, keep_content=False).run(hashed)


def test_a_document_without_content_changes_no_other_one(protector, key_file):
    keyed = DocumentProtector(protector, key=key_file, keep_content=False)
    rows = np.random.default_rng(0).normal(size=(3, 384))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    documents = [
        Document(id=name, content=text, embedding=row.tolist())
        for name, text, row in zip("abc", ("one", None, "three"), rows, strict=True)
    ]
    together = keyed.run(documents)["documents"]
    alone = [keyed.run([document])["documents"][0] for document in documents]
    assert [one.embedding for one in together] == [one.embedding for one in alone]
    assert [one.id for one in together] == ["a", "b", "c"]


def test_keyed_documents_repeat_and_a_ledger_refuses(protector, key_file, tmp_path: Path):
    keyed = DocumentProtector(protector, key=key_file, keep_content=False)
    assert np.array_equal(*[embeddings(keyed.run(documents())["documents"]) for _ in range(2)])
    fresh = DocumentProtector(protector, keep_content=False)
    assert not np.array_equal(*[embeddings(fresh.run(documents())["documents"]) for _ in range(2)])
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=1)
    counted = DocumentProtector(protector, ledger=ledger, keep_content=False)
    counted.run(documents(TEXTS[:1]))
    with pytest.raises(LedgerCapError):
        counted.run(documents())


def test_texts_are_rewritten_before_the_embedder_sees_them(redactor):
    seen: list[str] = []

    def spy(text: str) -> list[float]:
        seen.append(text)
        return embed(text)

    store = InMemoryDocumentStore()
    ingest = chain(DocumentProtector(redactor), MockDocumentEmbedder(embedding_fn=spy), DocumentWriter(store))
    ingest.run({"c0": {"documents": [Document(id=t, content=t) for t in TEXTS]}})
    ask = chain(QueryRewriter(redactor), MockTextEmbedder(embedding_fn=spy))
    ask.run({"c0": {"text": TEXTS[0]}})
    assert not any("amoxicillin" in text or "asthma" in text for text in seen)
    assert sum("*" in text for text in seen) == 2
    contents = [one.content for one in store.filter_documents()]
    assert sorted(contents) == sorted(redactor.rewrite(TEXTS))  # the store holds no original either
    with pytest.warns(PlaintextWarning, match="hash"):  # of the original, by which a guess of it is confirmed
        DocumentProtector(redactor).run([Document(content=TEXTS[0])])
    with raises("E-INPUT", "documents"):
        DocumentProtector(redactor).run([Document(content=TEXTS[0], sparse_embedding=SparseEmbedding([1], [1.0]))])


@pytest.mark.parametrize(
    ("embedding", "param"),
    [(None, "documents"), ([float("nan")] * 384, "encode"), ([0.1] * 16, "encode")],
    ids=["none", "NaN", "other dimension"],
)
def test_a_document_that_does_not_fit_stops_them_all(protector, embedding, param):
    given = [*documents(), Document(id="bad", content="x", embedding=embedding)]
    with raises("E-INPUT", param):
        DocumentProtector(protector, keep_content=False).run(given)
    if embedding:
        with pytest.raises((InvalidInputError, IncompatibleError)):
            QueryProtector(protector).run(embedding)
    pipeline = chain(DocumentProtector(protector, keep_content=False), DocumentWriter(store := InMemoryDocumentStore()))
    with pytest.raises(PipelineRuntimeError):
        pipeline.run({"c0": {"documents": given}})
    assert store.count_documents() == 0


def test_what_cannot_be_is_refused(protector, redactor, tmp_path: Path):
    given = [Document(content="x", embedding=[0.1] * 16)]
    with raises("E-INCOMPATIBLE", "X"):
        DocumentProtector(protector, keep_content=False).run(given)
    with raises("E-INPUT", "protector"):
        QueryProtector(redactor)
    with raises("E-INPUT", "protector"):
        QueryRewriter(protector)
    with raises("E-INPUT", "keep_content"):
        DocumentProtector(redactor, keep_content=False)
    with raises("E-INPUT", "documents"):
        DocumentProtector(redactor).run(documents())
    with pytest.raises(KeyFileError):
        DocumentProtector(protector, key=tmp_path / "none.key")


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("haystack", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
