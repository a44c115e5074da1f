"""LanceDB: tables whose vectors are protected, now and when they are opened again."""

from __future__ import annotations

from pathlib import Path

import lancedb
import numpy as np
import pytest
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel, Vector

import vecveil
from harness.integration_checks import assert_no_secret
from vecveil.integrations import lancedb as integration
from vecveil.integrations.opening import PlaintextWarning


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


def test_an_object_is_refused(protector: vecveil.Protector) -> None:
    with pytest.raises(ValueError, match="protector"):
        get_registry().get("vecveil").create(protector=protector)
