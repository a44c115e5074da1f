"""LangChain's own tests of embeddings, and what a protector adds to them."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("langchain_core")

from langchain_core.embeddings import Embeddings
from langchain_core.load import dumps
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

import vecveil
from harness.errors import raises
from harness.http_encoder import hashed_vectors
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import KeyFileError, LedgerCapError
from vecveil.integrations.langchain import ProtectedEmbeddings
from vecveil.protector import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


class Inner(Embeddings):
    """MiniLM as LangChain embeddings, which write down what they are asked; other vectors on demand."""

    encoder: Any = None

    def __init__(self, vectors: Any = None) -> None:
        Inner.encoder = Inner.encoder or vecveil.load_encoder("minilm")
        self.asked: list[tuple[str, list[str]]] = []
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(("documents", texts))
        if self._vectors is not None:
            return self._vectors(texts)
        return Inner.encoder.encode(texts, show_progress=False).tolist()

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(("query", [text]))
        if self._vectors is not None:
            return self._vectors([text])[0]
        return Inner.encoder.encode([text], show_progress=False)[0].tolist()


class _Given:
    @pytest.fixture(autouse=True, params=["own encoder", "wrapped"])
    def _take(self, protector: vecveil.Protector, request: pytest.FixtureRequest) -> None:
        self._protector = protector
        self._inner = Inner() if request.param == "wrapped" else None

    @property
    def embeddings_class(self) -> type[ProtectedEmbeddings]:
        return ProtectedEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        given = {"protector": self._protector, "embeddings": self._inner}
        return {**given, "text_stored": False}


class TestUnit(_Given, EmbeddingsUnitTests):
    pass


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:The test .* is marked with:pytest.PytestWarning")
class TestIntegration(_Given, EmbeddingsIntegrationTests):
    pass


def wrap(protector: Any, inner: Embeddings | None = None, **options: Any) -> ProtectedEmbeddings:
    return ProtectedEmbeddings(protector, inner, **{"text_stored": False, **options})


@pytest.mark.parametrize("inner", [None, Inner], ids=["own encoder", "wrapped"])
def test_vectors_leave_protected_and_queries_as_they_are_told(protector, inner):
    """Query noise twice as strong; the clean map is found only where it is asked for."""
    clean = vecveil.load_encoder("minilm").encode(TEXTS)
    mapped = protector.protect(clean, noise=False)
    inner = inner and inner()
    documents = np.array(wrap(protector, inner).embed_documents(TEXTS))
    assert documents.shape == (3, protector.released_dimension)
    assert same_direction(documents, mapped).max() < 0.998
    query = wrap(protector, inner, query_protection="map-only").embed_query(TEXTS[0])
    assert same_direction([query], mapped[:1])[0] > 0.999
    noise = {}
    for side in ("same", "stronger"):
        embeddings = wrap(protector, inner, query_protection=side, query_noise=4.0)
        drawn = np.array([embeddings.embed_query(TEXTS[0]) for _ in range(20)])
        noise[side] = np.linalg.norm(drawn - mapped[0], axis=1).mean()
    assert noise["stronger"] > 2 * noise["same"] > 0  # 4 to 1; one of 20 means varies by a few percent


def test_without_waiting_the_same_vectors(protector, key_file):
    inner = Inner()
    embeddings = wrap(protector, inner, key=key_file)

    async def both() -> tuple[Any, Any]:
        return await embeddings.aembed_documents(TEXTS), await embeddings.aembed_query(TEXTS[1])

    documents, query = asyncio.run(both())
    assert documents == embeddings.embed_documents(TEXTS)
    assert query == embeddings.embed_query(TEXTS[1]) == documents[1]
    assert wrap(protector, inner).embed_query(TEXTS[1]) != query


def test_a_store_finds_what_it_holds(protector, notes):
    store = InMemoryVectorStore(wrap(protector))
    store.add_texts(notes[:40], ids=[str(i) for i in range(40)])
    found = [store.similarity_search(notes[i], k=3) for i in range(0, 40, 4)]
    assert sum(str(4 * i) in [d.id for d in docs] for i, docs in enumerate(found)) >= 8
    held = np.array([row["vector"] for row in store.store.values()])
    clean = vecveil.load_encoder("minilm").encode(notes[:40])
    assert same_direction(held, clean).max() < 0.999


def test_one_warning_about_texts_in_the_store(protector):
    embeddings = wrap(protector, text_stored=True)
    with pytest.warns(PlaintextWarning, match="page_content") as caught:
        embeddings.embed_documents(TEXTS)
    assert caught[0].filename == __file__
    embeddings.embed_documents(TEXTS)  # a second one would be an error here
    wrap(protector, text_stored=True).embed_query(TEXTS[0])


def test_texts_are_rewritten_before_the_wrapped_embeddings_see_them(redactor):
    inner = Inner()
    embeddings = wrap(redactor, inner)
    documents = embeddings.embed_documents(TEXTS)
    embeddings.embed_query(TEXTS[0])
    asyncio.run(embeddings.aembed_documents(TEXTS))
    asyncio.run(embeddings.aembed_query(TEXTS[0]))
    seen = [text for side, texts in inner.asked for text in texts]
    assert not any("amoxicillin" in text or "asthma" in text for text in seen)
    assert sum("*" in text for text in seen) == 4
    # Two encoders, which may have chosen another precision.
    np.testing.assert_allclose(documents, redactor.encode(TEXTS), atol=0.02)


def test_neither_key_nor_vector_where_it_is_kept(protector_file, key_file, tmp_path: Path):
    embeddings = wrap(str(protector_file), key=str(key_file), query_protection="stronger")
    (tmp_path / "pickle").write_bytes(pickle.dumps(embeddings))
    (tmp_path / "dumps").write_text(dumps(embeddings) + repr(embeddings) + str(vars(embeddings)))
    assert_no_secret(tmp_path, key_file)
    again = pickle.loads((tmp_path / "pickle").read_bytes())
    assert again.embed_documents(TEXTS) == embeddings.embed_documents(TEXTS)
    assert again.embed_query(TEXTS[0]) == embeddings.embed_query(TEXTS[0])
    keys = vecveil.NoiseKeys.from_file(key_file)
    with raises("E-INPUT-TYPE", "key"):
        pickle.dumps(wrap(str(protector_file), key=keys))


def test_a_pickle_does_not_open_another_protector(protector, tmp_path: Path):
    protector.save(tmp_path / "p.vecveil")
    content = pickle.dumps(wrap(tmp_path / "p.vecveil"))
    protector.rescaled(2.0).save(tmp_path / "p.vecveil")
    with raises("E-INCOMPATIBLE", "protector"):
        pickle.loads(content)


def test_the_ledger_counts_documents_and_queries(protector, tmp_path: Path):
    ledger = vecveil.Ledger(tmp_path / "ledger", cap=2)
    embeddings = wrap(protector, ledger=ledger)
    embeddings.embed_documents(TEXTS)
    embeddings.embed_query(TEXTS[0])
    with pytest.raises(LedgerCapError):
        embeddings.embed_documents(TEXTS)
    embeddings.embed_documents(TEXTS[1:])  # nothing was counted of what was refused


def other_model(texts: list[str]) -> list[list[float]]:
    return hashed_vectors(texts, 384).tolist()


@pytest.mark.parametrize(
    ("vectors", "code", "param"),
    [
        (other_model, "E-INCOMPATIBLE-ENCODER", "encoder"),
        (lambda texts: hashed_vectors(texts).tolist(), "E-INCOMPATIBLE-DIMENSION", "encoder"),
        (lambda texts: [[float("nan")] * 384] * len(texts), "E-INPUT", "encode"),
        (lambda texts: [[1.0] * 384], "E-INPUT", "encode"),
        (lambda texts: [], "E-INPUT", "encode"),
        (lambda texts: "<html>", "E-INPUT", "encode"),
    ],
    ids=["other model", "other dimension", "NaN", "too few", "none", "HTML"],
)
def test_embeddings_that_do_not_fit_release_nothing(protector, vectors, code, param):
    embeddings = wrap(protector, Inner(vectors))
    for call in (embeddings.embed_documents, lambda texts: embeddings.embed_query(texts[0])):
        with raises(code, param):
            call(TEXTS)
    with raises(code, param):
        asyncio.run(embeddings.aembed_query(TEXTS[0]))


def test_embeddings_that_go_wrong_later_release_nothing(protector):
    inner = Inner()
    embeddings = wrap(protector, inner)
    embeddings.embed_query(TEXTS[0])
    inner._vectors = lambda texts: [[float("inf")] * 384] * len(texts)
    with raises("E-INPUT", "encode"):
        embeddings.embed_documents(TEXTS)
    assert inner.asked[0] == ("documents", embeddings._wrapped.probe() or inner.asked[0][1])
    assert [len(texts) for _, texts in inner.asked] == [12, 1, 3]  # the check is made once


def test_what_cannot_be_is_refused(protector, redactor, tmp_path: Path):
    with raises("E-INPUT", "embeddings"):
        wrap(protector, vecveil.load_encoder("minilm"))
    with raises("E-INPUT", "query_protection"):
        wrap(redactor, query_protection="map-only")
    with pytest.raises(KeyFileError):
        wrap(protector, key=tmp_path / "none.key")
    with raises("E-INPUT-TYPE", "texts"):
        wrap(protector).embed_documents("one text")
    assert wrap(protector, Inner()).embed_documents([]) == []


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("langchain", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
