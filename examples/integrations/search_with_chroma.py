"""Chroma with protected vectors: nDCG@10 before and after.

python examples/integrations/search_with_chroma.py BEIR_FOLDER PROTECTOR_FILE
"""

from __future__ import annotations

import chromadb
from collection import read_collection

import vecveil
from vecveil.integrations.chroma import ProtectedEmbeddingFunction, protect_and_add


def main() -> None:
    """Fill two collections, ask both, and print what protection costs."""
    texts, protector = read_collection()
    ids, documents = list(texts.documents), list(texts.documents.values())
    client = chromadb.EphemeralClient()
    encoder = vecveil.load(protector).loaded_encoder()
    cosine = {"hnsw": {"space": "cosine"}}
    clean = client.create_collection("clean", embedding_function=None, configuration=cosine)
    function = ProtectedEmbeddingFunction(protector)  # the one line that changes
    protected = client.create_collection("protected", embedding_function=function)

    clean.add(ids=ids, embeddings=encoder.encode(documents))
    protect_and_add(protected, ids, documents)

    def before(query: str) -> list[str]:
        return clean.query(query_embeddings=encoder.encode([query]), n_results=10)["ids"][0]

    def after(query: str) -> list[str]:
        return protected.query(query_texts=[query], n_results=10)["ids"][0]

    print(f"nDCG@10 clean {texts.ndcg(before):.3f}, protected {texts.ndcg(after):.3f}")


if __name__ == "__main__":
    main()
