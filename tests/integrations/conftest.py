"""What tests of integrations share: a protector fitted on real MiniLM vectors, and a small collection to search."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vecveil
from harness.http_encoder import hashed_vectors
from harness.shared_files import made_once
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes

NOTES = 240


@pytest.fixture(scope="session")
def notes() -> list[str]:
    """Return texts, of which about two in three hold the concept."""
    return [note.text for note in load_notes()[:NOTES]]


@pytest.fixture(scope="session")
def protector_file(notes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the default method, fitted with MiniLM once for all processes."""

    def fit(path: Path) -> None:
        concept = vecveil.Concept.from_file(CONCEPT_FILE)
        vecveil.fit(notes, concept, "minilm", target_utility=0.9, seed=0).save(path)

    return made_once(tmp_path_factory, "health.vecveil", fit)


@pytest.fixture(scope="session")
def protector(protector_file: Path) -> vecveil.Protector:
    """Return the protector of the file."""
    return vecveil.load(protector_file)


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with one key."""
    path = tmp_path_factory.mktemp("keys") / "noise.key"
    vecveil.KeyFile.create(path, "2026")
    return path


@pytest.fixture(scope="session")
def collection_folder(notes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in BEIR layout: the second half of a note is the query that finds the note."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore"]
    with (folder / "corpus.jsonl").open("w") as corpus, (folder / "queries.jsonl").open("w") as asked:
        for i, text in enumerate(notes):
            corpus.write(json.dumps({"_id": f"d{i}", "title": "", "text": text}) + "\n")
            if i % 10 == 0:
                words = text.split()
                query = " ".join(words[len(words) // 2 :])
                asked.write(json.dumps({"_id": f"q{i}", "text": query}) + "\n")
                rows.append(f"q{i}\td{i}\t1")
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="session")
def redactor(notes: list[str]) -> vecveil.Protector:
    """Return a method that rewrites texts and leaves vectors as they are."""
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    encoder = vecveil.load_encoder("minilm")
    return vecveil.fit(notes[:80], concept, encoder, method="redact", seed=0)


class HashedEncoder:
    """An encoder without a model, of 24 dimensions: the vector of a text is drawn from its hash."""

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array(hashed_vectors(list(texts), 24), np.float32).reshape(-1, 24)


@pytest.fixture(scope="session")
def hashed_protector(notes: list[str]) -> vecveil.Protector:
    """Return a method that adds noise to hashed vectors."""
    concept = vecveil.Concept.from_file(CONCEPT_FILE)
    return vecveil.fit(notes[:80], concept, HashedEncoder(), method="laplace", noise_to_signal=0.7, seed=0)
