"""FAISS: an index of clean vectors, and one of protected vectors.

python examples/integrations/search_with_faiss.py BEIR_FOLDER PROTECTOR_FILE
"""

import faiss
from collection import read_collection

import vecveil
from vecveil.integrations.faiss import ProtectedIndex

collection, protector = read_collection()
ids, texts = list(collection.documents), list(collection.documents.values())

encoder = vecveil.load_encoder("minilm")
plain = faiss.IndexFlatIP(384)
plain.add(encoder.encode(texts))
clean = collection.ndcg(
    lambda text: [ids[row] for row in plain.search(encoder.encode([text]), 10)[1][0]]
)

index = ProtectedIndex(faiss.IndexFlatIP(384), protector, normalise=True)
index.add(texts)
protected = collection.ndcg(lambda text: [ids[row] for row in index.search(text, 10)[1][0]])

print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
