"""Chroma: collections whose vectors are protected, now and when another program opens them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from chromadb.utils.embedding_functions import register_embedding_function

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example, same_direction
from vecveil.errors import IncompatibleError, InvalidInputError
from vecveil.integrations.chroma import ProtectedEmbeddingFunction, protect_and_add
from vecveil.integrations.opening import PlaintextWarning
from vecveil.protector.policy import ReleasePolicy

ROWS = 30


@register_embedding_function
class OwnFunction(EmbeddingFunction[Documents]):
    """A Chroma function of the user's: the protector's encoder, or with ``shuffled`` another one."""

    def __init__(self, shuffled: bool = False) -> None:
        self._shuffled = shuffled
        self.queries = 0

    def __call__(self, input: Documents) -> Embeddings:
        X = vecveil.load_encoder("minilm").encode(list(input))
        return list(X**3 if self._shuffled else X)

    def embed_query(self, input: Documents) -> Embeddings:
        self.queries += 1
        return self(input)

    @staticmethod
    def name() -> str:
        return "own-function"

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> OwnFunction:
        return OwnFunction(**config)

    def get_config(self) -> dict[str, Any]:
        return {"shuffled": self._shuffled}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Any]:
    with chromadb.PersistentClient(tmp_path / "db") as opened:
        yield opened


def vectors(collection: Any) -> np.ndarray:
    got = collection.get(include=["embeddings"])
    order = np.argsort([int(one) for one in got["ids"]])
    return np.asarray(got["embeddings"], dtype=np.float32)[order]


def ids(rows: int) -> list[str]:
    return [str(i) for i in range(rows)]


def test_what_is_stored_is_protected(
    client: Any, protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    function = ProtectedEmbeddingFunction(protector_file)
    collection = client.create_collection("notes", embedding_function=function)
    with pytest.warns(PlaintextWarning, match="protect_and_add") as caught:
        collection.add(ids=ids(ROWS), documents=notes[:ROWS])
    assert len(caught) == 1
    collection.upsert(ids=["0"], documents=notes[:1])  # it warns once, and warnings are errors here
    assert collection.get(ids=["0"])["documents"] == [notes[0]], "that is what it warned of"
    clean = protector.loaded_encoder().encode(notes[:ROWS])
    mapped = protector.protect(clean, noise=False)
    stored = vectors(collection)
    assert stored.shape == (ROWS, protector.released_dimension)
    assert np.abs(stored - clean).max(axis=1).min() > 1e-3
    assert np.abs(stored - mapped).max(axis=1).min() > 1e-3, "noise, not the map alone"
    assert same_direction(stored, mapped).mean() > 0.3
    assert collection.configuration_json["hnsw"]["space"] == "cosine"
    found = collection.query(query_texts=[notes[7]], n_results=1)
    assert found["ids"] == [["7"]]


def test_protect_and_add_leaves_the_texts_out(
    client: Any, tmp_path: Path, protector_file: Path, notes: list[str]
) -> None:
    function = ProtectedEmbeddingFunction(protector_file)
    collection = client.create_collection("notes", embedding_function=function)
    control = client.create_collection("control", embedding_function=None)
    planted = "quinquagesima fortnight zephyr"
    metadatas = [{"page": i} for i in range(ROWS)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        protect_and_add(collection, ids(ROWS), [planted, *notes[1:ROWS]], metadatas)
        protect_and_add(collection, ids(3), [planted, *notes[1:3]], metadatas[:3])
    assert collection.count() == ROWS
    got = collection.get(ids=["4"])
    assert got["documents"] in (None, [None])
    assert got["metadatas"] == [{"page": 4}]
    assert not holds(tmp_path, planted)
    control.add(ids=["0"], documents=[planted], embeddings=[[1.0, 2.0]])
    assert holds(tmp_path, planted), "a text that is stored is found by this test"


def holds(folder: Path, text: str) -> bool:
    """Say whether the database holds it; in the index beside it Chroma saves memory of this process as it comes."""
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*.sqlite3"))


@pytest.mark.parametrize("how", ["path", "env"])
def test_a_collection_that_is_reopened_still_protects(
    how: str,
    tmp_path: Path,
    protector: vecveil.Protector,
    protector_file: Path,
    key_file: Path,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHROMA_TEST_KEY", key_file.read_text())
    key = str(key_file) if how == "path" else "env:CHROMA_TEST_KEY"
    function = ProtectedEmbeddingFunction(protector_file, key=key, query_protection="map-only")
    with chromadb.PersistentClient(tmp_path / "db") as client:
        collection = client.create_collection("notes", embedding_function=function)
        protect_and_add(collection, ids(ROWS), notes[:ROWS])
        first = vectors(collection)
    with chromadb.PersistentClient(tmp_path / "db") as client:
        collection = client.get_collection("notes")
        protect_and_add(collection, ids(10), notes[:10])
        with pytest.warns(PlaintextWarning):
            collection.add(ids=["100"], documents=[notes[50]])
        again = vectors(collection)
        np.testing.assert_allclose(again[:ROWS], first, atol=1e-6)  # keyed noise: the same release
        clean = protector.loaded_encoder().encode([notes[50]])
        assert np.abs(again[-1] - protector.protect(clean, noise=False)).max() > 1e-3
        asked = collection.configuration["embedding_function"].embed_query([notes[3]])
        clean = protector.loaded_encoder().encode([notes[3]])
        np.testing.assert_allclose(asked, protector.protect(clean, noise=False), atol=1e-5)
        assert collection.query(query_texts=[notes[3]], n_results=1)["ids"] == [["3"]]
    assert_no_secret(tmp_path, key_file, key_file.read_bytes().strip())


def test_a_program_without_vecveil_cannot_add_clean_vectors(
    tmp_path: Path, protector_file: Path, notes: list[str]
) -> None:
    with chromadb.PersistentClient(tmp_path / "db") as client:
        function = ProtectedEmbeddingFunction(protector_file)
        collection = client.create_collection("notes", embedding_function=function)
        protect_and_add(collection, ids(3), notes[:3])
    program = (
        "import chromadb, sys\n"
        "c = chromadb.PersistentClient(sys.argv[1]).get_collection('notes')\n"
        "assert c.count() == 3\n"
        "for call in (lambda: c.add(ids=['x'], documents=['a']), lambda: c.query(query_texts=['a'])):\n"
        "    try: call()\n"
        "    except ValueError as error: assert 'vecveil' in str(error), error\n"
        "    else: sys.exit('embedded without protection')\n"
        "assert c.count() == 3\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "db")],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_objects_are_given_again(
    tmp_path: Path, protector: vecveil.Protector, key_file: Path, notes: list[str]
) -> None:
    keys = vecveil.NoiseKeys.from_file(key_file)
    with chromadb.PersistentClient(tmp_path / "db") as client:
        function = ProtectedEmbeddingFunction(protector, key=keys)
        collection = client.create_collection("notes", embedding_function=function)
        protect_and_add(collection, ids(3), notes[:3], function=function)
        first = vectors(collection)
    with chromadb.PersistentClient(tmp_path / "db") as client:
        collection = client.get_collection("notes")
        with raises("E-INPUT", "embedding_function"):
            collection.query(query_texts=["a"])
        with raises("E-INPUT", "embedding_function"):
            collection.add(ids=["9"], documents=["a"])
        collection = client.get_collection("notes", embedding_function=function)
        protect_and_add(collection, ids(3), notes[:3], function=function)
        np.testing.assert_allclose(vectors(collection), first, atol=1e-6)
    assert_no_secret(tmp_path, key_file)


def test_queries_as_the_policy_says(
    protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    mapped = protector.protect(protector.loaded_encoder().encode(notes[:40]), noise=False)
    spread = {}
    for how in ("same", "stronger", "map-only"):
        function = ProtectedEmbeddingFunction(protector_file, query_protection=how, query_noise=4)
        asked = np.asarray(function.embed_query(notes[:40]))
        spread[how] = float(np.linalg.norm(asked - mapped, axis=1).mean())
    assert spread["map-only"] < 1e-4 < spread["same"]
    assert spread["stronger"] > 2.5 * spread["same"]


def test_a_policy_is_saved_with_its_settings(client: Any, protector: vecveil.Protector, key_file: Path) -> None:
    policy = ReleasePolicy(protector, query_protection="map-only", key=vecveil.NoiseKeys.from_file(key_file))
    function = ProtectedEmbeddingFunction(policy)
    config = function.get_config()
    assert config["query_protection"] == "map-only"
    assert config["give_again"] == ["protector", "key"]
    client.create_collection("notes", embedding_function=function)
    client.get_collection("notes", embedding_function=ProtectedEmbeddingFunction(policy))


def test_around_another_function(
    client: Any, protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    inner = OwnFunction()
    function = ProtectedEmbeddingFunction(
        protector_file, encoder=inner, query_protection="map-only"
    )
    collection = client.create_collection("notes", embedding_function=function)
    protect_and_add(collection, ids(ROWS), notes[:ROWS])
    clean = protector.loaded_encoder().encode(notes[:ROWS])
    asked = function.embed_query(notes[:ROWS])
    np.testing.assert_allclose(asked, protector.protect(clean, noise=False), atol=1e-5)
    assert inner.queries == 1
    kept = client.get_collection("notes").configuration["embedding_function"]
    assert kept.get_config()["encoder"] == {"name": "own-function", "config": {"shuffled": False}}
    np.testing.assert_allclose(kept.embed_query(notes[:ROWS]), asked, atol=1e-5)


def test_another_encoder_is_refused(protector_file: Path, notes: list[str]) -> None:
    function = ProtectedEmbeddingFunction(protector_file, encoder=OwnFunction(shuffled=True))
    with raises("E-INCOMPATIBLE", "encoder"):
        function.embed_query(notes[:2])
    short = ProtectedEmbeddingFunction(protector_file, encoder=lambda texts: np.ones((2, 5)))
    with pytest.raises((IncompatibleError, InvalidInputError)):
        short.embed_query(notes[:2])


def test_another_protector_in_its_place_is_refused(
    tmp_path: Path, protector: vecveil.Protector, notes: list[str]
) -> None:
    path = tmp_path / "p.vecveil"
    protector.save(path)
    with chromadb.PersistentClient(tmp_path / "db") as client:
        function = ProtectedEmbeddingFunction(path)
        client.create_collection("notes", embedding_function=function)
        protector.rescaled(2.0).save(path)
        reopened = client.get_collection("notes")
        with pytest.raises(ValueError, match="holds another"):
            reopened.query(query_texts=["a"])
    other = ProtectedEmbeddingFunction(path, query_protection="map-only")
    with raises("E-INCOMPATIBLE", "fingerprint"):
        function.validate_config_update(function.get_config(), other.get_config())
    asked = {**function.get_config(), "query_protection": "map-only"}
    function.validate_config_update(function.get_config(), asked)


def test_nan_and_wrong_input_are_refused(client: Any, protector_file: Path) -> None:
    bad = ProtectedEmbeddingFunction(protector_file, encoder=NotANumber().encode)
    collection = client.create_collection("notes", embedding_function=bad)
    with raises("E-INPUT", "encode"):
        ProtectedEmbeddingFunction(protector_file, encoder=NotANumber())
    with raises("E-INPUT", "encode"):
        protect_and_add(collection, ["0"], ["a"], function=bad)
    assert collection.count() == 0
    with raises("E-INPUT-SHAPE", "documents"):
        protect_and_add(collection, ["0", "1"], ["a"], function=bad)
    with raises("E-INPUT-NAME", "query_protection"):
        ProtectedEmbeddingFunction(protector_file, query_protection="none")  # type: ignore[arg-type]
    plain = client.create_collection("plain", embedding_function=None)
    with raises("E-INPUT", "collection"):
        protect_and_add(plain, ["0"], ["a"])
    with raises("E-INPUT", "config"):
        ProtectedEmbeddingFunction.build_from_config({"protector": str(protector_file)})


class NotANumber:
    """An encoder of the user's that fails."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.full((len(texts), 384), np.nan, dtype=np.float32)


def test_a_database_that_goes_away(client: Any, protector_file: Path, notes: list[str]) -> None:
    function = ProtectedEmbeddingFunction(protector_file)
    collection = client.create_collection("notes", embedding_function=function)
    protect_and_add(collection, ids(3), notes[:3])
    client.delete_collection("notes")
    with raises("E-STORE", "collection") as caught:
        protect_and_add(collection, ids(3), notes[:3])
    assert caught.value.__cause__ is None
    assert notes[0] not in str(caught.value)


def test_langchain_on_top(
    tmp_path: Path, protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    from langchain_chroma import Chroma

    function = ProtectedEmbeddingFunction(protector_file, query_protection="map-only")
    store = Chroma("notes", function, persist_directory=str(tmp_path / "db"))
    with pytest.warns(PlaintextWarning):
        store.add_texts(notes[:ROWS], ids=ids(ROWS))
    assert store.similarity_search(notes[5], k=1)[0].page_content == notes[5]
    clean = protector.loaded_encoder().encode(notes[:ROWS])
    with chromadb.PersistentClient(tmp_path / "db") as client:
        stored = vectors(client.get_collection("notes", embedding_function=None))
    assert np.abs(stored - protector.protect(clean, noise=False)).max(axis=1).min() > 1e-3


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("chroma", collection_folder, protector_file)
    assert clean > 0.8
    assert 0.3 < protected <= clean + 0.05


def test_a_collection_saved_with_another_protector_is_refused(
    tmp_path: Path, client: Any, protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    protector.rescaled(9.0).save(tmp_path / "other.vecveil")
    first = ProtectedEmbeddingFunction(protector_file)
    second = ProtectedEmbeddingFunction(tmp_path / "other.vecveil")
    configuration: Any = {"hnsw": {"space": "cosine"}}
    client.create_collection("first", configuration=configuration, embedding_function=first)
    assert configuration["embedding_function"] is first, "Chroma changes the caller's dict"
    made = client.create_collection("second", configuration=configuration, embedding_function=second)
    opened = client.get_collection("first", embedding_function=second)
    for collection in (made, opened):
        for write in (
            lambda to: protect_and_add(to, ids(3), notes[:3]),
            lambda to: protect_and_add(to, ids(3), notes[:3], function=second),
            lambda to: to.add(ids=ids(3), documents=notes[:3]),
            lambda to: to.query(query_texts=notes[:1]),
        ):
            with raises("E-INCOMPATIBLE", "collection"):
                write(collection)
        assert collection.count() == 0
    fresh = client.create_collection(
        "third", configuration={"hnsw": {"space": "cosine"}}, embedding_function=second
    )
    protect_and_add(fresh, ids(3), notes[:3])
    assert fresh.query(query_texts=notes[:1])["ids"]
    # Saved by name, it is opened by itself; given again with other settings, it still fits.
    again = ProtectedEmbeddingFunction(protector_file, query_protection="map-only")
    for function in ({}, {"embedding_function": again}):
        protect_and_add(client.get_collection("first", **function), ids(3), notes[:3])


def test_langchain_on_a_collection_saved_with_another_protector_is_refused(
    tmp_path: Path, client: Any, protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    from langchain_chroma import Chroma

    protector.rescaled(9.0).save(tmp_path / "other.vecveil")
    client.create_collection("first", embedding_function=ProtectedEmbeddingFunction(protector_file))
    store = Chroma("first", ProtectedEmbeddingFunction(tmp_path / "other.vecveil"), client=client)
    with raises("E-INCOMPATIBLE", "collection"):
        store.add_texts(notes[:3])
    with raises("E-INCOMPATIBLE", "collection"):
        store.similarity_search(notes[0])
