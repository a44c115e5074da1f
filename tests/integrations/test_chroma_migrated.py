"""A Chroma collection that `vecveil migrate` wrote: who opens it and gives texts gets protected vectors, or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

import vecveil
from harness.command_line import run
from harness.errors import raises
from harness.integration_checks import assert_no_secret
from vecveil.databases import Batch
from vecveil.databases.locations import in_this_process
from vecveil.integrations.opening import PlaintextWarning
from vecveil.protector.policy import ReleasePolicy

ROWS = 20
OUTSIDER = """
import chromadb, sys
opened = chromadb.PersistentClient(sys.argv[1]).get_collection('notes')
for call in (lambda: opened.add(ids=['x'], documents=['a']), lambda: opened.query(query_texts=['a'])):
    try: call()
    except ValueError as error: assert 'vecveil' in str(error), error
    else: sys.exit('embedded without protection')
assert opened.count() == 20
"""


@pytest.fixture(scope="module")
def source(
    protector: vecveil.Protector, notes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Clean MiniLM vectors, in a file: each folder of Chroma costs a migration one more process."""
    location = f"faiss:{tmp_path_factory.mktemp('clean')}/notes.faiss"
    X = protector.loaded_encoder().encode(notes[:ROWS])
    with in_this_process(location) as store:
        store.create(X.shape[1], metric="cosine")
        store.write(Batch(tuple(map(str, range(ROWS))), X, ({},) * ROWS))
    return location


def migrated(source: str, folder: Path, protector_file: Path, *more: object) -> None:
    done = run("migrate", source, f"chroma:{folder}/db#notes", "-p", protector_file, *more)
    assert done.code == 0, done.err


def config_of(collection: Any) -> dict[str, Any]:
    kept = collection.configuration_json["embedding_function"]
    assert kept["name"] == "vecveil"
    return dict(kept["config"])


def test_a_plain_open_protects_what_is_added(
    source: str, tmp_path: Path, protector: vecveil.Protector, protector_file: Path, key_file: Path, notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(protector_file.parent)
    ledger = tmp_path / "releases.ledger"
    migrated(
        source, tmp_path, Path(protector_file.name), "--key-file", key_file, "--ledger", ledger
    )
    with chromadb.PersistentClient(tmp_path / "db") as client:
        collection = client.get_collection("notes")
        config = config_of(collection)
        assert (config["protector"], config["key"]) == (str(protector_file), str(key_file))
        assert (config["ledger"], config["fingerprint"]) == (str(ledger), protector.fingerprint)
        assert collection.configuration_json["hnsw"]["space"] == "cosine", "that of the source"
        counted = vecveil.Ledger(ledger).total
        with pytest.warns(PlaintextWarning):
            collection.add(ids=["new"], documents=[notes[50]])
        assert vecveil.Ledger(ledger).total == counted + 1
        (stored,) = np.asarray(collection.get(ids=["new"], include=["embeddings"])["embeddings"])
        key = vecveil.NoiseKeys.from_file(key_file)
        expected = ReleasePolicy(protector, key=key).embed_documents([notes[50]])[0]
        np.testing.assert_allclose(stored, expected, atol=1e-5)
        assert collection.query(query_texts=[notes[50]], n_results=1)["ids"] == [["new"]]
    assert_no_secret(tmp_path, key_file, key_file.read_bytes().strip())


def test_a_key_of_the_environment_is_kept_by_name_and_one_by_id_is_asked_for(
    source: str,
    tmp_path: Path,
    protector_file: Path,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTES_KEY", key_file.read_text())
    migrated(source, tmp_path / "env", protector_file, "--key-env", "NOTES_KEY")
    migrated(source, tmp_path / "id", protector_file, "--key-env", "NOTES_KEY", "--key-id", "2026")
    with chromadb.PersistentClient(tmp_path / "env" / "db") as client:
        assert config_of(client.get_collection("notes"))["key"] == "env:NOTES_KEY"
    with chromadb.PersistentClient(tmp_path / "id" / "db") as client:
        collection = client.get_collection("notes")
        assert config_of(collection)["give_again"] == ["key"]
        with raises("E-INPUT", "embedding_function"):
            collection.query(query_texts=["a question"])
    assert_no_secret(tmp_path, key_file)


def test_another_function_and_a_program_without_vecveil_are_refused(
    source: str, tmp_path: Path, protector_file: Path
) -> None:
    """An empty collection with another function is not written to; a new one refuses programs without ours."""
    with chromadb.PersistentClient(tmp_path / "db") as client:
        client.create_collection("notes", embedding_function=None)
    done = run("migrate", source, f"chroma:{tmp_path}/db#notes", "-p", protector_file)
    assert done.code == 1
    assert "protected embedding function" in done.err
    with chromadb.PersistentClient(tmp_path / "db") as client:
        assert client.get_collection("notes", embedding_function=None).count() == 0
        client.delete_collection("notes")
    migrated(source, tmp_path, protector_file)
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDER, str(tmp_path / "db")],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
