"""Protect the embeddings of a list of texts, save the protector and use it again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import vecveil
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes

# Synthetic notes of a clinic, a support desk and a finance office; yours are a list of strings.
texts = [note.text for note in load_notes()][::6]
concept = vecveil.Concept.from_file(CONCEPT_FILE)  # conditions and drugs
protector = vecveil.fit(texts, concept, "minilm", target_utility=0.8)

with TemporaryDirectory() as folder:
    path = Path(folder) / "health.vecveil"
    protector.save(path)
    loaded = vecveil.load(path)

vectors = loaded.encode(texts[:5])  # encodes with the same model, then protects
print("released:", vectors.shape, vectors.dtype)
print("kept of the similarity:", f"{protector.report['utility']['similarity']['relative']:.0%}")
print(protector.guarantee)
