"""LangChain's own tests of embeddings, and what a protector adds to them."""

from __future__ import annotations

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
from harness.integration_checks import assert_no_secret, run_example, same_direction
from harness.langchain_embedding import Inner
from vecveil.gateway.langchain import ProtectedEmbeddings
from vecveil.privacy.protector import PlaintextWarning

TEXTS = ["She takes amoxicillin for her asthma.", "The train leaves at noon.", "A new roof."]


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


def test_a_store_finds_what_it_holds(protector, notes):
    store = InMemoryVectorStore(wrap(protector))
    store.add_texts(notes[:40], ids=[str(i) for i in range(40)])
    found = [store.similarity_search(notes[i], k=3) for i in range(0, 40, 4)]
    assert sum(str(4 * i) in [d.id for d in docs] for i, docs in enumerate(found)) >= 8
    held = np.array([row["vector"] for row in store.store.values()])
    clean = vecveil.load_encoder("minilm").encode(notes[:40])
    assert same_direction(held, clean).max() < 0.999


def test_the_warning_about_texts_is_at_the_call(protector):
    with pytest.warns(PlaintextWarning) as caught:
        wrap(protector, text_stored=True).embed_documents(TEXTS)
    assert caught[0].filename == __file__


def test_neither_key_nor_vector_where_it_is_kept(protector_file, key_file, tmp_path: Path):
    embeddings = wrap(str(protector_file), key=str(key_file), query_noise=2)
    (tmp_path / "pickle").write_bytes(pickle.dumps(embeddings))
    (tmp_path / "dumps").write_text(dumps(embeddings) + repr(embeddings) + str(vars(embeddings)))
    assert_no_secret(tmp_path, key_file)
    again = pickle.loads((tmp_path / "pickle").read_bytes())
    assert again.embed_documents(TEXTS) == embeddings.embed_documents(TEXTS)
    assert again.embed_query(TEXTS[0]) == embeddings.embed_query(TEXTS[0])
    keys = vecveil.KeyFile.from_file(key_file)
    with raises("E-INPUT-TYPE", "key"):
        pickle.dumps(wrap(str(protector_file), key=keys))


def test_a_pickle_does_not_open_another_protector(protector, tmp_path: Path):
    protector.save(tmp_path / "p.vecveil")
    content = pickle.dumps(wrap(tmp_path / "p.vecveil"))
    protector.rescaled(2.0).save(tmp_path / "p.vecveil")
    with raises("E-INCOMPATIBLE", "protector"):
        pickle.loads(content)


def test_one_text_is_no_list_of_texts(protector):
    with raises("E-INPUT-TYPE", "texts"):
        wrap(protector).embed_documents("one text")


def test_the_example(collection_folder, protector_file):
    clean, protected = run_example("langchain", collection_folder, protector_file)
    assert min(clean, protected) > 0.5  # about 0.85 either way, give or take 0.03 by the noise
