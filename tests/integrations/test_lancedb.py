"""LanceDB: tables whose vectors are protected, now and when they are opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vecveil
from harness.errors import raises
from harness.integration_checks import assert_no_secret, run_example
from vecveil.encoders.protocol import PROBE_SENTENCES
from vecveil.integrations.opening import PlaintextWarning


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Import LanceDB only in the process that runs this file; every process collects it."""
    global LanceModel, Vector, get_registry, integration, lancedb
    import lancedb
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    from vecveil.integrations import lancedb as integration


def created(protector_file: Path, **options: Any) -> integration.ProtectedEmbeddingFunction:
    function = get_registry().get("vecveil").create(protector=str(protector_file), **options)
    assert isinstance(function, integration.ProtectedEmbeddingFunction)
    return function


def test_the_example_runs(collection_folder: Path, protector_file: Path) -> None:
    clean, protected = run_example("lancedb", collection_folder, protector_file)
    # The same noise law gives 0.85 to 0.86 of 1, and rows in no order under 0.05: no draw comes near the bound.
    assert clean > 0.7
    assert protected > 0.5


def test_a_table_protects_and_is_reopened(
    tmp_path: Path,
    protector: vecveil.Protector,
    protector_file: Path,
    key_file: Path,
    notes: list[str],
) -> None:
    function = (
        get_registry()
        .get("vecveil")
        .create(protector=str(protector_file), key=str(key_file), query_protection="map-only")
    )
    assert isinstance(function, integration.ProtectedEmbeddingFunction)

    class Note(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()  # type: ignore[valid-type]

    table = lancedb.connect(tmp_path / "db").create_table("notes", schema=Note)
    with pytest.warns(PlaintextWarning):
        table.add([{"text": text} for text in notes[:20]])
    stored = np.asarray(table.to_arrow()["vector"].to_pylist(), dtype=np.float32)
    clean = protector.loaded_encoder().encode(notes[:20])
    mapped = protector.protect(clean, noise=False)
    assert np.abs(stored - mapped).max(axis=1).min() > 1e-3
    assert np.abs(stored - clean).max(axis=1).min() > 1e-3

    again = lancedb.connect(tmp_path / "db").open_table("notes")
    with pytest.warns(PlaintextWarning):
        again.add([{"text": notes[0]}])
    last = np.asarray(again.to_arrow()["vector"].to_pylist(), dtype=np.float32)[-1]
    np.testing.assert_allclose(last, stored[0], atol=1e-5)  # keyed noise
    assert again.search(notes[4]).limit(1).to_list()[0]["text"] == notes[4]
    asked = function.compute_query_embeddings(notes[4])[0]
    np.testing.assert_allclose(asked, mapped[4], atol=1e-5)
    assert_no_secret(tmp_path / "db", key_file, key_file.read_bytes().strip())


def test_a_table_does_not_open_another_protector(
    tmp_path: Path, protector: vecveil.Protector, notes: list[str]
) -> None:
    path = tmp_path / "p.vecveil"
    protector.save(path)

    def schema() -> Any:
        function = created(path)

        class Note(LanceModel):
            text: str = function.SourceField()
            vector: Vector(function.ndims()) = function.VectorField()  # type: ignore[valid-type]

        return Note

    database = lancedb.connect(tmp_path / "db")
    database.create_table("notes", schema=schema())
    protector.rescaled(2.0).save(path)
    # The same path, but vectors that cannot be compared.
    with raises("E-INCOMPATIBLE", "protector"):
        database.open_table("notes").add([{"text": notes[0]}])
    with pytest.raises(ValueError, match="Schema"):
        database.create_table("notes", schema=schema(), exist_ok=True)


def test_an_object_is_refused(protector: vecveil.Protector) -> None:
    with pytest.raises(ValueError, match="protector"):
        get_registry().get("vecveil").create(protector=protector)


def test_queries_can_get_more_noise(
    protector: vecveil.Protector, protector_file: Path, notes: list[str]
) -> None:
    mapped = protector.protect(protector.loaded_encoder().encode(notes[:8]), noise=False)

    def added(**options: Any) -> float:
        function = created(protector_file, **options)
        asked = np.asarray([function.compute_query_embeddings(text)[0] for text in notes[:8]])
        return float(np.linalg.norm(asked - mapped, axis=1).mean())

    same, more = added(), added(query_protection="stronger", query_noise=3.0)
    # Means of 8 norms of noise in hundreds of coordinates: each within a few hundredths of its expectation.
    assert more == pytest.approx(3 * same, rel=0.3)
    assert added(query_protection="map-only") < 1e-5
    with raises("E-INPUT-RANGE", "query_noise"):
        created(protector_file, query_protection="stronger", query_noise=0.5)


class Other:
    """Another encoder than the protector's, known by its fingerprint."""

    fingerprint, name, dimension = "0" * 64, "other", 384

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.full((len(texts), 384), 0.5, dtype=np.float32)


class Broken:
    """The protector's encoder when it is verified, NaN afterwards."""

    def encode(self, texts: list[str]) -> np.ndarray:
        X = np.asarray(vecveil.load_encoder("minilm").encode(texts))
        return X if texts == list(PROBE_SENTENCES) else X * np.nan


def test_another_encoder_and_nan_are_refused(
    protector_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders = {"other": Other(), "broken": Broken()}
    monkeypatch.setattr("vecveil.databases.clients.load_encoder", encoders.__getitem__)
    with raises("E-INCOMPATIBLE-ENCODER", "encoder"):
        created(protector_file, encoder="other")
    function = created(protector_file, encoder="broken")

    class Note(LanceModel):
        text: str = function.SourceField()
        vector: Vector(function.ndims()) = function.VectorField()  # type: ignore[valid-type]

    table = lancedb.connect(tmp_path / "db").create_table("notes", schema=Note)
    # LanceDB wraps what a function raises.
    with pytest.warns(PlaintextWarning), pytest.raises(Exception, match="finite vectors"):
        table.add([{"text": "one"}, {"text": "two"}])
    assert table.count_rows() == 0
    with pytest.raises(Exception, match="finite vectors"):
        table.search("one").to_list()
