"""Protected embeddings of LangChain and of LlamaIndex keep the same promises, each by its framework's interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.http_encoder import hashed_vectors
from harness.integration_checks import same_direction
from vecveil.errors import KeyFileError, LedgerCapError
from vecveil.privacy.protector import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]
Call = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Framework:
    """The classes of a framework and its calls, for documents and for one query."""

    protected: type
    inner: type
    documents: Call
    query: Call
    later_documents: Call
    later_query: Call
    argument: str

    def wrap(self, protector: Any, inner: Any = None, **options: Any) -> Any:
        return self.protected(protector, inner, **{"text_stored": False, **options})


def langchain() -> Framework:
    pytest.importorskip("langchain_core")
    from harness.langchain_embedding import Inner
    from vecveil.gateway.langchain import ProtectedEmbeddings as Protected

    calls = Protected.embed_documents, Protected.embed_query, Protected.aembed_documents, Protected.aembed_query
    return Framework(Protected, Inner, *calls, "embeddings")


def llama_index() -> Framework:
    pytest.importorskip("llama_index.core")
    from harness.llama_embedding import Inner
    from vecveil.gateway.llama_index import ProtectedEmbedding as Protected

    documents = Protected.get_text_embedding_batch, Protected.get_query_embedding
    later = Protected.aget_text_embedding_batch, Protected.aget_query_embedding
    return Framework(Protected, Inner, *documents, *later, "embed_model")


@pytest.fixture(params=[langchain, llama_index], ids=lambda make: make.__name__)
def framework(request: pytest.FixtureRequest) -> Framework:
    return request.param()


@pytest.fixture(params=[False, True], ids=["own encoder", "wrapped"])
def inner(request: pytest.FixtureRequest, framework: Framework) -> Any:
    return framework.inner() if request.param else None


def test_vectors_leave_protected_and_queries_as_they_are_told(framework, inner, protector):
    """Query noise twice as strong; the clean map is found only where it is asked for."""
    mapped = protector.protect(vecveil.load_encoder("minilm").encode(TEXTS), noise=False)
    bare = framework.wrap(protector, inner, query_noise=0)
    documents = np.array(framework.documents(bare, TEXTS))
    assert documents.shape == (3, protector.released_dimension)
    assert same_direction(documents, mapped).max() < 0.998
    assert same_direction([framework.query(bare, TEXTS[0])], mapped[:1])[0] > 0.999
    noise = {}
    for side in (1, 4):
        embeddings = framework.wrap(protector, inner, query_noise=side)
        drawn = np.array([framework.query(embeddings, TEXTS[0]) for _ in range(20)])
        noise[side] = np.linalg.norm(drawn - mapped[0], axis=1).mean()
    assert noise[4] > 2 * noise[1] > 0  # 4 to 1; one of 20 means varies by a few percent


def test_without_waiting_the_same_vectors(framework, inner, protector, key_file):
    embeddings = framework.wrap(protector, inner, key=key_file)

    async def both() -> tuple[Any, Any]:
        return await framework.later_documents(embeddings, TEXTS), await framework.later_query(embeddings, TEXTS[1])

    documents, query = asyncio.run(both())
    assert documents == framework.documents(embeddings, TEXTS)
    assert query == framework.query(embeddings, TEXTS[1]) == documents[1]
    assert framework.query(framework.wrap(protector, inner), TEXTS[1]) != query


def test_one_warning_about_stored_texts(framework, protector):
    embeddings = framework.wrap(protector, text_stored=True)
    with pytest.warns(PlaintextWarning, match=r"page_content|text of every node"):
        framework.documents(embeddings, TEXTS)
    framework.documents(embeddings, TEXTS)  # a second one would be an error here
    framework.query(framework.wrap(protector, text_stored=True), TEXTS[0])


def test_texts_are_rewritten_before_the_wrapped_embeddings_see_them(framework, redactor):
    inner = framework.inner()
    embeddings = framework.wrap(redactor, inner)
    documents = framework.documents(embeddings, TEXTS)
    framework.query(embeddings, TEXTS[0])
    asyncio.run(framework.later_documents(embeddings, TEXTS))
    asyncio.run(framework.later_query(embeddings, TEXTS[0]))
    assert not any("amoxicillin" in text or "asthma" in text for text in inner._asked)
    assert sum("*" in text for text in inner._asked) == 4
    np.testing.assert_allclose(documents, redactor.encode(TEXTS), atol=0.02)


def test_the_ledger_counts_documents_and_queries(framework, hashed_protector, tmp_path: Path):
    embeddings = framework.wrap(hashed_protector, ledger=vecveil.Ledger(tmp_path / "ledger", cap=2))
    framework.documents(embeddings, TEXTS)
    framework.query(embeddings, TEXTS[0])
    with pytest.raises(LedgerCapError):
        framework.documents(embeddings, TEXTS)
    framework.documents(embeddings, TEXTS[1:])  # nothing was counted of what was refused


@pytest.mark.parametrize(
    ("vectors", "code", "param"),
    [
        (lambda texts: hashed_vectors(texts, 384), "E-INCOMPATIBLE-ENCODER", "encoder"),
        (hashed_vectors, "E-INCOMPATIBLE-DIMENSION", "encoder"),
        (lambda texts: [[float("nan")] * 384] * len(texts), "E-INPUT", "encode"),
        (lambda texts: [[1.0] * 384], "E-INPUT", "encode"),
        (lambda texts: [], "E-INPUT", "encode"),
        (lambda texts: "<html>", "E-INPUT", "encode"),
    ],
    ids=["other model", "other dimension", "NaN", "too few", "none", "HTML"],
)
def test_embeddings_that_do_not_fit_release_nothing(framework, protector, vectors, code, param):
    wrong = framework.inner()
    wrong._vectors = vectors
    embeddings = framework.wrap(protector, wrong)
    for call in (
        lambda: framework.documents(embeddings, TEXTS),
        lambda: framework.query(embeddings, TEXTS[0]),
        lambda: asyncio.run(framework.later_query(embeddings, TEXTS[0])),
    ):
        with raises(code, param):
            call()


def test_embeddings_that_go_wrong_later_release_nothing(framework, protector):
    inner = framework.inner()
    embeddings = framework.wrap(protector, inner)
    framework.query(embeddings, TEXTS[0])
    inner._vectors = lambda texts: [[float("inf")] * 384] * len(texts)
    with raises("E-INPUT", "encode"):
        framework.documents(embeddings, TEXTS)
    assert inner._asked[12:] == [TEXTS[0], *TEXTS], "the check is made once, of twelve sentences"


def test_what_cannot_be_is_refused(framework, protector, redactor, tmp_path: Path):
    with raises("E-INPUT", framework.argument):
        framework.wrap(protector, vecveil.load_encoder("minilm"))
    with raises("E-INPUT", "query_noise"):
        framework.wrap(redactor, query_noise=0)
    with pytest.raises(KeyFileError):
        framework.wrap(protector, key=tmp_path / "none.key")
    assert framework.documents(framework.wrap(protector, framework.inner()), []) == []
