"""Search a protected store: the documents are noised, the query stays on the trusted side."""

import numpy as np

import vecveil
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes


def nearest(queries: np.ndarray, documents: np.ndarray, k: int = 10) -> np.ndarray:
    """Return the k documents of the highest cosine for each query."""
    a = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    b = documents / np.linalg.norm(documents, axis=1, keepdims=True)
    return np.argsort(-(a @ b.T), axis=1)[:, :k]


texts = [note.text for note in load_notes()][::6]
concept = vecveil.Concept.from_file(CONCEPT_FILE)
encoder = vecveil.load_encoder("minilm")
shape = {"rank": 60, "kept": 128, "flattening": 0.3, "pairs": True}
protector = vecveil.fit(texts, concept, encoder, noise_to_signal=0.3, output="reduced", **shape)
clean = encoder.encode(texts)
documents, queries = clean[50:], clean[:50]
store = protector.protect(documents)  # this is what leaves the house

truth = nearest(queries, documents)
for name, asked in (
    ("trusted queries", protector.protect(queries, noise=False)),  # never leaves the house
    ("noisy queries", protector.protect(queries)),
):
    found = nearest(asked, store)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(truth, found, strict=True)])
    print(f"{name}: recall@10 {recall:.2f}, {store.shape[1]} of {clean.shape[1]} dimensions")
